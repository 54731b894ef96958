"""The brokers as a reader sees them: who leads what, which offsets there are; asked again until time is up."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Final, TypeVar

from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID, id_to_text
from klamm.runtime.blocking import BlockingWorld
from klamm.spark.connection import Address, BrokerConnection, BrokerLost
from klamm.spark.errors import TopicGone, Unreachable
from klamm.spark.options import ReadOptions
from klamm.wire.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 10.0
LONGEST_BACKOFF_S: Final = 1.0
MIN_ABSENCE_S: Final = 2.0
"""A topic is gone once brokers have said so for this long: a single one may be behind."""
PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Codes that another try, perhaps at another broker, may cure."""


class Setback(KlammError):
    """This try failed, another one may not; the text says why."""


class Patience:
    """How long to go on trying: waits grow between tries, and start afresh after progress."""

    def __init__(self, world: BlockingWorld, total_s: float, backoff_s: float) -> None:
        self._world = world
        self._total_s = total_s
        self._first_s = backoff_s
        self.restart()

    def restart(self) -> None:
        self._next_s = self._first_s
        self._until_s = self._world.now_s() + self._total_s

    def wait(self, what: str, cause: Exception) -> None:
        """Raises Unreachable where time is up."""
        if self._world.now_s() + self._next_s > self._until_s:
            raise Unreachable(f"{what}: no success within {self._total_s:g} s; last: {cause}") from cause
        self._world.sleep(self._next_s)
        self._next_s = min(2 * self._next_s, LONGEST_BACKOFF_S)


