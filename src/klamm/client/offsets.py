"""Offsets by timestamp, and earliest and latest offsets, from partition leaders. Source: OffsetFetcher.java."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import ConnectionLost, RetriableError, retriable_or_raise
from klamm.client.steps import Ask, Steps, Wait
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
"""No record is so late."""
_BY_TIME, _NEWEST = 1, 7


def list_offsets_request(times: Mapping[TopicPartition, int], read_committed: bool = False) -> Request:
    """A ListOffsets request for partitions of one leader."""
    by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for (topic, number), time in times.items():
        by_topic[topic].append(ListOffsetsPartition(partition_index=number, timestamp=time))
    topics = [ListOffsetsTopic(name, partitions) for name, partitions in by_topic.items()]
    message = ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=topics)
    return Request(ApiKey.LIST_OFFSETS, message, oldest=_BY_TIME, newest=_NEWEST)


def offsets_of(answer: Any) -> dict[TopicPartition, tuple[int, int]]:
    """Error code and offset of each partition in a ListOffsets response."""
    return {
        TopicPartition(topic.name, p.partition_index): (p.error_code, p.offset)
        for topic in answer.topics
        for p in topic.partitions
    }


def list_offsets(
    cluster: ClusterMetadata, times: Mapping[TopicPartition, int], backoff: Backoff, read_committed: bool = False
) -> Steps[dict[TopicPartition, int]]:
    """Ask for an offset of each partition: the first at or after a timestamp, or EARLIEST or LATEST.

    NO_OFFSET where no record is so late. LATEST is the high watermark, with `read_committed` the last stable offset.
    Raises Unreachable, RequestRefused, TopicGone.
    """
    found: dict[TopicPartition, int] = {}
    while missing := {p: time for p, time in times.items() if p not in found}:
        causes: list[str] = []
        groups = yield from _group_by_leader(cluster, missing, causes)
        for address, group in groups.items():
            try:
                answer = yield Ask(address, list_offsets_request(group, read_committed))
            except ConnectionLost as error:
                causes.append(str(error))
                continue
            _collect_offsets(cluster, answer, found, causes)
        if len(found) < len(times):
            yield Wait(backoff.next_wait_s("ListOffsets", RetriableError("; ".join(causes))))
    return dict(sorted(found.items()))


def _group_by_leader(
    cluster: ClusterMetadata, times: Mapping[TopicPartition, int], causes: list[str]
) -> Steps[dict[Address, dict[TopicPartition, int]]]:
    """Group partitions by their leader's address; reasons for those without a leader are added to `causes`."""
    groups: defaultdict[Address, dict[TopicPartition, int]] = defaultdict(dict)
    try:
        leaders = yield from cluster.leaders(times)
    except RetriableError as error:
        causes.append(str(error))
        return groups
    for partition, time in times.items():
        if partition in leaders:
            groups[leaders[partition]][partition] = time
        else:
            causes.append(cluster.no_leader_reason(partition))
    return groups


def _collect_offsets(
    cluster: ClusterMetadata, answer: Any, found: dict[TopicPartition, int], causes: list[str]
) -> None:
    """Add a response's offsets to `found`; retriable errors go to `causes`, others are raised."""
    for partition, (code, offset) in offsets_of(answer).items():
        if code == ErrorCode.NONE:
            found[partition] = offset
        else:
            cluster.forget_leader(partition)
            causes.append(retriable_or_raise(partition, code))
