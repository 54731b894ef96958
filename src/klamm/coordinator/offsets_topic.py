"""Writing groups and offsets into `__consumer_offsets`. Source: GroupMetadataManager.scala (3.9)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from klamm.coordinator.committed_offsets import Offsets
from klamm.coordinator.group import Group
from klamm.coordinator.records import group_key, group_value_in_steps, offset_key, offset_value
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.topic_partitions import Appended, CoordinatorLog
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.clock import Clock
from klamm.runtime.eager import Rest, first_step
from klamm.runtime.time_slices import PIECE, Slices
from klamm.wire.records import Codec, NewRecord, build_batch

log = structlog.get_logger("groups")

Assignments = Mapping[str, bytes]
"""By member id."""

TOMBSTONES_IN_BATCH: Final = 1_000
MIN_OFFSET_BYTES: Final = 30
"""Of the key and the value of a committed offset, without the group id, in any version."""
_NO_ACKS: Final = 0

_NOT_AVAILABLE: Final = dict.fromkeys(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_MOVED: Final = dict.fromkeys(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR
)
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

GROUP_ERRORS: Final = (
    _NOT_AVAILABLE
    | _MOVED
    | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
    | dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
)
"""What members are told where their group could not be stored."""
OFFSET_ERRORS: Final = (
    _NOT_AVAILABLE
    | _MOVED
    | dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    | {ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""What a commit is answered where it could not be stored, or its transaction not be verified."""


class OffsetsTopic:
    def __init__(self, offsets_log: CoordinatorLog, settings: GroupSettings, clock: Clock, slices: Slices) -> None:
        self._slices = slices
        self._log = offsets_log
        self._settings = settings
        self._clock = clock

    async def store_group(
        self, group: Group, partition: int, assignments: Assignments | None, is_current: Callable[[], bool]
    ) -> ErrorCode:
        """Store the group as it is now, with these assignments or its members' own; returns the error for its members.

        The record of a large group is made in time slices. Where `is_current` is false after one of them, nothing is
        stored, and the result is REBALANCE_IN_PROGRESS: it would follow the record of a later generation.
        """
        generation = group.generation
        async with group.storing:
            value = await self._group_value(group, partition, assignments, is_current)
        if isinstance(value, ErrorCode):
            error = value
        else:
            record = NewRecord(value, group_key(group.group_id), self._clock.now_ms())
            error = (await self._append(partition, [record], self._settings.offsets_commit_required_acks)).error
        if error and error is not ErrorCode.REBALANCE_IN_PROGRESS:
            log.warning(
                "cannot write a group to __consumer_offsets; its members get the error and join again",
                group=group.group_id,
                generation=generation,
                reason=error.name,
            )
        return GROUP_ERRORS.get(error, error)

    async def _group_value(
        self, group: Group, partition: int, assignments: Assignments | None, is_current: Callable[[], bool]
    ) -> bytes | ErrorCode:
        """Return the value of the group's record, made in time slices, or the error if it cannot be stored."""
        if not is_current():
            return ErrorCode.REBALANCE_IN_PROGRESS
        if assignments is None:
            assignments = {member.member_id: member.assignment for member in group.members.values()}
        if self._is_too_large(partition, _group_bytes(group, assignments)):
            return ErrorCode.MESSAGE_TOO_LARGE
        steps = group_value_in_steps(group, assignments, self._settings.group_value_version)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                value: bytes = done.value
                return value
            await self._slices.checkpoint(PIECE)
            if not is_current():
                return ErrorCode.REBALANCE_IN_PROGRESS

    async def store_offsets(
        self, group_id: str, partition: int, offsets: Offsets, producer: ProducerIdAndEpoch | None = None
    ) -> Appended:
        """Store the offsets in one batch of `__consumer_offsets`; returns the error for the commit.

        With `producer`, they belong to its open transaction.
        """
        now_ms, version = self._clock.now_ms(), self._settings.offset_value_version
        records = [
            NewRecord(offset_value(offset, version), offset_key(group_id, topic_partition), now_ms)
            for topic_partition, offset in offsets.items()
        ]
        acks = self._settings.offsets_commit_required_acks
        if self._is_too_large(partition, sum(len(record.value or b"") for record in records)):
            appended = Appended(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            appended = await self._append(partition, records, acks, producer)
        return appended._replace(error=OFFSET_ERRORS.get(appended.error, appended.error))

    def has_too_many(self, group_id: str, partition: int, offsets: int) -> bool:
        """Whether so many offsets of the group make a batch that would be refused, whatever the offsets are."""
        return self._is_too_large(partition, offsets * (MIN_OFFSET_BYTES + len(group_id)))

    async def store_removal(
        self, group_id: str, partition: int, removed: Sequence[TopicPartition], *, with_group: bool
    ) -> bool:
        """Write tombstones, without waiting for the replicas; False where they could not be appended.

        Offsets that are left in the log for that reason are removed again after the next load.
        """
        now_ms = self._clock.now_ms()
        records = [NewRecord(None, offset_key(group_id, tp), now_ms) for tp in removed]
        if with_group:
            records.append(NewRecord(None, group_key(group_id), now_ms))
        # all at once: an offset that is committed from now on must not come before the tombstone of an earlier one
        begun = [
            first_step(self._append(partition, records[start : start + TOMBSTONES_IN_BATCH], _NO_ACKS))
            for start in range(0, len(records), TOMBSTONES_IN_BATCH)
        ]
        appended = [await step if isinstance(step, Rest) else step for step in begun]
        error = next((error for error, _ in appended if error), ErrorCode.NONE)
        if error:
            log.warning(
                "cannot write tombstones of removed offsets to __consumer_offsets; the next check tries again",
                group=group_id,
                reason=error.name,
            )
        return not error

    async def confirm_leadership(self, partition: int) -> bool:
        """Whether it is certain that no other broker had become leader of the partition when this was called."""
        return await self._log.confirm_leadership(partition)

    def _is_too_large(self, partition: int, size: int) -> bool:
        """Whether a batch of records with this many bytes would be refused, so that it need not be built.

        A compressed batch may be smaller than its records, so it is built first.
        """
        limit = self._log.max_batch_bytes(partition)
        return self._settings.offsets_topic_codec is Codec.NONE and 0 < limit < size

    async def _append(
        self, partition: int, records: Sequence[NewRecord], acks: int, producer: ProducerIdAndEpoch | None = None
    ) -> Appended:
        """Append the records as one batch to partition `partition` of `__consumer_offsets`."""
        codec = self._settings.offsets_topic_codec
        if producer is None:
            batch = build_batch(records, codec)
        else:
            producer_id, epoch = producer
            batch = build_batch(
                records, codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
            )
        return await self._log.append(partition, batch, acks, self._settings.offsets_commit_timeout_ms)


def _group_bytes(group: Group, assignments: Assignments) -> int:
    """The bytes of all members' metadata and assignments, which are most of a group's record."""
    metadata = (
        0 if (name := group.protocol_name) is None else sum(len(m.metadata(name)) for m in group.members.values())
    )
    return metadata + sum(map(len, assignments.values()))
