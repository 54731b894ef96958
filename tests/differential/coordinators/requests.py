"""The request of each verb in any version, with the ids that its actor has by now."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.differential.coordinators.names import DATA, Place

from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm.wire import messages as m
from klamm.wire.api import ApiKey
from klamm.wire.codec import WireMessage
from klamm.wire.records import NewRecord, build_batch

_VERSION_PREFIX: Final = 2
STRANGER: Final = "stranger"
NOWHERE: Final = "nope"
"""A topic that does not exist."""
LONG_MS: Final = 600_000
"""Timeouts that no script sees expire, however long brokers need to restart."""
LONG: Final = "x" * 5_000
"""Metadata of a commit that is longer than offset.metadata.max.bytes."""


@dataclass(slots=True, eq=False)
class Actor:
    """A member or a producer with what it was answered."""

    name: str
    instance_id: str | None = None
    transactional_id: str = ""
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    listed: tuple[str, ...] = ()
    """The member ids of its generation, if it is the leader."""
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)


class Sent(NamedTuple):
    key: ApiKey
    version: int
    message: WireMessage
    topic: str
    """The topic whose leader serves it: a coordinator's, or `data`."""
    partition: int = 0
    """Of `data`; a coordinator's topic has the script's slot."""


class Requests:
    """Builds requests for one script; `actors` are changed by the answers elsewhere."""

    def __init__(self, place: Place, actors: Mapping[str, Actor]) -> None:
        self._place = place
        self._actors = actors

    def build(self, who: Actor, verb: str, options: Mapping[str, Any]) -> Sent:
        real = dict(options)
        for name in ("offsets", "partitions"):
            if real.get(name) is not None:
                real[name] = [[self._place.real.get(topic, topic), *rest] for topic, *rest in real[name]]
        return _BUILD[verb](self, who, real)

    # ---- names

    def _group(self, o: Mapping[str, Any]) -> str:
        name: str = o.get("group", "g")
        return self._place.real.get(name, name)

    def _transaction(self, who: Actor, o: Mapping[str, Any]) -> str:
        name: str = o.get("id", who.transactional_id)
        return self._place.real.get(name, name)

    def _member(self, who: Actor, o: Mapping[str, Any]) -> str:
        """Its own member id, that of another actor, or as the step says."""
        asked = o.get("member")
        if asked is None:
            return who.member_id
        return self._actors[asked].member_id if asked in self._actors else str(asked)

    @staticmethod
    def _generation(who: Actor, o: Mapping[str, Any]) -> int:
        asked = o.get("generation", 0)
        return -1 if asked is None else max(-1, who.generation + int(asked))

    @staticmethod
    def _instance(who: Actor, o: Mapping[str, Any], since: int) -> str | None:
        return o.get("instance", who.instance_id) if o["v"] >= since else None

    def _partition(self, number: int) -> int:
        return self._place.first_partition + number

    # ---- members

    def join(self, who: Actor, o: dict[str, Any]) -> Sent:
        protocols = [m.JoinGroupRequestProtocol(name, _subscription(who, o)) for name in o.get("protocols", ["range"])]
        message = m.JoinGroupRequest(
            self._group(o),
            o.get("session", LONG_MS),
            o.get("rebalance", LONG_MS),
            self._member(who, o),
            self._instance(who, o, 5),
            o.get("type", "consumer"),
            protocols,
            "because" if o["v"] >= 8 else None,
        )
        return Sent(ApiKey.JOIN_GROUP, o["v"], message, OFFSETS_TOPIC)

    def sync(self, who: Actor, o: dict[str, Any]) -> Sent:
        gives = o.get("gives", "all")
        members = {"all": who.listed, "some": who.listed[1:], "none": ()}.get(gives, (STRANGER,))
        if gives == "always":
            members = who.listed or (who.member_id,)
        names = (who.protocol_type, who.protocol_name) if o["v"] >= 5 else (None, None)
        message = m.SyncGroupRequest(
            self._group(o),
            self._generation(who, o),
            self._member(who, o),
            self._instance(who, o, 3),
            o.get("type", names[0]),
            o.get("protocol", names[1]),
            [m.SyncGroupRequestAssignment(member, _assignment(member, self._place)) for member in members],
        )
        return Sent(ApiKey.SYNC_GROUP, o["v"], message, OFFSETS_TOPIC)

    def heartbeat(self, who: Actor, o: dict[str, Any]) -> Sent:
        message = m.HeartbeatRequest(
            self._group(o), self._generation(who, o), self._member(who, o), self._instance(who, o, 3)
        )
        return Sent(ApiKey.HEARTBEAT, o["v"], message, OFFSETS_TOPIC)

    def leave(self, who: Actor, o: dict[str, Any]) -> Sent:
        if o["v"] < 3:
            return Sent(
                ApiKey.LEAVE_GROUP, o["v"], m.LeaveGroupRequest(self._group(o), self._member(who, o)), OFFSETS_TOPIC
            )
        leaving = []
        for name in o.get("members", [who.name]):
            actor = self._actors.get(name, Actor(name, member_id=name))
            member_id = "" if o.get("by_instance") else actor.member_id
            leaving.append(m.MemberIdentity(member_id, actor.instance_id, "bye" if o["v"] >= 5 else None))
        message = m.LeaveGroupRequest(self._group(o), members=leaving)
        return Sent(ApiKey.LEAVE_GROUP, o["v"], message, OFFSETS_TOPIC)

    # ---- offsets

    def commit(self, who: Actor, o: dict[str, Any]) -> Sent:
        partitions = [
            m.OffsetCommitRequestPartition(
                self._partition(number) if topic == DATA else number,
                offset,
                o.get("epoch", -1) if o["v"] >= 6 else -1,
                o.get("timestamp", -1) if o["v"] == 1 else -1,
                LONG if o.get("metadata") == "long" else o.get("metadata"),
            )
            for topic, number, offset in o["offsets"]
        ]
        topics = _topics(m.OffsetCommitRequestTopic, [t for t, _, _ in o["offsets"]], partitions)
        message = m.OffsetCommitRequest(
            self._group(o),
            self._generation(who, o),
            self._member(who, o),
            self._instance(who, o, 7),
            o.get("retention", -1) if 2 <= o["v"] <= 4 else -1,
            topics,
        )
        return Sent(ApiKey.OFFSET_COMMIT, o["v"], message, OFFSETS_TOPIC)

    def fetch(self, who: Actor, o: dict[str, Any]) -> Sent:
        asked = o.get("partitions")
        stable = bool(o.get("stable")) and o["v"] >= 7
        if o["v"] < 8:
            topics = None if asked is None else self._indexes(m.OffsetFetchRequestTopic, asked)
            message = m.OffsetFetchRequest(self._group(o), topics, require_stable=stable)
        else:
            several = None if asked is None else self._indexes(m.OffsetFetchRequestTopics, asked)
            names = [self._place.real.get(name, name) for name in o.get("groups", ["g"])]
            groups = [m.OffsetFetchRequestGroup(name, topics=several) for name in names]
            message = m.OffsetFetchRequest(groups=groups, require_stable=stable)
        return Sent(ApiKey.OFFSET_FETCH, o["v"], message, OFFSETS_TOPIC)

    def _indexes(self, make: Callable[..., Any], asked: Sequence[Sequence[Any]]) -> list[Any]:
        by_topic: dict[str, list[int]] = {}
        for topic, number in asked:
            by_topic.setdefault(topic, []).append(self._partition(number) if topic == DATA else number)
        return [make(topic, tuple(numbers)) for topic, numbers in by_topic.items()]

    def delete_offsets(self, who: Actor, o: dict[str, Any]) -> Sent:
        partitions = [
            m.OffsetDeleteRequestPartition(self._partition(number) if topic == DATA else number)
            for topic, number in o["partitions"]
        ]
        topics = _topics(m.OffsetDeleteRequestTopic, [t for t, _ in o["partitions"]], partitions)
        return Sent(ApiKey.OFFSET_DELETE, 0, m.OffsetDeleteRequest(self._group(o), topics), OFFSETS_TOPIC)

    # ---- groups

    def describe(self, who: Actor, o: dict[str, Any]) -> Sent:
        names = [self._place.real.get(name, name) for name in o.get("groups", ["g"])]
        message = m.DescribeGroupsRequest(tuple(names), bool(o.get("operations")) and o["v"] >= 3)
        return Sent(ApiKey.DESCRIBE_GROUPS, o["v"], message, OFFSETS_TOPIC)

    def list_groups(self, who: Actor, o: dict[str, Any]) -> Sent:
        states, types = (o.get("states", ()) if o["v"] >= 4 else ()), (o.get("types", ()) if o["v"] >= 5 else ())
        return Sent(ApiKey.LIST_GROUPS, o["v"], m.ListGroupsRequest(tuple(states), tuple(types)), OFFSETS_TOPIC)

    def delete_groups(self, who: Actor, o: dict[str, Any]) -> Sent:
        names = [self._place.real.get(name, name) for name in o.get("groups", ["g"])]
        return Sent(ApiKey.DELETE_GROUPS, o["v"], m.DeleteGroupsRequest(tuple(names)), OFFSETS_TOPIC)

    # ---- producers

    def _producer(self, who: Actor, o: Mapping[str, Any]) -> tuple[int, int]:
        """Producer id and epoch: its own, those of another actor, or with another epoch."""
        actor = self._actors[o["as"]] if "as" in o else who
        if o.get("producer") == "unknown":
            return 987_654_321, 0
        return actor.producer_id, max(-1, actor.epoch + o.get("epoch", 0))

    def init(self, who: Actor, o: dict[str, Any]) -> Sent:
        known = self._producer(who, o) if o.get("continues") and o["v"] >= 3 else (-1, -1)
        name = None if o.get("id", "") is None else self._transaction(who, o)
        message = m.InitProducerIdRequest(name, o.get("timeout", LONG_MS), *known)
        return Sent(ApiKey.INIT_PRODUCER_ID, o["v"], message, TRANSACTIONS_TOPIC)

    def add_partitions(self, who: Actor, o: dict[str, Any]) -> Sent:
        topics = self._indexes(m.AddPartitionsToTxnTopic, o["partitions"])
        producer_id, epoch = self._producer(who, o)
        name = self._transaction(who, o)
        if o["v"] < 4:
            message = m.AddPartitionsToTxnRequest([], name, producer_id, epoch, topics)
        else:
            one = m.AddPartitionsToTxnTransaction(name, producer_id, epoch, bool(o.get("verify")), topics)
            message = m.AddPartitionsToTxnRequest([one])
        return Sent(ApiKey.ADD_PARTITIONS_TO_TXN, o["v"], message, TRANSACTIONS_TOPIC)

    def add_offsets(self, who: Actor, o: dict[str, Any]) -> Sent:
        message = m.AddOffsetsToTxnRequest(self._transaction(who, o), *self._producer(who, o), self._group(o))
        return Sent(ApiKey.ADD_OFFSETS_TO_TXN, o["v"], message, TRANSACTIONS_TOPIC)

    def end(self, who: Actor, o: dict[str, Any]) -> Sent:
        message = m.EndTxnRequest(self._transaction(who, o), *self._producer(who, o), bool(o["commits"]))
        return Sent(ApiKey.END_TXN, o["v"], message, TRANSACTIONS_TOPIC)

    def txn_commit(self, who: Actor, o: dict[str, Any]) -> Sent:
        """`of` names the member whose id and generation go with it."""
        of = self._actors.get(o.get("of", ""), Actor(""))
        partitions = [
            m.TxnOffsetCommitRequestPartition(
                self._partition(number) if topic == DATA else number,
                offset,
                o.get("leader_epoch", -1) if o["v"] >= 2 else -1,
                LONG if o.get("metadata") == "long" else o.get("metadata"),
            )
            for topic, number, offset in o["offsets"]
        ]
        topics = _topics(m.TxnOffsetCommitRequestTopic, [t for t, _, _ in o["offsets"]], partitions)
        with_member = o["v"] >= 3
        message = m.TxnOffsetCommitRequest(
            self._transaction(who, o),
            self._group(o),
            *self._producer(who, o),
            self._generation(of, o) if with_member else -1,
            self._member(of, o) if with_member else "",
            of.instance_id if with_member else None,
            topics,
        )
        return Sent(ApiKey.TXN_OFFSET_COMMIT, o["v"], message, OFFSETS_TOPIC)

    def produce(self, who: Actor, o: dict[str, Any]) -> Sent:
        number = o["partition"]
        producer_id, epoch = self._producer(who, o)
        is_transactional = o.get("transactional", True)
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [NewRecord(b"v%d" % n, b"k", now_ms) for n in range(o.get("count", 1))],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=max(0, who.sequences.get(number, 0) + o.get("sequence", 0)),
            transactional=is_transactional,
        )
        data = m.TopicProduceData(DATA, [m.PartitionProduceData(self._partition(number), batch)])
        name = self._transaction(who, o) if is_transactional else None
        return Sent(ApiKey.PRODUCE, o["v"], m.ProduceRequest(name, -1, 30_000, [data]), DATA, self._partition(number))

    def describe_transactions(self, who: Actor, o: dict[str, Any]) -> Sent:
        names = [self._place.real.get(name, name) for name in o.get("ids", ["x"])]
        return Sent(ApiKey.DESCRIBE_TRANSACTIONS, 0, m.DescribeTransactionsRequest(tuple(names)), TRANSACTIONS_TOPIC)

    def list_transactions(self, who: Actor, o: dict[str, Any]) -> Sent:
        ids = [self._actors[name].producer_id for name in o["of"]] if "of" in o else ()
        message = m.ListTransactionsRequest(tuple(o.get("states", ())), tuple(ids))
        return Sent(ApiKey.LIST_TRANSACTIONS, o["v"], message, TRANSACTIONS_TOPIC)

    def describe_producers(self, who: Actor, o: dict[str, Any]) -> Sent:
        partition = self._partition(o["partition"])
        topic = m.TopicRequest(DATA, (partition,))
        return Sent(ApiKey.DESCRIBE_PRODUCERS, 0, m.DescribeProducersRequest([topic]), DATA, partition)

    def list_offsets(self, who: Actor, o: dict[str, Any]) -> Sent:
        partition = self._partition(o["partition"])
        topic = m.ListOffsetsTopic(DATA, [m.ListOffsetsPartition(partition, -1, -1)])
        message = m.ListOffsetsRequest(-1, int(o.get("committed", 1)), [topic])
        return Sent(ApiKey.LIST_OFFSETS, o["v"], message, DATA, partition)

    def mark(self, who: Actor, o: dict[str, Any]) -> Sent:
        """A marker past the coordinator, as an operator writes one for a hanging transaction."""
        partition = self._partition(o["partition"])
        topics = [m.WritableTxnMarkerTopic(DATA, (partition,))]
        marker = m.WritableTxnMarker(*self._producer(who, o), bool(o["commits"]), topics, 0)
        return Sent(ApiKey.WRITE_TXN_MARKERS, o["v"], m.WriteTxnMarkersRequest([marker]), DATA, partition)


