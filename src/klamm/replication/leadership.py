"""LeaderAndIsr and StopReplica requests of the controller. Source: ReplicaManager.scala (becomeLeaderOrFollower).

One request at a time: the lock keeps LeaderAndIsr, StopReplica and a failing log directory from interleaving.
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
from klamm.replication.fetcher_manager import FetcherManager, InitialFetchState
from klamm.replication.hosted_partitions import HostedPartitions
from klamm.replication.instructions import (
    Errors,
    PartitionInstruction,
    StopInstruction,
    answer_instructions,
    instructions_of,
    stop_instructions_of,
)
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
    """With the leader epoch of the instruction, −1 or −2 where it has none."""


Accepted = tuple[Partition, PartitionInstruction]


@dataclass(slots=True)
class Sorted:
    """The instructions that passed all checks, and the errors of those that did not."""

    leaders: list[Accepted] = field(default_factory=list)
    followers: list[Accepted] = field(default_factory=list)
    errors: Errors = field(default_factory=dict)


class Leadership:
    """Applies the controller's instructions to the hosted partitions."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        hosted: HostedPartitions,
        logs: LogsPort,
        fetchers: FetcherManager,
        on_change: Callable[[LeadershipChange], None],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._on_change = on_change
        self.lock = asyncio.Lock()
        self.controller_epoch = 0

    def refuse(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """Why an instruction is out of date, else NONE, and its controller epoch is remembered.

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
            instructions = list(instructions_of(request, version))
            refusal = self.refuse(request.broker_epoch, request.controller_epoch)
            if refusal:
                stale = refusal is ErrorCode.STALE_CONTROLLER_EPOCH
                errors = {o.topic_partition: refusal for o in instructions} if stale else {}
                return answer_instructions(instructions, errors, version, refusal)
            found = Sorted()
            for instruction in instructions:
                self._sort(instruction, found)
            for chunk in batched(found.leaders, CHUNK):
                await self._lead(await self._with_logs(chunk, found.errors), found.errors)
            for chunk in batched(found.followers, CHUNK):
                await self._follow(await self._with_logs(chunk, found.errors), found.errors)
            self._fetchers.stop_idle()
            leaders, followers = (
                [p for p, _ in taken if p.log is not None] for taken in (found.leaders, found.followers)
            )
            self._on_change(LeadershipChange(tuple(leaders), tuple(followers)))
            return answer_instructions(instructions, found.errors, version, ErrorCode.NONE)

    def _sort(self, instruction: PartitionInstruction, found: Sorted) -> None:
        """Check one instruction, in Kafka's order of checks."""
        topic_partition, state = instruction.topic_partition, instruction.state
        if self._hosted.is_offline(topic_partition):
            found.errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            return
        partition = self._hosted.get(topic_partition) or self._hosted.create(topic_partition)
        known_id = self._known_id(partition)
        if instruction.topic_id != ZERO_ID and known_id not in (None, instruction.topic_id):
            error = ErrorCode.INCONSISTENT_TOPIC_ID
            why = "the log here is of another topic of that name"
            ids = {"here": id_to_text(known_id or ZERO_ID), "told": id_to_text(instruction.topic_id)}
            log.error("LeaderAndIsr refused", partition=str(topic_partition), why=why, **ids)
        elif state.leader_epoch > partition.leader_epoch:
            if self._broker_id in instruction.assignment.replicas:
                (found.leaders if state.leader == self._broker_id else found.followers).append((partition, instruction))
                return
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif state.leader_epoch < partition.leader_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            error = self._same_epoch(partition, instruction)
        found.errors[topic_partition] = error

    def _known_id(self, partition: Partition) -> uuid.UUID | None:
        own_log = partition.log or self._logs.get(partition.topic_partition)
        return None if own_log is None else own_log.topic_id

    def _same_epoch(self, partition: Partition, instruction: PartitionInstruction) -> ErrorCode:
        """An epoch we know already changes nothing but the topic id."""
        own_log = partition.log
        if own_log is None:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if instruction.topic_id != ZERO_ID and own_log.topic_id is None:
            own_log.assign_topic_id(instruction.topic_id)
            self._fetchers.set_topic_id(partition.topic_partition, instruction.topic_id)
            return ErrorCode.NONE
        if instruction.topic_id == ZERO_ID and own_log.topic_id is not None and not partition.is_leader:
            self._fetchers.set_topic_id(partition.topic_partition, ZERO_ID)
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    async def _with_logs(self, chunk: Sequence[Accepted], errors: Errors) -> list[Accepted]:
        """Give every replica its log. Who gets none keeps its old epoch, so that it can be ordered again."""
        wanted = [(p, o) for p, o in chunk if p.log is None]
        if wanted:
            asked = [(o.topic_partition, o.topic_id, o.is_new) for _, o in wanted]
            for (partition, instruction), result in zip(
                wanted, await self._logs.get_or_create_many(asked), strict=True
            ):
                self._take_log(partition, instruction, result, errors)
        return [(p, o) for p, o in chunk if p.log is not None]

    def _take_log(
        self,
        partition: Partition,
        instruction: PartitionInstruction,
        result: Log | OSError | KlammError,
        errors: Errors,
    ) -> None:
        if isinstance(result, OSError):
            self._hosted.set_offline([instruction.topic_partition])
            errors[instruction.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        elif isinstance(result, KlammError):
            log.error("no log for a replica", partition=str(instruction.topic_partition), why=str(result))
            errors[instruction.topic_partition] = ErrorCode.NONE
        elif self._hosted.get(instruction.topic_partition) is partition:
            partition.log = result
            result.on_start_moved = partition.on_log_start_moved

    async def _lead(self, chunk: Sequence[Accepted], errors: Errors) -> None:
        self._fetchers.remove([o.topic_partition for _, o in chunk])  # before: no follower append may race
        for partition, instruction in chunk:
            partition.make_leader(instruction.state, instruction.assignment)
            errors[instruction.topic_partition] = ErrorCode.NONE
        await asyncio.sleep(0)

    async def _follow(self, chunk: Sequence[Accepted], errors: Errors) -> None:
        """A leader that the metadata does not know yet is no obstacle: its fetcher looks for it again and again.

        Where there is none, nothing is fetched until the controller has found one.
        """
        moved: dict[TopicPartition, InitialFetchState] = {}
        for partition, instruction in chunk:
            if partition.make_follower(instruction.state, instruction.assignment):
                moved[instruction.topic_partition] = InitialFetchState(
                    partition, instruction.state.leader, instruction.state.leader_epoch
                )
            errors[instruction.topic_partition] = ErrorCode.NONE
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
            for instruction in stop_instructions_of(request, version):
                error = await self._stop(instruction)
                errors[instruction.topic_partition] = error
                if instruction.deletes and not error:
                    deleted.append((instruction.topic_partition, instruction.leader_epoch))
            self._fetchers.stop_idle()
            self._on_change(LeadershipChange(deleted=tuple(deleted)))
            answers = [StopReplicaPartitionError(tp.topic, tp.partition, error) for tp, error in errors.items()]
            return StopReplicaResponse(partition_errors=answers)

    async def _stop(self, instruction: StopInstruction) -> ErrorCode:
        topic_partition = instruction.topic_partition
        if self._hosted.is_offline(topic_partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._hosted.get(topic_partition)
        if partition is not None and not _may_stop(instruction.leader_epoch, partition.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        self._fetchers.remove([topic_partition])
        if not instruction.deletes:
            if partition is not None:
                partition.check_waiting()
            return ErrorCode.NONE
        self._hosted.remove(topic_partition)
        try:
            await self._logs.delete(topic_partition)
        except StorageFailed:
            self._hosted.set_offline([topic_partition])
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


def batched(items: Sequence[Accepted], count: int) -> Iterator[Sequence[Accepted]]:
    return (items[start : start + count] for start in range(0, len(items), count))


def _may_stop(ordered_epoch: int, known_epoch: int) -> bool:
    """An instruction without epoch comes from an old controller; that of a deleted topic is above all epochs."""
    return ordered_epoch in (NO_EPOCH, EPOCH_DURING_DELETE) or ordered_epoch >= known_epoch
