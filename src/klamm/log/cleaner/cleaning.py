"""One cleaning of one log, seen from the event loop: a process rewrites, the loop replaces segments."""

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from klamm.log.cleaner.facts import cleaning_job
from klamm.log.cleaner.job import CleanedFiles, CleaningFailed, CleaningFinished, Progress
from klamm.log.cleaner.selection import DirtyRange
from klamm.log.cleaner.sessions import advance_cleaning, end_cleaning, start_cleaning
from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.log.settings import UNLIMITED, CleanerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import WorkerFailed, Workers
from klamm.runtime.world import World

logger = structlog.get_logger("logs")

STEP_BYTES: Final = 32 << 20
"""Read and written between two looks at the log: less than a second."""
MAX_FAILURES: Final = 3
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Cleaning:
    """Run it once. Used by the event loop alone."""

    def __init__(
        self,
        world: World,
        log: Log,
        dirty: DirtyRange,
        settings: CleanerSettings,
        token: str,
        secure_recovery_point: Callable[[TopicPartition, int], Awaitable[bool]],
    ) -> None:
        """`token` is a name for the cleaning that no other has.

        `secure_recovery_point` has the recovery point on the device: see `_may_leave_gaps`.
        """
        self._world = world
        self._log = log
        self._dirty = dirty
        self._settings = settings
        self._token = token
        self._secure_recovery_point = secure_recovery_point

    async def run(self, workers: Workers) -> CleaningFinished | None:
        """Clean the log; returns None where the log changed meanwhile or cannot be cleaned.

        `workers` has one process.
        """
        log = self._log
        log.cleaning.begin(self._dirty.end)
        try:
            if not await self._may_leave_gaps():
                return None
            job = cleaning_job(log, self._dirty, self._settings, self._world.clock.now_ms())
            await workers.run(start_cleaning, self._token, self._world.disk, job)
            finished = await self._advance_to_end(workers)
            if finished is not None:
                log.cleaning.on_cleaned(finished.end_offset)  # before it ends: a later truncation lowers it again
        except StorageFailed:
            return None  # the log has reported it, and its directory is offline
        except WorkerFailed as error:
            self._on_failure(str(error))
            return None
        finally:
            await asyncio.shield(self._end(workers))
        return finished

    async def _may_leave_gaps(self) -> bool:
        """Have the recovery point on the device, at or above all that is compacted; false where it cannot be.

        A start takes a gap below the recovery point for compaction's, and one above it for lost records.
        """
        return await self._secure_recovery_point(self._log.partition, self._dirty.end)

    async def _advance_to_end(self, workers: Workers) -> CleaningFinished | None:
        """Let the worker process clean step by step, and replace segments as they are ready.

        Returns None where the log changed or cannot be cleaned. Raises StorageFailed, WorkerFailed.
        """
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            progress = await workers.run(advance_cleaning, self._token, self._step_bytes)
            if self._log.cleaning.is_void or self._log.has_failed:
                logger.info(
                    "compaction of a log ended early: the log was truncated, is moved or is no longer compacted",
                    partition=str(self._log.partition),
                )
                return None
            match progress.event:
                case CleaningFinished() as finished:
                    return finished
                case CleaningFailed() as failed:
                    self._on_file_failure(failed)
                    return None
                case CleanedFiles() as cleaned:
                    if not await self._log.replace_segments(cleaned.replaced, cleaned.size):
                        return None
            await self._slow_down(progress, loop.time() - began)

    @property
    def _step_bytes(self) -> int:
        """How many bytes one step may read and write: at most what the rate allows for a second."""
        return max(1, int(min(STEP_BYTES, self._settings.bytes_per_second)))

    async def _slow_down(self, progress: Progress, took_s: float) -> None:
        """Sleep after a step so that reading and writing keep to `log.cleaner.io.max.bytes.per.second`."""
        rate = self._settings.bytes_per_second
        if self._settings.io_max_bytes_per_second < UNLIMITED:
            await asyncio.sleep(max(0.0, progress.io_bytes / rate - took_s))

    async def _end(self, workers: Workers) -> None:
        """End the cleaning in the worker process, and remove its unused files."""
        with contextlib.suppress(WorkerFailed):  # with the process, its cleanings are gone
            await workers.run(end_cleaning, self._token)
        await self._log.end_cleaning("compaction")

    def _on_file_failure(self, failed: CleaningFailed) -> None:
        """Handle an error of a file operation.

        A full device is logged and tried again, damaged content excludes the log from cleaning, any other error takes
        the directory offline.
        """
        if failed.errno is None:
            self._mark_uncleanable(failed.reason)
        elif failed.errno in _FULL:
            logger.warning(
                "compaction of a log needs more space than the device has; trying again later",
                partition=str(self._log.partition),
                directory=self._log.directory,
                retry_ms=self._settings.backoff_ms,
                action="Free space, or move partitions to another directory.",
            )
        else:
            self._log.on_io_error(OSError(failed.errno, failed.reason))

    def _on_failure(self, reason: str) -> None:
        """Log the failure, to be tried again; after `MAX_FAILURES` in a row exclude the log from cleaning."""
        if self._log.cleaning.on_failure() >= MAX_FAILURES:
            self._mark_uncleanable(reason)
            return
        logger.warning(
            "compaction of a log failed; trying again later",
            partition=str(self._log.partition),
            reason=reason,
            retry_ms=self._settings.backoff_ms,
        )

    def _mark_uncleanable(self, reason: str) -> None:
        """Exclude the log from cleaning with this reason, and log an error that names the remedy."""
        self._log.cleaning.why_uncleanable = reason
        logger.error(
            "log cannot be compacted and grows without a limit",
            partition=str(self._log.partition),
            directory=self._log.directory,
            reason=reason,
            action="Repair the cause; a changed topic config or a restart of the node tries again.",
        )
