"""The log of one partition: appends, reads, high watermark, truncation, retention. Source: UnifiedLog.scala."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self
from uuid import UUID

from klamm.config.topic_config import TopicConfig
from klamm.log.append_rules import AppendRules
from klamm.log.errors import REPAIR, AppendRefused, CorruptFile, OffsetOutOfRange, ProducersRestoring
from klamm.log.follower_append import Run, appendable_runs, base_of_new_segment
from klamm.log.leader_append import CheckedBatch, check_batch, preparation_for, prepared_batch, with_assigned_offsets
from klamm.log.leftovers import rename_cleaned_to_swap
from klamm.log.loader import CheckpointedState, LoadedLog, Loader
from klamm.log.log_reads import ReadableLog
from klamm.log.log_storage import Owner, no_listener
from klamm.log.names import PARTITION_METADATA
from klamm.log.open_files import OpenFiles
from klamm.log.partition_metadata import read_topic_id, write_topic_id
from klamm.log.preparation import Preparation, Refusal
from klamm.log.producers import BatchMark, Origin
from klamm.log.retention import RetentionLimits, SegmentFacts, expired_segment_count
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Buffer, Disk
from klamm.runtime.world import World
from klamm.wire.records import EndMarker, end_marker_of
from klamm.wire.records.batch import NO_LEADER_EPOCH, NO_TIMESTAMP

MAX_REMOVED_AT_ONCE = 100
"""Segments that retention or a truncation renames in one go: on the event loop, each takes some 0.1 ms."""
_MAX_OPEN_WHILE_LOADING = 4
_RESTORING_MESSAGE = "the log was truncated, and the state of its producers is being read again. Retry."


class AppendInfo(NamedTuple):
    """The result of an append; `log_append_time_ms` is -1 where records keep the producer's time.

    `is_duplicate`: nothing was written, the offsets are those of the first time.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    max_timestamp: int
    size: int
    is_duplicate: bool = False