class ClusterView:
    """Keeps one connection per broker; a context manager that closes them.

    `topic_ids` has the ids of the topics planned, where brokers give ids: a topic that has another id now is gone.
    """

    def __init__(self, world: BlockingWorld, options: ReadOptions) -> None:
        self.world = world
        self.options = options
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._absent_since: dict[TopicPartition, float] = {}
        self._answered_by: Address | None = None
        self._behind: set[Address | None] = set()
        """Brokers that said that a topic does not exist, since one last said that it does."""
        self._connections: dict[Address, BrokerConnection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def __enter__(self) -> "ClusterView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def patience(self, total_s: float | None = None) -> Patience:
        return Patience(self.world, total_s or self.options.api_timeout_s, self.options.backoff_s)

    def retried(self, what: str, attempt: Callable[[], T]) -> T:
        """Try until it succeeds; raises Unreachable when time is up."""
        patience = self.patience()
        while True:
            try:
                return attempt()
            except (BrokerLost, Setback) as error:
                patience.wait(what, error)

    # ---- metadata

    def topics(self, names: Collection[str] | None) -> dict[str, MetadataResponseTopic]:
        """What the cluster says of the named topics, or of all; an unknown one has its error code. Names in order."""
        return self.retried("asking for metadata", lambda: self._topics(names))

    def _topics(self, names: Collection[str] | None) -> dict[str, MetadataResponseTopic]:
        wanted = None if names is None else [MetadataRequestTopic(name=n) for n in sorted(names)]
        answer = self._anyone(MetadataRequest(wanted, allow_auto_topic_creation=False))
        self._brokers.update({b.node_id: (b.host, b.port) for b in answer.brokers})
        for topic in answer.topics:
            for p in topic.partitions:
                self._leaders[TopicPartition(topic.name or "", p.partition_index)] = p.leader_id
        return {t.name or "": t for t in sorted(answer.topics, key=lambda t: t.name or "")}

    def _anyone(self, request: MetadataRequest) -> MetadataResponse:
        """The answer of the first broker that gives one: those that answered before, bootstrap servers, all others.

        A frozen broker costs a whole request time-out, so it must not be asked again and again before its neighbours.
        One that may be behind is asked after the others.
        """
        causes: list[str] = []
        known = dict.fromkeys((*self._connections, *self.options.bootstrap, *self._brokers.values()))
        if self._behind.issuperset(known):
            self._behind = {self._answered_by}
        for address in sorted(known, key=self._behind.__contains__):
            try:
                answer: MetadataResponse = self.at(address).request(request)
            except BrokerLost as error:
                self.drop(address)
                causes.append(str(error))
                continue
            if answer.brokers:
                self._answered_by = address
                return answer
            causes.append(f"broker {address[0]}:{address[1]} has no metadata yet")
        raise Setback("; ".join(causes))

    # ---- connections

    def at(self, address: Address) -> BrokerConnection:
        """Raises BrokerLost."""
        if address not in self._connections:
            options = self.options
            answer_s = options.request_timeout_s + options.fetch_wait_ms / 1000
            connect_s = min(CONNECT_TIMEOUT_S, options.request_timeout_s)
            self._connections[address] = BrokerConnection(self.world, address, options.client_id, connect_s, answer_s)
        return self._connections[address]

    def leader_of(self, partition: TopicPartition) -> BrokerConnection:
        """Raises BrokerLost, Setback where there is no leader now, TopicGone where there will be none."""
        if partition not in self._leaders:
            self._find_leader(partition)
        address = self._brokers.get(self._leaders.get(partition, -1))
        if address is None:
            self.forget_leader(partition)
            raise Setback(f"{partition} has no leader")
        return self.at(address)

    def _find_leader(self, partition: TopicPartition) -> None:
        topic = self._topics([partition.topic])[partition.topic]
        absence = _absence(topic, partition, self.topic_ids.get(partition.topic))
        if absence is None:
            self._absent_since.pop(partition, None)
            self._behind.clear()
            return
        self.forget_leader(partition)
        self._behind.add(self._answered_by)
        now = self.world.now_s()
        if now - self._absent_since.setdefault(partition, now) >= MIN_ABSENCE_S:
            raise TopicGone(partition.topic, absence)
        raise Setback(absence)

    def forget_leader(self, partition: TopicPartition) -> None:
        self._leaders.pop(partition, None)

    def drop(self, address: Address) -> None:
        """Close a connection that failed; who led through it is asked for again."""
        if connection := self._connections.pop(address, None):
            connection.close()
        gone = {node for node, at in self._brokers.items() if at == address}
        self._leaders = {p: leader for p, leader in self._leaders.items() if leader not in gone}

    # ---- offsets

    def offsets(
        self, wanted: Mapping[TopicPartition, int], read_committed: bool | None = None
    ) -> dict[TopicPartition, int]:
        """Per partition the first offset whose record is not before a time, or that of EARLIEST or LATEST.

        -1 where no record is so late. LATEST is the high watermark, or for read_committed the last stable offset.
        `read_committed` None is as the options say. Raises TopicGone.
        """
        isolation = int(self.options.read_committed if read_committed is None else read_committed)
        found: dict[TopicPartition, int] = {}
        patience = self.patience()
        while missing := {p: time for p, time in wanted.items() if p not in found}:
            causes: list[str] = []
            for connection, group in self._by_leader(missing, causes).items():
                try:
                    self._ask_offsets(connection, group, isolation, found, causes)
                except BrokerLost as error:
                    self.drop(connection.address)
                    causes.append(str(error))
            if len(found) < len(wanted):
                patience.wait("asking for offsets", Setback("; ".join(causes)))
        return dict(sorted(found.items()))

    def _by_leader(
        self, wanted: Mapping[TopicPartition, int], causes: list[str]
    ) -> dict[BrokerConnection, dict[TopicPartition, int]]:
        groups: defaultdict[BrokerConnection, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, time in wanted.items():
            try:
                groups[self.leader_of(partition)][partition] = time
            except (BrokerLost, Setback) as error:
                self.forget_leader(partition)
                causes.append(str(error))
        return groups

    def _ask_offsets(
        self,
        connection: BrokerConnection,
        wanted: Mapping[TopicPartition, int],
        isolation: int,
        found: dict[TopicPartition, int],
        causes: list[str],
    ) -> None:
        by_topic: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for (topic, number), time in wanted.items():
            by_topic[topic].append(ListOffsetsPartition(partition_index=number, timestamp=time))
        topics = [ListOffsetsTopic(name, partitions) for name, partitions in by_topic.items()]
        request = ListOffsetsRequest(isolation_level=isolation, topics=topics)
        for topic in connection.request(request).topics:
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                if p.error_code == ErrorCode.NONE:
                    found[partition] = p.offset
                else:
                    self.forget_leader(partition)
                    causes.append(passing_or_raise(partition, p.error_code))


def _absence(topic: MetadataResponseTopic, partition: TopicPartition, planned: uuid.UUID | None) -> str | None:
    """In which way the partition that was planned is not there; None where it is, or where that cannot be told."""
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {partition.topic} does not exist any more"
    if topic.error_code:
        return None
    if planned is not None and topic.topic_id not in (ZERO_ID, planned):
        return (
            f"topic {partition.topic} was deleted and created again: its id was {id_to_text(planned)}, "
            f"now it is {id_to_text(topic.topic_id)}"
        )
    if all(p.partition_index != partition.partition for p in topic.partitions):
        return f"topic {partition.topic} has no partition {partition.partition} any more"
    return None


def code_name(code: int) -> str:
    return next((known.name for known in ErrorCode if known == code), f"error code {code}")


def passing_or_raise(partition: TopicPartition, code: int) -> str:
    """What a code that may pass means, for the last word of a failure; any other ends the read."""
    name = code_name(code)
    if code not in PASSING:
        raise KlammError(f"{partition}: the broker refuses with {name}")
    return f"{partition}: {name}"
