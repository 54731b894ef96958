"""What the controller orders: LeaderAndIsr and StopReplica. Source: ReplicaManager.scala (becomeLeaderOrFollower).

One order at a time: the lock keeps LeaderAndIsr, StopReplica and a failing log directory from interleaving.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE, NO_EPOCH
from klamm.model.topic_ids import ZERO_ID, id_to_text
from klamm.replication.fetcher_manager import FetcherManager, Following
from klamm.replication.hosting import Hosting
from klamm.replication.orders import Errors, Order, StopOrder, answer_orders, orders_of, stop_orders_of
from klamm.replication.partition import Partition
from klamm.replication.ports import LogsPort
from klamm.wire.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

log = structlog.get_logger("replication")

CHUNK: Final = 100  # replicas between two awaits


class LeadershipChange(NamedTuple):
    """What a LeaderAndIsr or StopReplica brought about, for those who run on top of a partition (coordinators)."""

    leaders: tuple[Partition, ...] = ()
    followers: tuple[Partition, ...] = ()
    deleted: tuple[tuple[TopicPartition, int], ...] = ()
    """With the leader epoch of the order, −1 or −2 where it has none."""


Accepted = tuple[Partition, Order]


@dataclass(slots=True)
class Sorted:
    """The orders that passed all checks, and the answers for those that did not."""

    leaders: list[Accepted] = field(default_factory=list)
    followers: list[Accepted] = field(default_factory=list)
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
        if broker_epoch != NO_EPOCH and broker_epoch < self._broker_epoch():
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
                errors = {o.topic_partition: refusal for o in orders} if stale else {}
                return answer_orders(orders, errors, version, refusal)
            found = Sorted()
            for order in orders:
                self._sort(order, found)
            for chunk in batched(found.leaders, CHUNK):
                await self._lead(await self._with_logs(chunk, found.errors), found.errors)
            for chunk in batched(found.followers, CHUNK):
                await self._follow(await self._with_logs(chunk, found.errors), found.errors)
            self._fetchers.stop_idle()
            leaders, followers = (
                [p for p, _ in taken if p.log is not None] for taken in (found.leaders, found.followers)
            )
            self._on_change(LeadershipChange(tuple(leaders), tuple(followers)))
            return answer_orders(orders, found.errors, version, ErrorCode.NONE)

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
            why = "the log here is of another topic of that name"
            ids = {"here": id_to_text(known_id or ZERO_ID), "told": id_to_text(order.topic_id)}
            log.error("order refused", partition=str(topic_partition), why=why, **ids)
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

    async def _with_logs(self, chunk: Sequence[Accepted], errors: Errors) -> list[Accepted]:
        """Give every replica its log. Who gets none keeps its old epoch, so that it can be ordered again."""
        wanted = [(p, o) for p, o in chunk if p.log is None]
        if wanted:
            asked = [(o.topic_partition, o.topic_id, o.is_new) for _, o in wanted]
            for (partition, order), result in zip(wanted, await self._logs.get_or_create_many(asked), strict=True):
                self._take_log(partition, order, result, errors)
        return [(p, o) for p, o in chunk if p.log is not None]

    def _take_log(self, partition: Partition, order: Order, result: Log | OSError | KlammError, errors: Errors) -> None:
        if isinstance(result, OSError):
            self._hosting.set_offline([order.topic_partition])
            errors[order.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        elif isinstance(result, KlammError):
            log.error("no log for a replica", partition=str(order.topic_partition), why=str(result))
            errors[order.topic_partition] = ErrorCode.NONE
        elif self._hosting.get(order.topic_partition) is partition:
            partition.log = result
            result.on_start_moved = partition.on_log_start_moved

    async def _lead(self, chunk: Sequence[Accepted], errors: Errors) -> None:
        self._fetchers.remove([o.topic_partition for _, o in chunk])  # before: no follower append may race
        for partition, order in chunk:
            partition.make_leader(order.state, order.assignment)
            errors[order.topic_partition] = ErrorCode.NONE
        await asyncio.sleep(0)

    async def _follow(self, chunk: Sequence[Accepted], errors: Errors) -> None:
        """A leader that the metadata does not know yet is no obstacle: its fetcher looks for it again and again.

        Where there is none, nothing is fetched until the controller has found one.
        """
        moved: dict[TopicPartition, Following] = {}
        for partition, order in chunk:
            if partition.make_follower(order.state, order.assignment):
                moved[order.topic_partition] = Following(partition, order.state.leader, order.state.leader_epoch)
            errors[order.topic_partition] = ErrorCode.NONE
        self._fetchers.remove(moved)
        self._fetchers.add({tp: following for tp, following in moved.items() if following.leader != NO_BROKER})
        await asyncio.sleep(0)

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


def batched(items: Sequence[Accepted], count: int) -> Iterator[Sequence[Accepted]]:
    return (items[start : start + count] for start in range(0, len(items), count))


def _may_stop(ordered_epoch: int, known_epoch: int) -> bool:
    """An order without epoch comes from an old controller; one of a deleted topic stands above all epochs."""
    return ordered_epoch in (NO_EPOCH, EPOCH_DURING_DELETE) or ordered_epoch >= known_epoch