def _topics(make: Callable[..., Any], topics: Sequence[str], partitions: Sequence[Any]) -> list[Any]:
    by_topic: dict[str, list[Any]] = {}
    for topic, partition in zip(topics, partitions, strict=True):
        by_topic.setdefault(topic, []).append(partition)
    return [make(topic, found) for topic, found in by_topic.items()]


def _subscription(who: Actor, o: Mapping[str, Any]) -> bytes:
    """What a consumer sends: its topics, and here its name; `garbage` cannot be read as such."""
    if o.get("garbage"):
        return b"\xff"
    version = o.get("subscription", 0)
    body = m.ConsumerProtocolSubscription(tuple(o.get("topics", [DATA])), who.name.encode())
    return int(version).to_bytes(_VERSION_PREFIX, "big") + body.encode(version)


def _assignment(member_id: str, place: Place) -> bytes:
    """What a leader sends for a member; the same bytes in every run."""
    prefix = member_id[:-37] if len(member_id) > 37 else member_id
    body = m.ConsumerProtocolAssignment([m.AssignedPartitions(DATA, (0,))], b"to " + prefix.encode())
    return bytes(_VERSION_PREFIX) + body.encode(0)


_BUILD: Final[dict[str, Callable[[Requests, Actor, dict[str, Any]], Sent]]] = {
    name: getattr(Requests, name)
    for name in (
        "join", "sync", "heartbeat", "leave", "commit", "fetch", "delete_offsets", "describe", "list_groups",
        "delete_groups", "init", "add_partitions", "add_offsets", "end", "txn_commit", "produce",
        "describe_transactions", "list_transactions", "describe_producers", "list_offsets", "mark",
    )
}  # fmt: skip
VERBS: Final = frozenset(_BUILD)
