"""Background work on logs: flush, checkpoints, retention, delayed file removal. Source: LogManager.scala (startup)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import structlog

from klamm.log.directory import LogDirectory
from klamm.log.errors import StorageFailed
from klamm.log.log import MAX_REMOVED_AT_ONCE, Log
from klamm.log.log_storage import LogStorage
from klamm.log.settings import LogManagerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.small_files import Replacement, replace_files
from klamm.runtime.world import World

logger = structlog.get_logger("logs")

_UNEXPECTED: Final = "unexpected error in the background work on logs: it continues"
_REPORT: Final = "Nothing to do; if it happens again, report it with this stack trace as a bug in klamm."
_MAX_LOGS_PER_WRITE: Final = 200  # logs whose small files are written between two looks at the loop
_MAX_SLEEP_S: Final = 86_400.0

LogReplacements = tuple[LogStorage, list[Replacement]]


class ManagedLogs(Protocol):
    """The logs of a node, as housekeeping needs them."""

    @property
    def settings(self) -> LogManagerSettings:
        """The settings of the log manager: intervals of retention, flush and checkpoints."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The open logs by partition."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the open log of the partition; None where this node has none."""

    def on_log_failed(self, log: LogStorage, error: OSError) -> None:
        """Take the log's directory offline."""
        ...

    def on_path_failed(self, path: str, error: OSError) -> None:
        """Take the log directory that has this path offline."""
        ...

    async def sync_deletions(self) -> object:
        """Make all deletions of logs so far durable on disk."""

    async def write_recovery_points(self) -> None:
        """Write the recovery point checkpoint of each live log directory."""

    async def write_high_watermarks(self) -> None:
        """Write the high watermark checkpoint of each live log directory."""

    async def write_log_starts(self) -> None:
        """Write the log start offset checkpoint of each live log directory."""

    async def write_cleaned_offsets(self) -> None:
        """Write the cleaner checkpoint of each live log directory."""


