"""What the controller orders: LeaderAndIsr and StopReplica. Source: ReplicaManager.scala (becomeLeaderOrFollower).

One order at a time: the lock keeps LeaderAndIsr, StopReplica and a failing log directory from interleaving.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from klamm.log.errors import StorageFailed
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE, NO_EPOCH, LeaderAndIsr
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetcher_manager import FetcherManager, Following
from klamm.replication.hosting import Hosting
from klamm.replication.partition import Partition
from klamm.replication.ports import LogsPort
from klamm.wire.messages import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

log = structlog.get_logger()

FIRST_LEADER_AND_ISR_BY_TOPIC: Final = 2
FIRST_LEADER_AND_ISR_BY_ID: Final = 5
FIRST_STOP_REPLICA_BY_TOPIC: Final = 1
FIRST_STOP_REPLICA_BY_STATE: Final = 3

Errors = dict[TopicPartition, ErrorCode]


class LeadershipChange(NamedTuple):
    """What a LeaderAndIsr or StopReplica brought about, for those who run on top of a partition (coordinators)."""

    leaders: tuple[Partition, ...] = ()
    followers: tuple[Partition, ...] = ()
    deleted: tuple[tuple[TopicPartition, int], ...] = ()
    """With the leader epoch of the order, −1 or −2 where it has none."""


class Order(NamedTuple):
    """What LeaderAndIsr says of one partition."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    state: LeaderAndIsr
    assignment: ReplicaAssignment
    is_new: bool


class StopOrder(NamedTuple):
    topic_partition: TopicPartition
    leader_epoch: int
    deletes: bool


@dataclass(slots=True)
class Sorted:
    """The orders that passed all checks, and the answers for those that did not."""

    leaders: list[tuple[Partition, Order]] = field(default_factory=list)
    followers: list[tuple[Partition, Order]] = field(default_factory=list)
    errors: Errors = field(default_factory=dict)


