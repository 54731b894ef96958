"""Requests, answers and znodes as short texts that two controllers can be compared by.

What differs between any two runs is left out: time, ports, transaction and session ids, ids made at random. The epoch
of the receiving broker is named only where it is stale. Each partition has a list of its own, since the partitions of
one request may come in any order. A list of live brokers is named only where it changes, since requests may be merged.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from klamm.wire.messages import (
    AllocateProducerIdsResponse,
    AlterPartitionReassignmentsResponse,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    ElectLeadersResponse,
    LeaderAndIsrRequest,
    ListPartitionReassignmentsResponse,
    StopReplicaRequest,
    UpdateFeaturesResponse,
    UpdateMetadataRequest,
)
from klamm.zk.znodes import REASSIGN_PARTITIONS

ReceivedRequests = dict[str, list[str]]
"""By partition, what one broker received, in order; besides the lists of live brokers, and request versions."""

BROKERS = "brokers"
VERSIONS = "versions"
NO_ID = uuid.UUID(int=0)
NO_EPOCH = -1
_RANDOM = ("timestamp", "port", "endpoints", "topic_id", "id")


def received_requests(
    heard: Iterable[tuple[int, Any]], broker_epoch: int, topic_ids: dict[str, uuid.UUID]
) -> ReceivedRequests:
    """What one broker heard in one step, from requests and their versions."""
    received: ReceivedRequests = {}
    for version, request in heard:
        for subject, text in _facts(request, broker_epoch, topic_ids):
            words = received.setdefault(subject, [])
            if subject != BROKERS or words[-1:] != [text]:
                words.append(text)
        versions = {*received.get(VERSIONS, ()), f"{type(request).__name__} {version}"}
        received[VERSIONS] = sorted(versions)
    return dict(sorted(received.items()))


def _facts(request: Any, broker_epoch: int, topic_ids: dict[str, uuid.UUID]) -> list[tuple[str, str]]:
    """Pairs of a subject and a text about it, from one request."""
    stale = "" if request.broker_epoch in (broker_epoch, NO_EPOCH) else " to a stale broker epoch"
    sender = f"by {request.controller_id} epoch {request.controller_epoch}{stale}"
    if isinstance(request, LeaderAndIsrRequest):
        known = {leader.broker_id for leader in request.live_leaders}
        return [
            (
                f"{topic}-{p.partition_index}",
                f"LeaderAndIsr {_state(p, p.partition_epoch)}{_changes(p)}{' new' if p.is_new else ''}"
                f"{f' recovery {p.leader_recovery_state}' if p.leader_recovery_state else ''}"
                f"{'' if p.leader in known else ', leader not named'}{_id(topic, topic_id, topic_ids)}, {sender}",
            )
            for topic, topic_id, p in _partitions(request)
        ]
    if isinstance(request, UpdateMetadataRequest):
        brokers = " ".join(
            f"{b.id}({','.join(e.listener for e in b.endpoints)}{f' rack {b.rack}' if b.rack else ''})"
            for b in sorted(request.live_brokers, key=lambda b: b.id)
        )
        partitions = [
            (
                f"{topic}-{p.partition_index}",
                f"UpdateMetadata {_state(p, p.zk_version)} offline {_list(p.offline_replicas)}"
                f"{_id(topic, topic_id, topic_ids)}, {sender}",
            )
            for topic, topic_id, p in _partitions(request)
        ]
        return [(BROKERS, f"{brokers}, {sender}"), *partitions]
    assert isinstance(request, StopReplicaRequest), request
    old = [(p.topic_name, p.partition_index) for p in request.ungrouped_partitions]
    old += [(t.name, number) for t in request.topics for number in t.partition_indexes]
    delete = " delete" if request.delete_partitions else ""
    return [
        *((f"{topic}-{number}", f"StopReplica{delete}, {sender}") for topic, number in old),
        *(
            (
                f"{t.topic_name}-{p.partition_index}",
                f"StopReplica leader epoch {p.leader_epoch}{' delete' if p.delete_partition else ''}, {sender}",
            )
            for t in request.topic_states
            for p in t.partition_states
        ),
    ]


def _partitions(request: Any) -> list[tuple[str, uuid.UUID, Any]]:
    """Topic, topic id and state of each partition in the request, whichever layout its version has."""
    alone = [(p.topic_name, NO_ID, p) for p in request.ungrouped_partition_states]
    return alone + [(t.topic_name, t.topic_id, p) for t in request.topic_states for p in t.partition_states]


def _state(p: Any, partition_epoch: int) -> str:
    """Leader / ISR / leader epoch / partition epoch, and the epoch of the controller that decided so."""
    return (
        f"{p.leader} / {_list(p.isr)} / {p.leader_epoch} / {partition_epoch} of {_list(p.replicas)}"
        f" decided in {p.controller_epoch}"
    )


def _changes(p: Any) -> str:
    """Adding and removing replicas of a partition state, as text."""
    adding = f" adding {_list(p.adding_replicas)}" if p.adding_replicas else ""
    return adding + (f" removing {_list(p.removing_replicas)}" if p.removing_replicas else "")


def words(items: Sequence[object]) -> str:
    """The items as text, separated by spaces."""
    return " and ".join(map(str, items))


def _list(brokers: Sequence[int]) -> str:
    """Broker ids as text."""
    return f"[{','.join(map(str, brokers))}]"


def _id(topic: str, topic_id: uuid.UUID, topic_ids: dict[str, uuid.UUID]) -> str:
    """How a topic id is shown: by whether it is the topic's current one."""
    if topic_id == topic_ids.get(topic):
        return ""
    return ", without topic id" if topic_id == NO_ID else ", under another topic id"