class Housekeeping:
    """Collects the background work that logs request, and does it in threads, one log after the other."""

    def __init__(self, world: World, manager: ManagedLogs) -> None:
        self._world = world
        self._manager = manager
        self._to_write: dict[LogStorage, None] = {}
        self._to_flush: dict[LogStorage, None] = {}
        self._are_lowered = False
        """Whether a truncation lowered checkpoints that are still to be written."""
        self._lowering: asyncio.Task[None] | None = None
        self._changed: dict[LogDirectory, None] = {}
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._removing = asyncio.Lock()
        """Held by the removal that uses a thread: those of 10,000 logs must leave threads for reads and flushes."""
        self._under_way: asyncio.Future[list[tuple[LogStorage, OSError]]] | None = None
        self._is_stopped = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In order: a set of tasks would give them in that of their addresses."""

    # -- what logs ask for ---------------------------------------------------------------------------------------------

    def on_small_files_changed(self, log: LogStorage) -> None:
        """Write the log's leader epochs and topic id soon."""
        self._to_write[log] = None
        self._wake.set()

    def on_rolled(self, log: LogStorage) -> None:
        """Flush the log soon, because a segment was closed."""
        self._to_flush[log] = None
        self._wake.set()

    def on_checkpoints_lowered(self, _log: LogStorage) -> None:
        """Write the checkpoints at once, without waiting for flushes: a start would believe them, not the log."""
        self._are_lowered = True
        if self._lowering is None or self._lowering.done():
            self._lowering = self._start_task(self._write_lowered_checkpoints())

    async def wait_for_lowered_checkpoints(self) -> None:
        """Wait until the checkpoints that truncations lowered until now are written."""
        if self._lowering is not None:
            await asyncio.wait({self._lowering})

    def on_logs_changed(self, directory: LogDirectory) -> None:
        """Write the directory's checkpoints soon, because a log was deleted from it."""
        self._changed[directory] = None
        self._wake.set()

    def on_files_to_delete(self, paths: Sequence[str], delay_ms: int) -> None:
        """Delete the files of removed segments after the delay."""
        if paths:
            self._start_task(self._remove_later(paths, delay_ms, self._world.disk.remove))

    def on_failed(self, log: LogStorage, error: OSError) -> None:
        """Take the log's directory offline after an I/O error; not after `stop`.

        Threads close the logs then, but a directory is taken offline by the event loop: the manager does that itself.
        """
        if not self._is_stopped:
            self._manager.on_log_failed(log, error)

    def remove_tree_later(self, path: str, delay_ms: int) -> None:
        """Remove a directory tree after the delay."""
        self._start_task(self._remove_later([path], delay_ms, self._world.disk.remove_tree))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic tasks."""
        settings = self._manager.settings
        first = settings.initial_task_delay_ms
        manager = self._manager
        self._start_task(self._process_requests())
        self._repeat_every(settings.retention_check_interval_ms, first, self.delete_old_segments)
        self._repeat_every(settings.flush_scheduler_interval_ms, first, self.flush_due)
        self._repeat_every(settings.recovery_checkpoint_interval_ms, first, manager.write_recovery_points)
        self._repeat_every(settings.log_start_checkpoint_interval_ms, first, manager.write_log_starts)
        self._repeat_every(settings.producer_expiration_check_interval_ms, first, self.expire_producers)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that `stop` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _repeat_every(self, interval_ms: int, first_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task that awaits `work` every interval."""
        self._start_task(_repeat(interval_ms, first_ms, work))

    async def stop(self) -> None:
        """End all periodic tasks, after the small files that are being written are complete.

        A thread that is late must not replace a file that closing writes by an older version.
        """
        self._is_stopped = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._under_way is not None:
            self._report_failures(await self._under_way)

    async def _process_requests(self) -> None:
        """Do the requested flushes and file writes whenever there are any."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._do_requested()
            except Exception:
                logger.exception(_UNEXPECTED, work="requested by logs", action=_REPORT)

    async def _do_requested(self) -> None:
        """Do the flushes and file writes that logs requested until now."""
        await self.write_small_files()
        await self._flush_rolled()
        if self._changed:
            self._changed.clear()
            await self._manager.sync_deletions()
            await self._manager.write_recovery_points()
            await self._manager.write_log_starts()
            await self._manager.write_high_watermarks()
            await self._manager.write_cleaned_offsets()

    async def _write_lowered_checkpoints(self) -> None:
        """Write the checkpoints that truncations lower, until there are no more of them."""
        while self._are_lowered:
            self._are_lowered = False
            try:
                await self._manager.write_recovery_points()
                await self._manager.write_log_starts()
                await self._manager.write_cleaned_offsets()
            except Exception:
                logger.exception(_UNEXPECTED, work="checkpoints lowered by a truncation", action=_REPORT)

    async def write_small_files(self) -> None:
        """Write the changed leader epochs and topic ids of all logs that reported a change.

        Returns when no such log is left.
        """
        async with self._writing:
            while self._to_write:
                logs = list(self._to_write)[:_MAX_LOGS_PER_WRITE]
                for log in logs:
                    del self._to_write[log]
                work = [(log, log.changed_small_files()) for log in logs if not log.has_failed]
                self._under_way = asyncio.ensure_future(self._world.disk.in_thread(self._write_all, work))
                self._report_failures(await asyncio.shield(self._under_way))

    def _report_failures(self, failures: Iterable[tuple[LogStorage, OSError]]) -> None:
        """Take the directories of these logs offline."""
        for log, error in failures:
            if self._manager.get(log.partition) is log:
                self._manager.on_log_failed(log, error)

    def _write_all(self, work: Iterable[LogReplacements]) -> list[tuple[LogStorage, OSError]]:
        """Write the files of one directory together, or log by log where one of them fails."""
        by_directory: dict[str, list[LogReplacements]] = {}
        for log, replacements in work:
            by_directory.setdefault(log.directory.rpartition("/")[0], []).append((log, replacements))
        failures: list[tuple[LogStorage, OSError]] = []
        for group in by_directory.values():
            try:
                replace_files(self._world.disk, [each for _, replacements in group for each in replacements])
            except OSError:
                failures += self._write_each(group)
        return failures

    def _write_each(self, group: Iterable[LogReplacements]) -> Iterator[tuple[LogStorage, OSError]]:
        """Write the file of one log after the other; yield the logs whose write failed."""
        for log, replacements in group:
            if log.has_failed:
                continue  # deleted meanwhile, which failed the write of all: a new log may have its path
            try:
                replace_files(self._world.disk, replacements)
            except OSError as error:  # the device, or the log was deleted meanwhile
                yield log, error

    async def _flush_rolled(self) -> None:
        """Flush the logs whose segments were rolled."""
        while self._to_flush:
            log = next(iter(self._to_flush))
            del self._to_flush[log]
            if self._manager.get(log.partition) is log:
                await self._flush(log, log.segments.active.base_offset)

    async def _flush(self, log: LogStorage, up_to: int | None = None) -> None:
        """Flush one log; an error takes its directory offline."""
        try:
            await log.flush(up_to)
        except StorageFailed:
            return  # the log has reported it, and its directory is offline

    async def flush_due(self) -> None:
        """Flush the logs whose `flush.ms` has passed."""
        now_ms = self._world.clock.now_ms()
        for log in list(self._manager.logs.values()):
            if log.flush_is_due(now_ms):
                await self._flush(log)

    async def delete_old_segments(self) -> None:
        """Run retention for each log; the event loop runs other callbacks between two logs, and within a long one."""
        for log in list(self._manager.logs.values()):
            removed = MAX_REMOVED_AT_ONCE
            while removed == MAX_REMOVED_AT_ONCE and not log.has_failed:
                removed = 0
                with suppress(StorageFailed):  # reported: its directory is offline
                    removed = log.delete_old_segments()
                await asyncio.sleep(0)

    async def expire_producers(self) -> None:
        """Remove idle producers from each log; the event loop runs other callbacks between two logs."""
        now_ms = self._world.clock.now_ms()
        for log in list(self._manager.logs.values()):
            log.producers.expire(now_ms, self._manager.settings.producer_expiration_ms)
            await asyncio.sleep(0)

    # -- removal -------------------------------------------------------------------------------------------------------

    async def _remove_later(self, paths: Sequence[str], delay_ms: int, remove: Callable[[str], None]) -> None:
        """Remove each path in a thread after the delay, while no other removal runs.

        An error takes its log directory offline.
        """
        await asyncio.sleep(delay_ms / 1000)
        async with self._removing:
            failed = await self._world.disk.in_thread(self._remove_all, paths, remove)
        if failed is not None:
            self._manager.on_path_failed(*failed)

    def _remove_all(self, paths: Sequence[str], remove: Callable[[str], None]) -> tuple[str, OSError] | None:
        """Remove the paths that exist; the first that could not be removed, and why."""
        for path in paths:
            try:
                if self._world.disk.exists(path):
                    remove(path)
            except FileNotFoundError:
                continue  # its directory was renamed meanwhile, to be removed as a whole
            except OSError as error:
                return path, error
        return None


async def _repeat(interval_ms: int, first_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    """Await `work` every interval, also after an error."""
    pause_s = min(interval_ms / 1000, _MAX_SLEEP_S)
    await asyncio.sleep(min(first_ms / 1000, _MAX_SLEEP_S))
    while True:
        try:
            await work()
        except Exception:
            logger.exception(_UNEXPECTED, work=work.__qualname__, action=_REPORT)
        await asyncio.sleep(pause_s)
