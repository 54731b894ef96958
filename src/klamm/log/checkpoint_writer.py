"""Writes the offset checkpoints of all data directories from what their logs know. Source: LogManager.scala."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from klamm.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from klamm.log.directory import LogDirectory
from klamm.log.log import Log
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Disk

Offsets = dict[TopicPartition, int]


def _recovery_points(logs: Sequence[Log]) -> Offsets:
    """Return the recovery point of each log by partition, for the recovery point checkpoint."""
    return {log.partition: log.recovery_point for log in logs}


def _high_watermarks(logs: Sequence[Log]) -> Offsets:
    """Return the high watermark of each log by partition, for the high watermark checkpoint."""
    return {log.partition: log.high_watermark for log in logs}


def _log_starts(logs: Sequence[Log]) -> Offsets:
    """The log start offsets that are not the base offset of the log's first segment."""
    return {log.partition: log.start_offset for log in logs if log.start_offset > log.segments.first.base_offset}


def _cleaned_offsets(logs: Sequence[Log]) -> Offsets:
    """Return, by partition, the offset up to which each log was compacted; logs that never were are left out."""
    return {log.partition: log.cleaning.first_dirty for log in logs if log.cleaning.first_dirty is not None}


OFFSETS_OF: Final[Mapping[str, Callable[[Sequence[Log]], Offsets]]] = {
    RECOVERY_POINTS: _recovery_points,
    LOG_STARTS: _log_starts,
    HIGH_WATERMARKS: _high_watermarks,
    CLEANED_OFFSETS: _cleaned_offsets,
}
"""File name -> the offsets that it holds for these logs."""


class CheckpointWriter:
    """Used by the event loop alone, but for `write_all`, which may run in any thread."""

    def __init__(
        self,
        disk: Disk,
        live_directories: Callable[[], Sequence[LogDirectory]],
        logs_in: Callable[[LogDirectory], Sequence[Log]],
        on_failed: Callable[[LogDirectory, str], None],
    ) -> None:
        """`on_failed` takes a directory offline, for this reason."""
        self._disk = disk
        self._live_directories = live_directories
        self._logs_in = logs_in
        self._on_failed = on_failed
        self._writing: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False

    async def write(self, name: str) -> None:
        """Write one kind of checkpoint of every directory in threads; a directory whose write fails goes offline.

        One thread per directory at a time. A caller may be cancelled, its thread cannot: the next one waits for it.
        """
        for directory in self._live_directories():
            await self._write_shielded(directory, name)

    async def secure_recovery_point(self, directory: LogDirectory, partition: TopicPartition, offset: int) -> bool:
        """Write the directory's recovery points, unless the file has at least `offset` for this partition already.

        Returns whether it has that now: a truncation meanwhile lowers the recovery point.
        """
        checkpoint = directory.checkpoint(RECOVERY_POINTS)
        if checkpoint.written.get(partition, 0) < offset:
            await self._write_shielded(directory, RECOVERY_POINTS)
        return directory.is_online and checkpoint.written.get(partition, 0) >= offset

    async def forget_earlier_logs(self, created: Collection[tuple[LogDirectory, TopicPartition]]) -> None:
        """Write the checkpoints with an offset of an earlier log of these partitions, whose logs were just created.

        After a crash, a start would take the new log for flushed, or compacted, up to that offset.
        """
        for directory in dict.fromkeys(directory for directory, _ in created):
            async with directory.writing:
                pass  # the write under way may have such an offset
        for name in OFFSETS_OF:
            stale = (directory for directory, partition in created if partition in directory.checkpoint(name).written)
            for directory in dict.fromkeys(stale):
                await self._write_shielded(directory, name)

    async def _write_shielded(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint file in a task that goes on if the caller is cancelled."""
        writing = asyncio.get_running_loop().create_task(self._write_one(directory, name))
        self._writing[writing] = None
        writing.add_done_callback(self._writing.pop)
        await asyncio.shield(writing)

    async def _write_one(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint file of a directory."""
        async with directory.writing:
            if not directory.is_online or self._is_stopped:
                return
            checkpoint = directory.checkpoint(name)
            version = checkpoint.next_version()
            offsets = OFFSETS_OF[name](self._logs_in(directory))
            try:
                await self._disk.in_thread(checkpoint.write, offsets, version)
            except OSError as error:
                self._on_failed(directory, str(error))

    async def stop(self) -> None:
        """Start no more writes, and wait for the threads that still write."""
        self._is_stopped = True
        await asyncio.gather(*self._writing, return_exceptions=True)


def write_all(directory: LogDirectory, logs: Sequence[Log]) -> None:
    """Write every checkpoint of a directory now. Raises OSError."""
    for name in OFFSETS_OF:
        directory.checkpoint(name).write_now(OFFSETS_OF[name](logs))