# ---- answers


def alter_partition_answer(answer: AlterPartitionResponse, topic_ids: dict[str, uuid.UUID]) -> Any:
    """An AlterPartition response as comparable data."""
    if answer.error_code:
        return f"error {answer.error_code}"
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    said = {}
    for topic in answer.topics:
        name = topic.topic_name or names.get(topic.topic_id, "unknown id")
        for p in topic.partitions:
            recovery = f" recovery {p.leader_recovery_state}" if p.leader_recovery_state else ""
            state = f"{p.leader_id} / {_list(p.isr)} / {p.leader_epoch} / {p.partition_epoch}{recovery}"
            said[f"{name}-{p.partition_index}"] = f"error {p.error_code}" if p.error_code else state
    return said


def shutdown_answer(answer: ControlledShutdownResponse) -> Any:
    """A ControlledShutdown response as comparable data."""
    if answer.error_code:
        return f"error {answer.error_code}"
    return sorted(f"{p.topic_name}-{p.partition_index}" for p in answer.remaining_partitions)


Normalizer = Callable[[Any], Any]


def _error(code: int) -> str:
    """The name of an error code."""
    return f"error {code}" if code else "ok"


def create_topics_answer(answer: CreateTopicsResponse) -> Any:
    """A CreateTopics response as comparable data."""
    return {
        t.name: f"ok, {t.num_partitions} partitions of {t.replication_factor}{'' if t.topic_id != NO_ID else ', no id'}"
        if not t.error_code
        else f"error {t.error_code}"
        for t in answer.topics
    }


def create_partitions_answer(answer: CreatePartitionsResponse) -> Any:
    """A CreatePartitions response as comparable data."""
    return {t.name: _error(t.error_code) for t in answer.results}


def delete_topics_answer(answer: DeleteTopicsResponse, topic_ids: dict[str, uuid.UUID]) -> Any:
    """A DeleteTopics response as comparable data."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return {t.name or f"id of {names.get(t.topic_id, 'nothing')}": _error(t.error_code) for t in answer.responses}


def reassignment_answer(answer: AlterPartitionReassignmentsResponse) -> Any:
    """An AlterPartitionReassignments response as comparable data."""
    if answer.error_code:
        return f"error {answer.error_code}"
    return {f"{t.name}-{p.partition_index}": _error(p.error_code) for t in answer.responses for p in t.partitions}


def reassignment_list_answer(answer: ListPartitionReassignmentsResponse) -> Any:
    """A ListPartitionReassignments response as comparable data."""
    if answer.error_code:
        return f"error {answer.error_code}"
    return {
        f"{t.name}-{p.partition_index}": f"{_list(p.replicas)} adding {_list(p.adding_replicas)}"
        f" removing {_list(p.removing_replicas)}"
        for t in answer.topics
        for p in t.partitions
    }


def elections_answer(answer: ElectLeadersResponse) -> Any:
    """An ElectLeaders response as comparable data."""
    results = {
        f"{t.topic}-{p.partition_id}": _error(p.error_code)
        for t in answer.replica_election_results
        for p in t.partition_result
    }
    return {"whole": f"error {answer.error_code}", **results} if answer.error_code else results


def features_answer(answer: UpdateFeaturesResponse) -> Any:
    """An UpdateFeatures response as comparable data."""
    results = {result.feature: _error(result.error_code) for result in answer.results}
    return {"whole": f"error {answer.error_code}", **results} if answer.error_code else results


def producer_ids_answer(answer: AllocateProducerIdsResponse) -> Any:
    """An AllocateProducerIds response as comparable data."""
    if answer.error_code:
        return f"error {answer.error_code}"
    return f"{answer.producer_id_len} from {answer.producer_id_start} on"


# ---- znodes


def znode_content(path: str, data: bytes | None) -> str:
    """JSON in order of its keys, without what differs by chance."""
    if data is None:
        return "null"
    try:
        content = json.loads(data)
    except ValueError:
        return repr(data.decode())
    if isinstance(content, dict):
        if path == REASSIGN_PARTITIONS and isinstance(content.get("partitions"), list):
            content["partitions"].sort(key=repr)  # a map, in whatever order
        content = {key: "(by chance)" if key in _RANDOM else value for key, value in content.items()}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


_PARTITION = re.compile(r"/brokers/topics/([^/]+)(?:/partitions(?:/\d+(/state)?)?)?$")
_OF_A_TOPIC = re.compile(r"(/admin/delete_topics|/config/topics)/([^/]+)$")
_NUMBER = re.compile(r"\d{10}$")


def write_order(writes: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """By topic: which kinds of places were written to, in which order, from paths and kinds of writes.

    Partitions of a topic may come in any order, and so may topics; what belongs to none is listed with each of them.
    """
    results: dict[str, list[str]] = {}
    kinds = [(*_topic_and_znode_kind(path), kind) for path, kind in writes]
    topics = sorted({topic for topic, _, _ in kinds if topic})
    for topic in topics:
        words: list[str] = []
        for owner, place, kind in kinds:
            if owner in (topic, "") and words[-1:] != [f"{kind} {place}"]:
                words.append(f"{kind} {place}")
        if len(words) > 1:
            results[topic] = words
    return results


def _topic_and_znode_kind(path: str) -> tuple[str, str]:
    """The topic that a znode belongs to, or none, and the kind of znode."""
    if found := _PARTITION.match(path):
        kind = "state" if found[2] else "topic" if path.count("/") == 3 else "partitions"
        return found[1], kind
    if found := _OF_A_TOPIC.match(path):
        return found[2], found[1]
    return "", _NUMBER.sub("", path)