class Leadership:
    """Carries out the controller's orders on the hosted partitions."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        hosting: Hosting,
        logs: LogsPort,
        fetchers: FetcherManager,
        on_change: Callable[[LeadershipChange], None],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._hosting = hosting
        self._logs = logs
        self._fetchers = fetchers
        self._on_change = on_change
        self.lock = asyncio.Lock()
        self.controller_epoch = 0

    def refuse(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """Why an order is out of date, else NONE, and its controller epoch is remembered.

        A broker epoch newer than ours is accepted: the controller saw our new registration before we did.
        """
        if broker_epoch not in (NO_EPOCH,) and broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    # ---- LeaderAndIsr

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        async with self.lock:
            orders = list(orders_of(request, version))
            refusal = self.refuse(request.broker_epoch, request.controller_epoch)
            if refusal:
                stale = refusal is ErrorCode.STALE_CONTROLLER_EPOCH
                return _answer(orders, {o.topic_partition: refusal for o in orders} if stale else {}, version, refusal)
            found = Sorted()
            for order in orders:
                self._sort(order, found)
            await self._create_logs(found)
            self._lead(found)
            self._follow(found)
            self._fetchers.stop_idle()
            self._on_change(LeadershipChange(tuple(p for p, _ in found.leaders), tuple(p for p, _ in found.followers)))
            return _answer(orders, found.errors, version, ErrorCode.NONE)

    def _sort(self, order: Order, found: Sorted) -> None:
        """Check one order, in Kafka's sequence of checks."""
        topic_partition, state = order.topic_partition, order.state
        if self._hosting.is_offline(topic_partition):
            found.errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            return
        partition = self._hosting.get(topic_partition) or self._hosting.create(topic_partition)
        known_id = self._known_id(partition)
        if order.topic_id != ZERO_ID and known_id not in (None, order.topic_id):
            error = ErrorCode.INCONSISTENT_TOPIC_ID
        elif state.leader_epoch > partition.leader_epoch:
            if self._broker_id in order.assignment.replicas:
                (found.leaders if state.leader == self._broker_id else found.followers).append((partition, order))
                return
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif state.leader_epoch < partition.leader_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            error = self._same_epoch(partition, order)
        found.errors[topic_partition] = error

    def _known_id(self, partition: Partition) -> uuid.UUID | None:
        own_log = partition.log or self._logs.get(partition.topic_partition)
        return None if own_log is None else own_log.topic_id

    def _same_epoch(self, partition: Partition, order: Order) -> ErrorCode:
        """An epoch we know already changes nothing but the topic id."""
        own_log = partition.log
        if own_log is None:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if order.topic_id != ZERO_ID and own_log.topic_id is None:
            own_log.assign_topic_id(order.topic_id)
            self._fetchers.set_topic_id(partition.topic_partition, order.topic_id)
            return ErrorCode.NONE
        if order.topic_id == ZERO_ID and own_log.topic_id is not None and not partition.is_leader:
            self._fetchers.set_topic_id(partition.topic_partition, ZERO_ID)
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    async def _create_logs(self, found: Sorted) -> None:
        """Give every accepted replica its log. Who gets none keeps its old epoch, so that it can be ordered again."""
        wanted = [(p, o) for p, o in (*found.leaders, *found.followers) if p.log is None]
        if not wanted:
            return
        results = await self._logs.get_or_create_many([(o.topic_partition, o.topic_id, o.is_new) for _, o in wanted])
        for (partition, order), result in zip(wanted, results, strict=True):
            if isinstance(result, (OSError, StorageFailed)):
                log.error("no log for a replica", partition=str(order.topic_partition), why=str(result))
                self._hosting.set_offline([order.topic_partition])
                found.errors[order.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif isinstance(result, KlammError):
                log.error("no log for a replica", partition=str(order.topic_partition), why=str(result))
            elif self._hosting.get(order.topic_partition) is partition:
                partition.log = result
        found.leaders = [(p, o) for p, o in found.leaders if p.log is not None]
        found.followers = [(p, o) for p, o in found.followers if p.log is not None]

    def _lead(self, found: Sorted) -> None:
        self._fetchers.remove([o.topic_partition for _, o in found.leaders])  # before: no follower append may race
        for partition, order in found.leaders:
            found.errors[order.topic_partition] = ErrorCode.NONE
            partition.make_leader(order.state, order.assignment)

    def _follow(self, found: Sorted) -> None:
        """A leader that the metadata does not know yet is no obstacle: its fetcher looks for it again and again."""
        moved: dict[TopicPartition, Following] = {}
        for partition, order in found.followers:
            found.errors[order.topic_partition] = ErrorCode.NONE
            if partition.make_follower(order.state, order.assignment):
                moved[order.topic_partition] = Following(partition, order.state.leader, order.state.leader_epoch)
        self._fetchers.remove(moved)
        self._fetchers.add(moved)

    # ---- StopReplica

    async def stop_replicas(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        async with self.lock:
            refusal = self.refuse(request.broker_epoch, request.controller_epoch)
            if refusal:
                return StopReplicaResponse(error_code=refusal)
            errors: Errors = {}
            deleted: list[tuple[TopicPartition, int]] = []
            for order in stop_orders_of(request, version):
                error = await self._stop(order)
                errors[order.topic_partition] = error
                if order.deletes and not error:
                    deleted.append((order.topic_partition, order.leader_epoch))
            self._fetchers.stop_idle()
            self._on_change(LeadershipChange(deleted=tuple(deleted)))
            answers = [StopReplicaPartitionError(tp.topic, tp.partition, error) for tp, error in errors.items()]
            return StopReplicaResponse(partition_errors=answers)

    async def _stop(self, order: StopOrder) -> ErrorCode:
        topic_partition = order.topic_partition
        if self._hosting.is_offline(topic_partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._hosting.get(topic_partition)
        if partition is not None and not _may_stop(order.leader_epoch, partition.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        self._fetchers.remove([topic_partition])
        if not order.deletes:
            if partition is not None:
                partition.check_waiting()
            return ErrorCode.NONE
        self._hosting.remove(topic_partition)
        try:
            await self._logs.delete(topic_partition)
        except StorageFailed:
            self._hosting.set_offline([topic_partition])
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


def _may_stop(ordered_epoch: int, known_epoch: int) -> bool:
    """An order without epoch comes from an old controller; one of a deleted topic stands above all epochs."""
    return ordered_epoch in (NO_EPOCH, EPOCH_DURING_DELETE) or ordered_epoch >= known_epoch


def orders_of(request: LeaderAndIsrRequest, version: int) -> Iterator[Order]:
    if version < FIRST_LEADER_AND_ISR_BY_TOPIC:
        for state in request.ungrouped_partition_states:
            yield _order(state.topic_name, ZERO_ID, state, request.controller_epoch)
        return
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield _order(topic.topic_name, topic.topic_id, state, request.controller_epoch)


def _order(topic: str, topic_id: uuid.UUID, said: LeaderAndIsrPartitionState, controller_epoch: int) -> Order:
    state = LeaderAndIsr(
        BrokerId(said.leader), said.leader_epoch, _ids(said.isr), said.controller_epoch, said.partition_epoch
    )
    assignment = ReplicaAssignment(_ids(said.replicas), _ids(said.adding_replicas), _ids(said.removing_replicas))
    return Order(TopicPartition(topic, said.partition_index), topic_id, state, assignment, said.is_new)


def _ids(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(n) for n in numbers)


def stop_orders_of(request: StopReplicaRequest, version: int) -> Iterator[StopOrder]:
    deletes = request.delete_partitions
    if version < FIRST_STOP_REPLICA_BY_TOPIC:
        for old in request.ungrouped_partitions:
            yield StopOrder(TopicPartition(old.topic_name, old.partition_index), NO_EPOCH, deletes)
    elif version < FIRST_STOP_REPLICA_BY_STATE:
        for topic in request.topics:
            for number in topic.partition_indexes:
                yield StopOrder(TopicPartition(topic.name, number), NO_EPOCH, deletes)
    else:
        for states in request.topic_states:
            for state in states.partition_states:
                topic_partition = TopicPartition(states.topic_name, state.partition_index)
                yield StopOrder(topic_partition, state.leader_epoch, state.delete_partition)


def _answer(orders: list[Order], errors: Errors, version: int, error: ErrorCode) -> LeaderAndIsrResponse:
    """By topic id from version 5 on; the zero id stands for a topic without one."""
    if version < FIRST_LEADER_AND_ISR_BY_ID:
        answers = [LeaderAndIsrPartitionError(tp.topic, tp.partition, e) for tp, e in errors.items()]
        return LeaderAndIsrResponse(error_code=error, partition_errors=answers)
    ids = {o.topic_partition.topic: o.topic_id for o in orders}
    topics = {topic: LeaderAndIsrTopicError(topic_id, []) for topic, topic_id in ids.items()}
    for topic_partition, found in errors.items():
        answer = LeaderAndIsrPartitionError(partition_index=topic_partition.partition, error_code=found)
        topics[topic_partition.topic].partition_errors.append(answer)
    return LeaderAndIsrResponse(error_code=error, topics=list(topics.values()))
