"""Cleans the dirtiest compacted log, again and again, and keeps the figures that its metrics show.

Source: LogCleaner.scala, LogCleanerManager.scala.
"""

import asyncio
import itertools
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import structlog

from klamm.log.cleaner.cleaning import Cleaning
from klamm.log.cleaner.facts import log_facts
from klamm.log.cleaner.job import CleaningFinished
from klamm.log.cleaner.selection import DirtyRange, find_dirty_range
from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.log.settings import CleanerSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import Workers
from klamm.runtime.world import World

_cleaning_numbers = itertools.count(1)
"""Of all cleaners in this process: nodes of a simulation run their cleanings in one process, too."""


class CleanerStatistics:
    """Figures of the last selection and of the last cleaning."""

    def __init__(self) -> None:
        self.last_run_ms: int | None = None
        """When logs were last looked at, ms since 1970; None before the first time."""
        self.dirtiest_ratio = 0.0
        self.compaction_delay_s = 0.0
        """How long the most overdue record has waited beyond `max.compaction.lag.ms`."""
        self.map_utilization = 0.0
        self.recopied_ratio = 0.0
        """Bytes written in the last cleaning, as a share of those read."""
        self.cleaning_s = 0.0

    def on_selection(self, now_ms: int, dirtiest_ratio: float, compaction_delay_s: float) -> None:
        """Record, for the metrics, the time of a search for a log to clean and what it found."""
        self.last_run_ms = now_ms
        self.dirtiest_ratio = dirtiest_ratio
        self.compaction_delay_s = compaction_delay_s

    def on_cleaned(self, finished: CleaningFinished, took_s: float) -> None:
        """Record, for the metrics, the figures of a finished cleaning of one log."""
        self.map_utilization = finished.map_utilization
        self.recopied_ratio = finished.written_bytes / max(finished.read_bytes, 1)
        self.cleaning_s = took_s


logger = structlog.get_logger("logs")

_MIB = 1 << 20


class CleanableLogs(Protocol):
    """The logs of a node, as far as the cleaner needs them."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The open logs of this node by partition."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the open log of the partition; None where this node has none."""

    async def secure_recovery_point(self, partition: TopicPartition, offset: int) -> bool:
        """Write the recovery point checkpoint, unless it has `offset` for the partition; whether it has that now."""

    async def write_cleaned_offsets(self) -> None:
        """Write the cleaner checkpoint of each log directory: how far each log there is compacted."""


class _Candidate(NamedTuple):
    log: Log
    dirty: DirtyRange


