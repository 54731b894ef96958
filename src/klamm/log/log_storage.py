"""A log on its device: segments and small files, flushes, the clean shutdown, failures. Source: UnifiedLog.scala."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol
from uuid import UUID

import structlog

from klamm.config.topic_config import TopicConfig
from klamm.log.cleaning_state import CleaningState
from klamm.log.epochs import LeaderEpochs
from klamm.log.errors import REPAIR, AppendRefused, StorageFailed
from klamm.log.flushing import Durability, FlushJob, sync_files
from klamm.log.leftovers import remove_cleaned_files
from klamm.log.loader import LoadedLog
from klamm.log.local_log import LocalLog
from klamm.log.open_files import OpenFiles
from klamm.log.partition_files import PartitionFiles
from klamm.log.producer_state import ProducerState
from klamm.log.producers import Producers
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.small_files import Replacement, replace_files
from klamm.runtime.world import World

logger = structlog.get_logger("logs")


class Owner(Protocol):
    """Callbacks of a log: work that may wait for the device, and failures."""

    def on_small_files_changed(self, log: "LogStorage") -> None:
        """Called when leader epochs or topic id changed: write `log.changed_small_files()` soon."""
        ...

    def on_rolled(self, log: "LogStorage") -> None:
        """Called when a segment was closed: flush the log up to the active segment soon."""
        ...

    def on_checkpoints_lowered(self, log: "LogStorage") -> None:
        """Called when the log was truncated below its recovery point or log start: write these checkpoints at once."""
        ...

    async def wait_for_lowered_checkpoints(self) -> None:
        """Wait until the checkpoints that truncations lowered until now are written."""
        ...

    def on_files_to_delete(self, paths: Sequence[str], delay_ms: int) -> None:
        """Called with the files of removed segments: delete them after the delay."""
        ...

    def on_failed(self, log: "LogStorage", error: OSError) -> None:
        """Called after an I/O error: take the log's directory offline."""
        ...