class Log(ReadableLog):
    """Appends, the high watermark, truncation and retention of one log; `ReadableLog` has its reads."""

    __slots__ = ("_high_watermark", "_rules", "on_start_moved")

    def __init__(
        self,
        world: World,
        partition: TopicPartition,
        directory: str,
        config: TopicConfig,
        loaded: LoadedLog,
        topic_id: UUID | None,
        files: OpenFiles,
        owner: Owner | None = None,
    ) -> None:
        super().__init__(world, partition, directory, config, loaded, topic_id, files, owner)
        self._rules = AppendRules.of(config)
        self._high_watermark = loaded.log_start
        self.on_start_moved: Callable[[], None] = no_listener
        """Called when retention, DeleteRecords or the leader moved the log start offset."""

    @classmethod
    def open(
        cls,
        world: World,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        *,
        known: CheckpointedState | None = None,
        files: OpenFiles | None = None,
        owner: Owner | None = None,
        new_topic_id: UUID | None = None,
    ) -> Self:
        """Open the log in `directory`, or create it; it is recovered unless `known` says that it was closed cleanly.

        A directory that is created gets a file with `new_topic_id`, so that a kill leaves no records without one; the
        caller assigns it to the log, and it is synced after that. May run in any thread. Raises OSError, CorruptFile,
        CorruptRecords.
        """
        disk = world.disk
        own = OpenFiles(disk, _MAX_OPEN_WHILE_LOADING)
        loader = Loader(own, directory, config, known or CheckpointedState(), world.clock.now_ms())
        try:
            if disk.exists(directory):
                loaded = loader.load()
                topic_id = _topic_id(disk, directory, loaded.notes)
            else:
                disk.make_directories(directory)
                if new_topic_id is not None:
                    write_topic_id(disk, f"{directory}/{PARTITION_METADATA}", new_topic_id)
                loaded, topic_id = loader.begin(), None
        finally:
            own.close()
        return cls(world, partition, directory, config, loaded, topic_id, files or OpenFiles(disk), owner)

    def update_config(self, config: TopicConfig) -> None:
        """Apply a new topic config from the next append, roll and retention run on."""
        super().update_config(config)
        self._rules = AppendRules.of(config)

    # -- append --------------------------------------------------------------------------------------------------------

    def preparation(self, records: Buffer, origin: Origin = Origin.CLIENT) -> Preparation | None:
        """Return the check of this batch that runs off the event loop before the append; None if none is needed.

        Raises AppendRefused.
        """
        self._refuse_if_failed()
        return preparation_for(records, self._rules, origin, self._world.clock.now_ms())

    def append_as_leader(
        self, records: Buffer | CheckedBatch, leader_epoch: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Assign offsets to one batch and write it. Raises AppendRefused, and then nothing was written.

        An unchecked batch is first checked and prepared in the calling thread, which may take long.
        """
        self._refuse_if_failed()
        if self._producer_state.is_restoring:
            raise AppendRefused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.partition} refuses records: {_RESTORING_MESSAGE}"
            )
        now_ms = self._world.clock.now_ms()
        batch = records if isinstance(records, CheckedBatch) else check_batch(records, self._rules, origin, now_ms)
        header = batch.header
        marker: EndMarker | None = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = end_marker_of(batch.buffer, header)
                if marker is not None:
                    self.producers.check_marker(header, marker)
            elif (mark := self.producers.check(header, origin)) is not None:
                return self._duplicate_info(mark)
        return self._write_as_leader(batch, leader_epoch, now_ms)

    def prepared(self, result: bytes | Refusal) -> CheckedBatch:
        """The checked batch that `prepare` returned. Raises AppendRefused."""
        return prepared_batch(result, self._rules)

    def _duplicate_info(self, mark: BatchMark) -> AppendInfo:
        """The append result for a batch that was appended before."""
        return AppendInfo(
            mark.first_offset, mark.last_offset, mark.timestamp, self._log_start, mark.timestamp, 0, is_duplicate=True
        )

    def _write_as_leader(self, batch: CheckedBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Assign offsets to a checked batch and write it."""
        header = batch.header
        append_time = now_ms if self._rules.log_append_time else NO_TIMESTAMP
        max_timestamp = header.max_timestamp if append_time == NO_TIMESTAMP else append_time
        local = self._local
        first_offset = local.end_offset
        last_offset = first_offset + header.last_offset_delta
        size = header.size
        pieces = with_assigned_offsets(batch, first_offset, leader_epoch, append_time)
        try:
            if local.must_roll(size, last_offset, max_timestamp):
                self._roll()
            local.segments.active.append(pieces, size, first_offset, last_offset, max_timestamp)
        except OSError as error:
            self._report_failure(error)
            raise AppendRefused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write to {self.directory}: {error}. {REPAIR}"
            ) from error
        local.end_offset = last_offset + 1
        if self.epochs.latest_epoch != leader_epoch:
            self.epochs.assign(leader_epoch, first_offset)
        if header.producer_id >= 0:
            written = header._replace(base_offset=first_offset, max_timestamp=max_timestamp)
            with self._translating_io_errors():
                self._producer_state.on_batch_written(written, batch.buffer, local.segments.active)
        self.producers.end_offset = last_offset + 1
        return AppendInfo(first_offset, last_offset, append_time, self._log_start, max_timestamp, size)

    def append_as_follower(self, records: Buffer) -> AppendInfo | None:
        """Write batches exactly as the leader has them; None where there is no complete one.

        Raises UnexpectedOffset where they begin before the log's end or do not rise, CorruptRecords, StorageFailed, and
        ProducersRestoring soon after a truncation: then nothing was written. Batches before a bad one are written all
        the same.
        """
        self._check_usable()
        if self._producer_state.is_restoring:
            raise ProducersRestoring(f"{self.partition} refuses records: {_RESTORING_MESSAGE}")
        first_offset: int | None = None
        size = 0
        for run in appendable_runs(records, str(self.partition), self.end_offset, self._config.segment_bytes):
            self._write_run(records, run)
            if first_offset is None:
                first_offset = run[0].base_offset
            size += sum(header.size for header in run)
        if first_offset is None:
            return None
        newest = self._local.segments.active.largest.timestamp
        return AppendInfo(first_offset, self.end_offset - 1, NO_TIMESTAMP, self._log_start, newest, size)

    def _write_run(self, buffer: Buffer, run: Run) -> None:
        """Write consecutive batches that fit in one segment."""
        local = self._local
        first, last = run[0], run[-1]
        size = last.position + last.size - first.position
        max_timestamp = max(header.max_timestamp for header in run)
        with self._translating_io_errors():
            if local.must_roll(size, last.last_offset, max_timestamp):
                self._roll(base_of_new_segment(run, self.end_offset))
            local.segments.active.append_run(
                memoryview(buffer)[first.position : first.position + size],
                [(h.size, h.base_offset, h.last_offset, h.max_timestamp) for h in run],
            )
        local.end_offset = last.next_offset
        for header in run:
            if header.partition_leader_epoch not in (NO_LEADER_EPOCH, self.epochs.latest_epoch):
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.has_producer:
                with self._translating_io_errors():
                    self._producer_state.on_batch_written(header, buffer, local.segments.active)
        self.producers.end_offset = last.next_offset

    # -- how far it is replicated --------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The offset below which all records are replicated to the ISR."""
        return self._high_watermark

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, bounded by log start and end; returns the value set."""
        self._high_watermark = max(self._log_start, min(offset, self._local.end_offset))
        if self.producers.has_transactions:
            self.producers.on_high_watermark(self._high_watermark)
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the oldest undecided transaction below it."""
        if self._producer_state.is_restoring:
            return self._log_start
        if not self.producers.has_transactions:
            return self._high_watermark
        self.producers.on_high_watermark(self._high_watermark)  # a replay finds transactions that ended long ago
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self._high_watermark
        return max(self._log_start, min(unstable, self._high_watermark))

    def advance_start_offset(self, offset: int) -> bool:
        """Advance the log start, so that records before `offset` count as deleted; returns whether it moved.

        Raises OffsetOutOfRange where `offset` lies beyond the high watermark.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(self.partition, offset, self._log_start, self._high_watermark)
        if offset <= self._log_start:
            return False
        self._set_log_start(offset)
        return True

    # -- leader epochs -------------------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int | None:
        """The leader epoch of the log end; None where none is known."""
        return self.epochs.latest_epoch

    # -- truncate ------------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove the records from `offset` on, with the batch that contains it; returns whether there were any.

        Raises StorageFailed, and CorruptRecords where the batch cannot be found in a damaged segment.
        """
        self._check_usable()
        if offset >= self.end_offset:
            self.epochs.truncate_from_end(offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self._translating_io_errors():
            self.cleaning.on_truncated(offset)
            self._delete_later(self._local.truncate_to(offset))
            end = self.end_offset
            self._after_truncation(end)
            self._producer_state.truncate_to(end, self.segments, self._log_start, self._config, self._report_failure)
        return True

    def truncation_steps(self, offset: int) -> Sequence[int]:
        """The offsets to truncate to before a truncation to `offset`, each of which removes at most so many segments.

        Others run in between where the caller lets them: after each step the log is truncated, and a crash leaves no
        gap.
        """
        above = [segment.base_offset for segment in self.segments if segment.base_offset > offset]
        return above[-MAX_REMOVED_AT_ONCE::-MAX_REMOVED_AT_ONCE] if len(above) > MAX_REMOVED_AT_ONCE else ()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next one gets `offset`. Raises StorageFailed."""
        self._check_usable()
        with self._translating_io_errors():
            self.cleaning.on_truncated(self.segments.first.base_offset)
            self._delete_later(self._local.truncate_fully(offset))
            self._log_start = max(self._log_start, offset)  # where that is lower, what follows lowers it
            self.epochs.clear()
            self._producer_state.start_at(offset)
            self.possible_loss = None
            self._after_truncation(offset)

    def _after_truncation(self, offset: int) -> None:
        """Lower log start, high watermark, epochs and recovery point to `offset`."""
        self.cleaning.on_truncated(offset)
        is_below_start = offset < self._log_start
        if self.possible_loss is not None and offset <= self.possible_loss:
            self.possible_loss = None
        self._log_start = min(self._log_start, offset)
        self._high_watermark = max(self._log_start, min(self._high_watermark, offset))
        self.epochs.truncate_from_end(offset)
        if self._durability.on_truncated(offset) or is_below_start:
            self.report_lowered_checkpoints()

    # -- retention -----------------------------------------------------------------------------------------------------

    def delete_old_segments(self) -> int:
        """Remove the oldest segments that retention expired, at most `MAX_REMOVED_AT_ONCE`; returns how many.

        Raises StorageFailed.
        """
        self._check_usable()
        return self._delete_expired(
            RetentionLimits.of(self._config, self._log_start, self._high_watermark, self._world.clock.now_ms())
        )

    def delete_segments_before_start(self) -> int:
        """Remove the oldest segments before the log start, as `delete_old_segments` does. Raises StorageFailed."""
        self._check_usable()
        return self._delete_expired(RetentionLimits.of_start(self._log_start, self._high_watermark))

    def _delete_expired(self, limits: RetentionLimits) -> int:
        """Remove the oldest segments that exceed these limits, and return how many; a crash leaves no gap.

        Raises StorageFailed.
        """
        if self._producer_state.is_restoring or self.cleaning.is_running:
            return 0  # the next run does it
        with self._translating_io_errors():
            facts = [
                SegmentFacts(s.base_offset, s.size, s.largest_timestamp().timestamp if s.size else -1)
                for s in self.segments
            ]
        count = min(expired_segment_count(facts, self.end_offset, limits), MAX_REMOVED_AT_ONCE)
        if not count:
            return 0
        with self._translating_io_errors():
            if count == len(self.segments):
                self._roll()
            self._delete_later(self._local.remove(list(self.segments)[:count]))
        if self.segments.first.base_offset > self._log_start:
            self._set_log_start(self.segments.first.base_offset)
        return count

    # -- compaction ----------------------------------------------------------------------------------------------------

    async def replace_segments(self, base_offsets: Sequence[int], size: int) -> bool:
        """Replace these adjacent segments by the synced `.cleaned` files of the first one.

        `size` is that of the new `.log` file. False where the cleaning was cancelled meanwhile. Raises StorageFailed.
        """
        self._check_usable()
        old = [segment for segment in self.segments if segment.base_offset in base_offsets]
        if self.cleaning.is_void or [segment.base_offset for segment in old] != list(base_offsets):
            return False
        disk = self._world.disk
        with self._translating_io_errors():
            swaps = rename_cleaned_to_swap(disk, old[0])
            self.cleaning.on_swap_began(swaps)
            await disk.in_thread(disk.sync_directory, self.directory)
        self._check_usable()
        if self.cleaning.is_void:
            return False
        with self._translating_io_errors():
            renamed = self._local.replace(old, size)
            self.cleaning.on_swap_ended()
            await disk.in_thread(disk.sync_directory, self.directory)
            self._delete_later(renamed)
        return True

    def _set_log_start(self, offset: int) -> None:
        """Set the log start offset and drop leader epochs before it."""
        self._log_start = offset
        if self.possible_loss is not None and self.possible_loss < offset:
            self.possible_loss = None
        self.epochs.truncate_from_start(offset)
        self.on_start_moved()

    def __repr__(self) -> str:
        return f"Log({self.partition}, {self._log_start} to {self.end_offset})"


def _topic_id(disk: Disk, directory: str, notes: list[str]) -> UUID | None:
    """The topic id in partition.metadata; None if it is missing or damaged.

    The controller sends the id with LeaderAndIsr.
    """
    try:
        return read_topic_id(disk, f"{directory}/{PARTITION_METADATA}")
    except CorruptFile as error:
        notes.append(f"{error}: the controller sends the topic id again. Nothing to do.")
        return None