class LogCleaner:
    """One task for each of `log.cleaner.threads`, with a process of its own. Used by the event loop alone."""

    def __init__(self, world: World, logs: CleanableLogs, settings: CleanerSettings) -> None:
        self._world = world
        self._logs = logs
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self.statistics = CleanerStatistics()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the cleaner's tasks, unless `log.cleaner.enable` is false."""
        threads = self._settings.threads if self._settings.enable else 0
        self._tasks = [asyncio.get_running_loop().create_task(self._run()) for _ in range(threads)]

    async def close(self) -> None:
        """Cancel the cleanings under way and remove the files they wrote."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def update_settings(self, settings: CleanerSettings) -> None:
        """Apply changed configs; a cleaning under way begins again, and logs that failed are tried again."""
        if settings == self._settings:
            return
        await self.close()
        self._settings = settings
        for log in self._logs.logs.values():
            log.cleaning.on_config_changed()
        self.start()

    async def _run(self) -> None:
        """Clean one log after the other in one worker process of its own.

        After a search without result it pauses for `log.cleaner.backoff.ms`.
        """
        workers = self._world.workers.pool(1)
        try:
            while True:
                if not await self.clean_next(workers):
                    await asyncio.sleep(self._settings.backoff_ms / 1000)
        finally:
            await workers.close()

    # -- choice --------------------------------------------------------------------------------------------------------

    async def clean_next(self, workers: Workers) -> bool:
        """Clean the log with the largest share of dirty bytes.

        Returns whether there was one. `workers` has one process.
        """
        chosen = await self._choose()
        if chosen is None:
            return False
        log, dirty = chosen
        began = asyncio.get_running_loop().time()
        token = f"{log.partition} {next(_cleaning_numbers)}"
        cleaning = Cleaning(self._world, log, dirty, self._settings, token, self._logs.secure_recovery_point)
        finished = await cleaning.run(workers)
        if finished is None:
            return False
        await self._logs.write_cleaned_offsets()
        took_s = asyncio.get_running_loop().time() - began
        self.statistics.on_cleaned(finished, took_s)
        _report(log, dirty, finished, took_s)
        return True

    async def _choose(self) -> _Candidate | None:
        """Return the log with the largest share of dirty bytes among those that are due for cleaning."""
        now_ms = self._world.clock.now_ms()
        chosen: _Candidate | None = None
        dirtiest = overdue_ms = 0.0
        for log in [log for log in self._logs.logs.values() if log.config.is_compacted]:
            await asyncio.sleep(0)
            dirty = self._dirty_range(log, now_ms)
            if dirty is None:
                continue
            dirtiest, overdue_ms = max(dirtiest, dirty.ratio), max(overdue_ms, dirty.overdue_ms)
            if dirty.is_due(log.config) and (chosen is None or dirty.ratio > chosen.dirty.ratio):
                chosen = _Candidate(log, dirty)
        self.statistics.on_selection(now_ms, dirtiest, overdue_ms / 1000)
        return None if chosen is None else self._checked_again(chosen.log, now_ms)

    def _checked_again(self, log: Log, now_ms: int) -> _Candidate | None:
        """Return the chosen log with its dirty range of now; None where it cannot be cleaned any more.

        While the other logs were looked at, it may have been deleted, truncated below the end of its range, or
        reconfigured: what is the active segment now must not be rewritten.
        """
        dirty = self._dirty_range(log, now_ms) if log.config.is_compacted else None
        return None if dirty is None or not dirty.is_due(log.config) else _Candidate(log, dirty)

    def _dirty_range(self, log: Log, now_ms: int) -> DirtyRange | None:
        """Return the range of the log to clean; None where the log cannot be cleaned now."""
        cleaning = log.cleaning
        is_blocked = cleaning.is_running or cleaning.is_paused or cleaning.why_uncleanable is not None
        if is_blocked or not self._is_usable(log):
            return None
        try:
            dirty = find_dirty_range(log_facts(log), log.config, now_ms)
        except StorageFailed:
            return None  # the log has reported it, and its directory is offline
        if dirty.is_reset:
            if not log.config.is_deleted:
                logger.warning(
                    "the cleaner checkpoint is outside the log: the log is cleaned from its start",
                    partition=str(log.partition),
                    checkpoint=cleaning.first_dirty,
                    log_start=log.start_offset,
                    log_end=log.end_offset,
                )
            cleaning.first_dirty = dirty.start
        return dirty

    def _is_usable(self, log: Log) -> bool:
        """Whether the log is still the open log of its partition and no storage error has stopped it."""
        return self._logs.get(log.partition) is log and not log.has_failed

    # -- facts for metrics ---------------------------------------------------------------------------------------------

    @property
    def failed_tasks(self) -> int:
        """The number of cleaner tasks that ended by an unexpected error."""
        return sum(task.done() for task in self._tasks)

    def uncleanable(self) -> list[Log]:
        """Compacted logs that could not be cleaned."""
        return [log for log in self._logs.logs.values() if log.cleaning.why_uncleanable is not None]


def _report(log: Log, dirty: DirtyRange, finished: CleaningFinished, took_s: float) -> None:
    """Log the result of a finished cleaning, and warn where records without a key were removed."""
    logger.info(
        "log compacted",
        partition=str(log.partition),
        dirty_from=dirty.start,
        clean_up_to=finished.end_offset,
        mib_before=round(finished.read_bytes / _MIB, 1),
        mib_after=round(finished.written_bytes / _MIB, 1),
        records_before=finished.read_records,
        records_after=finished.written_records,
        took_s=round(took_s, 2),
    )
    if finished.keyless_records:
        logger.warning(
            "records without a key were removed from a compacted topic, which cannot keep them",
            partition=str(log.partition),
            records=finished.keyless_records,
        )
