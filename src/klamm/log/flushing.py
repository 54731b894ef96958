"""Flushing a log to the device: files to sync, and the recovery point afterwards. Source: UnifiedLog.scala (flush)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from klamm.log.names import (
    INDEX,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.runtime.disk import Disk
from klamm.runtime.small_files import Replacement, replace_files

_SYNCED = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True)
class FlushJob:
    """The files that one flush writes and syncs in a thread.

    `generation` counts the truncations of the log: a flush that began before one does not cover
    what was appended after it.
    """

    up_to: int
    generation: int
    paths: tuple[str, ...]
    directories: tuple[str, ...]
    small_files: tuple[Replacement, ...] = ()
    newest_segment: int = -1
    """The base offset of the newest segment whose files are synced."""
    syncs_end: bool = False
    """Whether the active segment is among them, and so a truncation, which ends in it or in a segment before."""

    def run(self, disk: Disk) -> None:
        """Write the checkpoint files, then sync the segments and directories of this flush. Raises OSError."""
        replace_files(disk, self.small_files)
        sync_files(disk, self.paths, self.directories)


def sync_files(disk: Disk, paths: Iterable[str], directories: Iterable[str]) -> None:
    """Sync these files and directories; files that were deleted meanwhile are skipped. Raises OSError."""
    for path in paths:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue
        try:
            file.sync()
        finally:
            file.close()
    for directory in directories:
        if disk.exists(directory):
            disk.sync_directory(directory)


def files_to_sync(segments: Sequence[Segment]) -> tuple[str, ...]:
    """Every file of these segments and the snapshots at their base offsets."""
    return tuple(segment.path(suffix) for segment in segments for suffix in (*_SYNCED, SNAPSHOT))


def _first_synced(directory: str) -> tuple[str, ...]:
    """The files that the first sync of a log has as well: a process before may have been killed before it synced them.

    Without a topic id, the records would pass for those of the next topic of this name.
    """
    return (f"{directory}/{PARTITION_METADATA}",)


def _with_parent(directory: str) -> tuple[str, ...]:
    """The directories of the first sync: a new segment's name lies in the log's, and its own name in the one above."""
    return directory, directory.rpartition("/")[0]


class Durability:
    """Tracks which offsets of one log are flushed: all below `recovery_point`."""

    __slots__ = (
        "_generation", "_is_directory_synced", "_last_flush_ms", "_newest_named", "is_truncated", "may_be_longer",
        "recovery_point", "synced",
    )  # fmt: skip

    def __init__(self, recovery_point: int, now_ms: int, *, is_after_crash: bool = False) -> None:
        self.recovery_point = recovery_point
        self._generation = 0
        self._last_flush_ms = now_ms
        self._is_directory_synced = False
        self._newest_named = -1  # segments up to this base offset have their names on the device
        self.synced = recovery_point
        """Batches below it are on the device, their indexes perhaps not; at least the recovery point."""
        self.is_truncated = False
        """Whether a truncation is not on the device yet: after a power loss the old batches may lie before new ones."""
        self.may_be_longer = is_after_crash
        """Whether a truncation of the process before may not be on the device: it was killed, and nobody knows.

        Nothing waits for its sync, but a whole flush has it: what is closed in order is not checked at the next start.
        """

    @property
    def may_undo_truncation(self) -> bool:
        """Whether a power loss may undo a truncation, of this process or of the one before."""
        return self.is_truncated or self.may_be_longer

    def flush_job(
        self, segments: Segments, directory: str, target: int, small_files: Sequence[Replacement], *, is_whole: bool
    ) -> FlushJob | None:
        """Return the flush of everything below `target`; None where that is flushed already. Raises OSError.

        `is_whole`: the target is the log end, so that a truncation that is not on the device yet is flushed, too.
        """
        with_truncation = is_whole and self.may_undo_truncation
        if target <= self.recovery_point and not with_truncation:
            return None
        # a segment that ends at the recovery point may have been rolled, and so written, since it was flushed
        slot = segments.slot_of(self.recovery_point - 1)
        unsafe = [s for s in segments.from_slot(slot) if s.base_offset < target or with_truncation]
        for segment in unsafe:
            segment.write_indexes()
        paths = files_to_sync(unsafe)
        directories: tuple[str, ...] = (directory,)
        if not self._is_directory_synced:
            paths, directories = (*_first_synced(directory), *paths), _with_parent(directory)
        newest = max((segment.base_offset for segment in unsafe), default=-1)
        return FlushJob(
            target,
            self._generation,
            paths,
            directories,
            tuple(small_files),
            newest,
            syncs_end=newest == segments.active.base_offset,
        )

    def sync_job(self, segments: Segments, directory: str, target: int) -> FlushJob | None:
        """The sync of the batches up to `target`, without indexes; None where they are on the device.

        A start after a power loss reads the batches after the recovery point, and has no need of anything else. A
        truncation is synced with its segment and with the names of the removed segments.
        """
        if target <= self.synced and not self.is_truncated:
            return None
        behind = segments.from_slot(segments.slot_of(self.synced))
        unsafe = [s for s in behind if s.base_offset < target or self.is_truncated]
        newest = max((segment.base_offset for segment in unsafe), default=-1)
        directories: tuple[str, ...] = ()
        paths = tuple(segment.log_path for segment in unsafe)
        if not self._is_directory_synced:
            paths, directories = (*_first_synced(directory), *paths), _with_parent(directory)
        elif newest > self._newest_named or self.is_truncated:
            directories = (directory,)
        syncs_end = newest == segments.active.base_offset
        return FlushJob(target, self._generation, paths, directories, newest_segment=newest, syncs_end=syncs_end)

    def on_synced(self, job: FlushJob) -> None:
        """Note which batches are on the device after a sync, unless a truncation voided it meanwhile."""
        if job.directories:
            self._is_directory_synced = True
        if job.generation == self._generation:
            self.is_truncated = self.is_truncated and not job.syncs_end
            self.may_be_longer = self.may_be_longer and not job.syncs_end
            self.synced = max(self.synced, job.up_to)
            self._newest_named = max(self._newest_named, job.newest_segment)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """Advance the recovery point after a flush, unless a truncation voided it meanwhile."""
        self._last_flush_ms = now_ms
        self.on_synced(job)
        if job.generation == self._generation:
            self.recovery_point = max(self.recovery_point, job.up_to)

    def on_all_synced(self, end_offset: int) -> None:
        """Record that the whole filesystem of the log was synced."""
        self.recovery_point = end_offset
        self.is_truncated = self.may_be_longer = False

    def on_truncated(self, offset: int) -> bool:
        """Record that the log was truncated to `offset`; returns whether that lowered the recovery point."""
        self._generation += 1
        self.is_truncated = True
        is_lower = offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, offset)
        self.synced = min(self.synced, offset)
        self._newest_named = -1
        return is_lower

    def is_due(self, end_offset: int, flush_ms: int, now_ms: int) -> bool:
        """Whether records have been unflushed for at least `flush.ms`."""
        return end_offset > self.recovery_point and now_ms - self._last_flush_ms >= flush_ms
