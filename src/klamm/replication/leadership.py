"""LeaderAndIsr and StopReplica requests of the controller. Source: ReplicaManager.scala (becomeLeaderOrFollower).

One request at a time: the lock keeps LeaderAndIsr, StopReplica and a failing log directory from interleaving.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
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
from klamm.runtime.time_slices import Slices
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
    """The replicas that LeaderAndIsr, StopReplica or an I/O error changed, for the coordinators of internal topics."""

    leaders: tuple[Partition, ...] = ()
    followers: tuple[Partition, ...] = ()
    deleted: tuple[TopicPartition, ...] = ()
    """Their replicas here are deleted, and with them their leader epochs."""
    offline: tuple[TopicPartition, ...] = ()
    """Their log directory failed."""


Accepted = tuple[Partition, PartitionInstruction]


@dataclass(slots=True)
class CheckedInstructions:
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
        on_leader_epochs_begun: Callable[[Iterable[Partition]], None],
        slices: Slices,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._on_change = on_change
        self._on_leader_epochs_begun = on_leader_epochs_begun
        self._slices = slices
        self.lock = asyncio.Lock()
        self.controller_epoch = 0

    def check_epochs(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """Return STALE_BROKER_EPOCH or STALE_CONTROLLER_EPOCH; else remember the controller epoch and return NONE.

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
        """Carry out a LeaderAndIsr: check, open logs, then change roles, leaders first."""
        async with self.lock:
            instructions = await self._slices.list_of(instructions_of(request, version))
            refusal = self.check_epochs(request.broker_epoch, request.controller_epoch)
            if refusal:
                stale = refusal is ErrorCode.STALE_CONTROLLER_EPOCH
                errors = {o.topic_partition: refusal for o in instructions} if stale else {}
                return answer_instructions(instructions, errors, version, refusal)
            checked = CheckedInstructions()
            if (rest := self._slices.begin(self._check_all(instructions, checked))) is not None:
                await rest
            for chunk in batched(checked.leaders, CHUNK):
                await self._become_leaders(await self._open_logs(chunk, checked.errors), checked.errors)
            for chunk in batched(checked.followers, CHUNK):
                await self._become_followers(await self._open_logs(chunk, checked.errors), checked.errors)
            self._fetchers.stop_idle()
            leaders, followers = (
                [p for p, _ in taken if p.log is not None] for taken in (checked.leaders, checked.followers)
            )
            self._on_change(LeadershipChange(tuple(leaders), tuple(followers)))
            return answer_instructions(instructions, checked.errors, version, ErrorCode.NONE)

    def _check_all(self, instructions: Iterable[PartitionInstruction], checked: CheckedInstructions) -> Iterator[None]:
        """Check the instructions; pauses after each."""
        for instruction in instructions:
            self._check_instruction(instruction, checked)
            yield

    def _check_instruction(self, instruction: PartitionInstruction, checked: CheckedInstructions) -> None:
        """Add one instruction to the leaders, the followers or the errors, in Kafka's order of checks."""
        topic_partition, state = instruction.topic_partition, instruction.state
        if self._hosted.is_offline(topic_partition):
            checked.errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            return
        partition = self._hosted.get(topic_partition) or self._hosted.create(topic_partition)
        known_id = self._known_topic_id(partition)
        if instruction.topic_id != ZERO_ID and known_id not in (None, instruction.topic_id):
            error = ErrorCode.INCONSISTENT_TOPIC_ID
            log.error(
                "LeaderAndIsr refused: the log on this broker belongs to another topic of that name",
                partition=str(topic_partition),
                topic_id_of_log=id_to_text(known_id),
                topic_id_of_request=id_to_text(instruction.topic_id),
                action=f"See klamm explain {topic_partition}.",
            )
        elif state.leader_epoch > partition.leader_epoch:
            if self._broker_id in instruction.assignment.replicas:
                (checked.leaders if state.leader == self._broker_id else checked.followers).append(
                    (partition, instruction)
                )
                return
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif state.leader_epoch < partition.leader_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            error = self._check_same_epoch(partition, instruction)
        checked.errors[topic_partition] = error

    def _known_topic_id(self, partition: Partition) -> uuid.UUID | None:
        """The topic id of the local log, None where there is no log or no id."""
        own_log = partition.log or self._logs.get(partition.topic_partition)
        return None if own_log is None else own_log.topic_id

    def _check_same_epoch(self, partition: Partition, instruction: PartitionInstruction) -> ErrorCode:
        """The error for a LeaderAndIsr whose leader epoch is already applied; only the topic id may still be set."""
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

    async def _open_logs(self, chunk: Sequence[Accepted], errors: Errors) -> list[Accepted]:
        """Open or create the log of each replica.

        A replica whose log cannot be opened keeps its old leader epoch, so that the controller can send LeaderAndIsr
        again.
        """
        without_log = [(p, o) for p, o in chunk if p.log is None]
        if without_log:
            requested = [(o.topic_partition, o.topic_id, o.is_new) for _, o in without_log]
            for (partition, instruction), result in zip(
                without_log, await self._logs.get_or_create_many(requested), strict=True
            ):
                self._set_log(partition, instruction, result, errors)
        return [(p, o) for p, o in chunk if p.log is not None]

    def _set_log(
        self,
        partition: Partition,
        instruction: PartitionInstruction,
        result: Log | OSError | KlammError,
        errors: Errors,
    ) -> None:
        """Give the partition its log, or record why it could not be opened."""
        if isinstance(result, OSError):
            self._hosted.set_offline([instruction.topic_partition])
            errors[instruction.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        elif isinstance(result, KlammError):
            log.error(
                "cannot open the log of a replica: it stays in its old leader epoch",
                partition=str(instruction.topic_partition),
                why=str(result),
                action="Repair the log directory and restart this broker.",
            )
            errors[instruction.topic_partition] = ErrorCode.NONE
        elif self._hosted.get(instruction.topic_partition) is partition:
            partition.use_log(result)

    async def _become_leaders(self, chunk: Sequence[Accepted], errors: Errors) -> None:
        """Stop fetching the partitions, then make them leaders."""
        self._fetchers.remove([o.topic_partition for _, o in chunk])  # before: no follower append may race
        await _sync_truncations([partition for partition, _ in chunk])
        for partition, instruction in chunk:
            if partition.log is None:  # its log directory failed meanwhile
                errors[instruction.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            partition.make_leader(instruction.state, instruction.assignment)
            errors[instruction.topic_partition] = ErrorCode.NONE
        self._on_leader_epochs_begun(partition for partition, _ in chunk)
        await asyncio.sleep(0)

    async def _become_followers(self, chunk: Sequence[Accepted], errors: Errors) -> None:
        """Make the partitions followers and start fetching.

        A partition whose leader is not known yet is fetched once it is. Without a leader nothing is fetched until the
        controller has elected one.
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
        """Apply a StopReplica request; the response has an error code for each partition.

        Each replica stops fetching, and is deleted where the request says so.
        """
        async with self.lock:
            refusal = self.check_epochs(request.broker_epoch, request.controller_epoch)
            if refusal:
                return StopReplicaResponse(error_code=refusal)
            errors: Errors = {}
            deleted: dict[TopicPartition, None] = {}
            for instruction in stop_instructions_of(request, version):
                error = await self._stop_replica(instruction)
                errors[instruction.topic_partition] = error
                if instruction.deletes and not error:
                    deleted[instruction.topic_partition] = None
            self._fetchers.stop_idle()
            if deleted:  # the controller forgets these replicas with the answer: no power loss may bring them back
                for topic_partition in await self._logs.sync_deletions(deleted):
                    self._hosted.set_offline([topic_partition])
                    errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
                    del deleted[topic_partition]
            self._on_change(LeadershipChange(deleted=tuple(deleted)))
            answers = [StopReplicaPartitionError(tp.topic, tp.partition, error) for tp, error in errors.items()]
            return StopReplicaResponse(partition_errors=answers)

    async def _stop_replica(self, instruction: StopInstruction) -> ErrorCode:
        """Stop fetching a partition and, where the instruction says so, delete it."""
        topic_partition = instruction.topic_partition
        if self._hosted.is_offline(topic_partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._hosted.get(topic_partition)
        if partition is not None and not _may_stop(instruction.leader_epoch, partition.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        self._fetchers.remove([topic_partition])
        if not instruction.deletes:
            if partition is not None:
                partition.check_waiting_produces()
            return ErrorCode.NONE
        self._hosted.remove(topic_partition)
        try:
            await self._logs.delete(topic_partition)
        except StorageFailed:
            self._hosted.set_offline([topic_partition])
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


def batched(items: Sequence[Accepted], count: int) -> Iterator[Sequence[Accepted]]:
    """Yield the items in order, in lists of at most `count`."""
    return (items[start : start + count] for start in range(0, len(items), count))


async def _sync_truncations(partitions: Iterable[Partition]) -> None:
    """Wait until no power loss can undo a truncation of these logs, nor the checkpoints that it lowers.

    A leader appends at once. A start after a power loss would take its records for flushed, or have them behind those
    that were removed. Apache Kafka's fetcher writes the checkpoints before its partition can become leader.
    """
    truncated = [p for p in partitions if p.log is not None and p.log.has_unsynced_truncation]
    for partition in truncated:
        if partition.log is not None:
            partition.log.sync_soon()
    for partition in truncated:
        with suppress(StorageFailed):  # reported: the partition has no log any more
            while partition.log is not None and partition.log.has_unsynced_truncation:
                await partition.log.wait_until_durable()


def _may_stop(instruction_epoch: int, known_epoch: int) -> bool:
    """Whether StopReplica applies: its leader epoch is current, missing, or Kafka's value for a topic deletion."""
    return instruction_epoch in (NO_EPOCH, EPOCH_DURING_DELETE) or instruction_epoch >= known_epoch