class LogStorage:
    """A log on its device: what it consists of, how much of it is safe, and what an I/O error means for it.

    Used by the event loop alone. An OSError takes the log out of use: `StorageFailed` from then on.
    """

    __slots__ = (
        "_config",
        "_durability",
        "_failed",
        "_flushing",
        "_local",
        "_log_start",
        "_lowered_checkpoints",
        "_lowered_on_disk",
        "_owner",
        "_producer_state",
        "_small_files",
        "_syncing",
        "_topic_id",
        "_unsynced_snapshot",
        "_world",
        "cleaning",
        "epochs",
        "notes",
        "on_synced",
        "partition",
        "possible_loss",
    )

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
        self._world = world
        self._config = config
        self._owner = owner
        self._local = LocalLog(
            files,
            directory,
            config,
            loaded.segments,
            loaded.end_offset,
            world.clock,
            world.randomness.stream("segment-jitter").randrange,
        )
        self._log_start = loaded.log_start
        self._topic_id = topic_id
        self._failed = False
        self._lowered_checkpoints = self._lowered_on_disk = 0
        self._unsynced_snapshot: str | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._syncing: asyncio.Future[None] | None = None
        self.on_synced: Callable[[], None] = no_listener
        """Called when `durable_end` rose."""
        self._durability = Durability(loaded.recovery_point, world.clock.now_ms(), is_after_crash=loaded.is_after_crash)
        self._small_files = PartitionFiles(directory)
        self.partition = partition
        self._producer_state = ProducerState(world.disk, directory, loaded.producers)
        self.epochs = LeaderEpochs(loaded.epochs.entries, self._on_epochs_changed)
        if loaded.epochs_changed:
            self._small_files.on_epochs_changed()
        self.cleaning = CleaningState(world.disk)
        self.notes = loaded.notes
        """What recovery repaired when the log was opened, one sentence each."""
        self.possible_loss = loaded.possible_loss
        """Where a power loss may have taken records before later ones; None where nothing is in doubt."""

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The path of the partition's directory."""
        return self._local.directory

    @property
    def config(self) -> TopicConfig:
        """The topic config in force for this log."""
        return self._config

    def update_config(self, config: TopicConfig) -> None:
        """Apply a new topic config from the next append, roll and retention run on."""
        changes_durability = config.klamm_sync_before_ack != self._config.klamm_sync_before_ack
        if self._config.is_compacted and not config.is_compacted:
            self.cleaning.cancel()
        self._config = self._local.config = config
        self.cleaning.on_config_changed()
        if changes_durability:
            self.sync_soon()
            self.on_synced()

    @property
    def start_offset(self) -> int:
        """The log start offset: the first offset a consumer may read."""
        return self._log_start

    @property
    def end_offset(self) -> int:
        """The offset the next record gets (LEO)."""
        return self._local.end_offset

    @property
    def segments(self) -> Segments:
        """The segments in order of their base offsets; the last one is active."""
        return self._local.segments

    @property
    def size(self) -> int:
        """The number of bytes of all segments' `.log` files."""
        return self._local.segments.size

    @property
    def topic_id(self) -> UUID | None:
        """The id of the topic; None where `partition.metadata` has none yet."""
        return self._topic_id

    @property
    def producers(self) -> Producers:
        """The idempotent and transactional producers of this log and their last batches."""
        return self._producer_state.producers

    @property
    def has_failed(self) -> bool:
        """Whether a storage error has stopped this log."""
        return self._failed

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Set the log's topic id, once; the caller has checked that the log has no other."""
        assert self._topic_id in (None, topic_id), (
            f"{self.partition} already has topic id {self._topic_id}, the new one is {topic_id}"
        )
        if self._topic_id is None:
            self._topic_id = topic_id
            self._small_files.on_topic_id_assigned()
            self._report_small_files()

    @property
    def is_restoring_producers(self) -> bool:
        """Whether a thread is restoring the producer state after a truncation; nothing can be appended meanwhile."""
        return self._producer_state.is_restoring

    def move_to(self, directory: str, owner: Owner) -> None:
        """Use these paths and this owner from now on, because the log's directory was renamed to `directory`.

        No thread may be using the log's files, nor be reading producers again.
        """
        self._owner = owner
        self._local.move_to(directory)
        self._producer_state.move_to(directory)
        self._small_files.move_to(directory)
        if self.has_changed_small_files:
            self._report_small_files()

    # -- roll, flush, close --------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Close the active segment where it has records. Raises StorageFailed."""
        self._check_usable()
        if self.segments.active.size:
            with self._translating_io_errors():
                self._producer_state.finish_restoring(self.segments, self._log_start)  # a roll writes a snapshot of it
                self._roll()

    def _roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and create the next one."""
        base = self.end_offset if base_offset is None else base_offset
        self._producer_state.write_snapshot(base)
        segment = self._local.roll(base)
        if self._owner is not None:
            self._owner.on_rolled(self)
        return segment

    def flush_job(self, up_to: int | None = None) -> FlushJob | None:
        """Return the flush of everything below `up_to` (None: the log end), and of a truncation; None if there is none.

        Raises StorageFailed.
        """
        self._check_usable()
        with self._translating_io_errors():
            target = self.end_offset if up_to is None else up_to
            changed = self.changed_small_files()
            return self._durability.flush_job(self.segments, self.directory, target, changed, is_whole=up_to is None)

    def flushed(self, job: FlushJob) -> None:
        """Record that a flush job has ended."""
        self._durability.on_flushed(job, self._world.clock.now_ms())

    async def flush(self, up_to: int | None = None) -> None:
        """Flush everything below `up_to` (None: the log end). Raises StorageFailed."""
        job = self.flush_job(up_to)
        if job is not None:
            with self._translating_io_errors():
                await self._world.disk.in_thread(job.run, self._world.disk)
            self.flushed(job)

    def flush_now(self) -> None:
        """Flush everything in the calling thread. Raises StorageFailed."""
        job = self.flush_job()
        if job is not None:
            with self._translating_io_errors():
                job.run(self._world.disk)
            self.flushed(job)

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is flushed; not above a possible loss, so that the next start finds it."""
        flushed = self._durability.recovery_point
        return flushed if self.possible_loss is None else min(flushed, self.possible_loss)

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` requires a flush now."""
        return self._durability.is_due(self.end_offset, self._config.flush_ms, now_ms)

    @property
    def needs_flush_before_ack(self) -> bool:
        """Whether `flush.messages` requires a flush before the last append is acknowledged."""
        return self.end_offset - self._durability.recovery_point >= self._config.flush_messages

    async def flush_before_ack(self) -> None:
        """Wait for the flush that `flush.messages` requires before the acknowledgement.

        What is appended meanwhile shares the next flush. Raises StorageFailed.
        """
        end = self.end_offset
        while self.needs_flush_before_ack and self._durability.recovery_point < end:
            if self._flushing is None or self._flushing.done():
                self._flushing = asyncio.ensure_future(self.flush())
            await asyncio.shield(self._flushing)

    @property
    def syncs_before_ack(self) -> bool:
        """Whether records count as replicated only once synced to the device: `klamm.sync.before.ack`."""
        return self._config.klamm_sync_before_ack

    @property
    def durable_end(self) -> int:
        """The offset up to which records count as replicated here: its end, or how far it is synced."""
        return self._durability.synced if self.syncs_before_ack else self.end_offset

    @property
    def is_durable(self) -> bool:
        """Whether all of the log counts as replicated here, and a power loss undoes no truncation.

        Of the checkpoints that a truncation lowers, this is known after a `wait_until_durable`.
        """
        return self.durable_end >= self.end_offset and not self.has_unsynced_truncation

    @property
    def has_unsynced_truncation(self) -> bool:
        """Whether a power loss may undo a truncation, or the checkpoints that it lowers."""
        return self._durability.is_truncated or self._lowered_on_disk < self._lowered_checkpoints

    @property
    def _is_synced(self) -> bool:
        """Whether the segments are on the device as far as they have to be."""
        return self.durable_end >= self.end_offset and not self._durability.is_truncated

    def sync_soon(self) -> None:
        """Sync what is not on the device, in a thread: a truncation, and what `klamm.sync.before.ack` asks for.

        What is appended while a sync is under way shares the next one (group commit).
        """
        is_needed = not self._is_synced and not self._failed
        if is_needed and (self._syncing is None or self._syncing.done()):
            self._syncing = asyncio.ensure_future(self._sync_all())

    async def _sync_all(self) -> None:
        """Sync until everything is on the device; an I/O error is reported and fails the log."""
        while not self._is_synced and not self._failed:
            try:
                with self._translating_io_errors():
                    job = self._durability.sync_job(self.segments, self.directory, self.end_offset)
                    assert job is not None
                    await self._world.disk.in_thread(job.run, self._world.disk)
            except StorageFailed:
                return  # reported: the directory is offline, who waits finds the log failed
            self._durability.on_synced(job)
            self.on_synced()

    async def wait_until_durable(self) -> None:
        """Wait until all that is in the log now may count as replicated here, and truncations are on the device.

        That includes the checkpoints that they lower: a start would take what is appended then, and not synced yet, for
        flushed. Raises StorageFailed.
        """
        end = self.end_offset
        while self._durability.is_truncated or self.durable_end < min(end, self.end_offset):
            self._check_usable()
            self.sync_soon()
            assert self._syncing is not None
            await asyncio.shield(self._syncing)
        lowered = self._lowered_checkpoints
        if lowered > self._lowered_on_disk and self._owner is not None:
            await self._owner.wait_for_lowered_checkpoints()
            self._lowered_on_disk = max(lowered, self._lowered_on_disk)
        self._check_usable()

    def report_lowered_checkpoints(self) -> None:
        """Have the checkpoints written that a truncation, or a loss that the start found, lowered."""
        if self._owner is not None:
            self._lowered_checkpoints += 1
            self._owner.on_checkpoints_lowered(self)

    def changed_small_files(self) -> list[Replacement]:
        """The unwritten changes of this log's checkpoint and metadata files, as arguments for `replace_files`."""
        return self._small_files.replacements(self.epochs, self._topic_id)

    @property
    def has_changed_small_files(self) -> bool:
        """Whether leader epochs or topic id changed since they were last written."""
        return self._small_files.is_changed

    def _on_epochs_changed(self) -> None:
        """Request that the leader epoch checkpoint is written."""
        self._small_files.on_epochs_changed()
        self._report_small_files()

    def _report_small_files(self) -> None:
        """Tell the owner that small files have unwritten changes."""
        if self._owner is not None:
            self._owner.on_small_files_changed(self)

    def prepare_clean_shutdown(self) -> None:
        """Write everything that a start after a clean shutdown reads, without syncing it. Raises StorageFailed."""
        self._check_usable()
        with self._translating_io_errors():
            snapshot = self._producer_state.write_last_snapshot(self.segments, self._log_start)
            self._unsynced_snapshot = snapshot or self._unsynced_snapshot
            active = self.segments.active
            active.cut_preallocated()
            active.time_index.append(*active.largest)
            active.write_indexes()
            replace_files(self._world.disk, self.changed_small_files())

    @property
    def has_unsynced_files(self) -> bool:
        """Whether `prepare_clean_shutdown` wrote files that are not synced yet."""
        is_flushed = self.end_offset <= self.recovery_point and not self._durability.may_undo_truncation
        return not is_flushed or self._unsynced_snapshot is not None

    def mark_synced(self) -> None:
        """Record that the files of `prepare_clean_shutdown` are synced."""
        self._durability.on_all_synced(self.end_offset)
        self._unsynced_snapshot = None

    def close(self) -> None:
        """Flush everything in the calling thread and close the files. Raises StorageFailed."""
        if not self._failed:
            self.prepare_clean_shutdown()
            self.flush_now()
            if self._unsynced_snapshot is not None:
                with self._translating_io_errors():
                    sync_files(self._world.disk, (self._unsynced_snapshot,), (self.directory,))
        self._local.close_files()

    # -- failure -------------------------------------------------------------------------------------------------------

    def _refuse_if_failed(self) -> None:
        """Raise AppendRefused (KAFKA_STORAGE_ERROR) if the log has failed."""
        if self._failed:
            raise AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, self._out_of_use())

    def _check_usable(self) -> None:
        """Raise StorageFailed if the log has failed."""
        if self._failed:
            raise StorageFailed(self._out_of_use())

    def _out_of_use(self) -> str:
        """The error text for a log that has failed or is being deleted."""
        return f"{self.directory} is offline after an I/O error. {REPAIR}"

    async def end_cleaning(self, work: str) -> None:
        """Remove the files that this `work` on the log, such as a repair, did not use; then allow compaction again."""
        try:
            self.cleaning.remove_swap_files()
            await self._world.disk.in_thread(remove_cleaned_files, self._world.disk, self.directory)
        except OSError as error:
            if not self.has_failed:
                logger.warning(
                    "cannot remove files that a compaction or repair left; the next start of the node removes them",
                    work=work,
                    directory=self.directory,
                    reason=str(error),
                )
        finally:
            self.cleaning.end()

    def discard(self) -> None:
        """Refuse any further use, because the log is being deleted."""
        self.mark_failed()
        self._small_files.close()

    def mark_failed(self) -> None:
        """Refuse any further use, because the log's directory is offline."""
        self._failed = True
        self._local.close_files()

    def on_io_error(self, error: OSError) -> None:
        """Mark the log as failed, because a file operation of this log failed in another process."""
        self._report_failure(error)

    def _report_failure(self, error: OSError) -> None:
        """Mark the log as failed and report the I/O error to its owner."""
        self.mark_failed()
        if self._owner is not None:
            self._owner.on_failed(self, error)

    @contextmanager
    def _translating_io_errors(self) -> Iterator[None]:
        """Turn an OSError in the block into StorageFailed and report it."""
        try:
            yield
        except StorageFailed:
            raise  # reported already
        except OSError as error:
            if not self._failed:  # a log that was deleted or taken offline meanwhile has nothing to report
                self._report_failure(error)
            raise StorageFailed(f"I/O error in {self.directory}: {error}. {REPAIR}") from error

    def _delete_later(self, paths: Sequence[str]) -> None:
        """Ask the owner to delete these files after `file.delete.delay.ms`."""
        if self._owner is not None:
            self._owner.on_files_to_delete(paths, self._config.file_delete_delay_ms)
            return
        for path in paths:
            self._world.disk.remove(path)


def no_listener() -> None:
    """Do nothing: the default for a log without a listener."""
