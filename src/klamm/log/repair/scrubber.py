"""Reads all closed segments in the background, again and again, and looks for damage. Apache Kafka has no such task."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.log.repair.checking import CheckedSegment, DamagedRange, Place, Progress, check_segment
from klamm.log.segment import Segment
from klamm.log.settings import ScrubberSettings
from klamm.model.ids import TopicPartition
from klamm.runtime.workers import WorkerFailed, Workers
from klamm.runtime.world import World

logger = structlog.get_logger("logs")

STEP_BYTES: Final = 8 << 20
_MAX_WAITING: Final = 10_000
_ERROR_BACKOFF_S: Final = 60.0


class ScrubbedLogs(Protocol):
    """The logs of a node, as far as the scrubber needs them."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The open logs of this node by partition."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the open log of the partition; None where this node has none."""


class LogScrubber:
    """Checks one segment after the other in one worker process; those that readers complained of come first.

    Used by the event loop alone. `on_damage` gets each log in which damage was found.
    """

    def __init__(self, world: World, logs: ScrubbedLogs, settings: ScrubberSettings) -> None:
        self._world = world
        self._logs = logs
        self._settings = settings
        self._rng = world.randomness.stream("scrubber")
        self._tasks: list[asyncio.Task[None]] = []
        self._urgent: dict[tuple[TopicPartition, int], None] = {}
        self._wakeup = asyncio.Event()
        self._damaged: set[TopicPartition] = set()
        self.on_damage: Callable[[Log], None] = lambda log: None
        self.read_bytes = 0
        self.damaged_ranges = 0
        """All that were found since the start."""
        self.last_pass_ms: int | None = None
        """When all closed segments had been read, ms since 1970; None before the first time."""

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to check all closed segments in the background, and those in which a reader found damage."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(self._scrub), name="scrubber"),
            loop.create_task(self._run(self._check_urgent), name="scrubber of suspects"),
        ]

    async def close(self) -> None:
        """Stop checking segments."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def update_settings(self, settings: ScrubberSettings) -> None:
        """Apply changed configs; the pass over all segments that is under way begins again."""
        if settings == self._settings:
            return
        is_running = bool(self._tasks)
        await self.close()
        self._settings = settings
        if is_running:
            self.start()

    async def _run(self, work: Callable[[Workers], Awaitable[None]]) -> None:
        """Run the work with a worker process of its own, and run it again after an error."""
        workers = self._world.workers.pool(1)
        try:
            while True:
                try:
                    await work(workers)
                except WorkerFailed as error:
                    logger.warning("cannot check closed segments for damage; trying again later", reason=str(error))
                    await asyncio.sleep(_ERROR_BACKOFF_S)
        finally:
            await workers.close()

    # -- all segments --------------------------------------------------------------------------------------------------

    async def _scrub(self, workers: Workers) -> None:
        """Check all closed segments, at most at the configured rate, then wait for the next pass.

        A pass begins at a random partition, so that frequent restarts do not leave the same partitions unchecked.
        """
        rate = self._settings.bytes_per_second
        if not rate:
            await asyncio.Event().wait()
        began = asyncio.get_running_loop().time()
        partitions = sorted(self._logs.logs)
        first = self._rng.randrange(len(partitions)) if partitions else 0
        for partition in partitions[first:] + partitions[:first]:
            await self._scrub_log(partition, workers, rate)
        self.last_pass_ms = self._world.clock.now_ms()
        took_s = asyncio.get_running_loop().time() - began
        await asyncio.sleep(max(1.0, self._settings.interval_ms / 1000 - took_s))

    async def _scrub_log(self, partition: TopicPartition, workers: Workers, rate: int) -> None:
        """Check the closed segments of one log, unless the log was deleted meanwhile."""
        await asyncio.sleep(0)
        log = self._logs.get(partition)
        if log is None:
            return
        for base in [segment.base_offset for segment in log.segments][:-1]:
            await self._check(log, base, workers, rate)

    # -- what readers complained of ------------------------------------------------------------------------------------

    def check_soon(self, partition: TopicPartition, offset: int) -> None:
        """Have the segment of this offset checked soon, because a reader found damage there."""
        if len(self._urgent) < _MAX_WAITING:
            self._urgent[partition, offset] = None
            self._wakeup.set()

    async def _check_urgent(self, workers: Workers) -> None:
        """Check the segments in which readers found damage; those that an error left are checked first."""
        if not self._urgent:
            await self._wakeup.wait()
        self._wakeup.clear()
        while self._urgent:
            partition, offset = next(iter(self._urgent))
            log = self._logs.get(partition)
            if log is not None and not log.has_failed and log.segments.first.base_offset <= offset < log.end_offset:
                with contextlib.suppress(StorageFailed):  # reported already, and the directory of the log is offline
                    await self._check_segment_of(log, offset, workers)
            self._urgent.pop((partition, offset), None)

    async def _check_segment_of(self, log: Log, offset: int, workers: Workers) -> None:
        """Check the segment of this offset; the active segment is closed first. Raises StorageFailed, WorkerFailed."""
        if offset >= log.segments.active.base_offset:
            log.roll()
        base = log.segments.from_slot(log.segments.slot_of(offset))[0].base_offset
        await self._check(log, base, workers, None)

    # -- one segment ---------------------------------------------------------------------------------------------------

    async def _check(self, log: Log, base: int, workers: Workers, rate: int | None) -> None:
        """Check one closed segment; a segment that is deleted or changed meanwhile is skipped. Raises WorkerFailed."""
        loop, disk = asyncio.get_running_loop(), self._world.disk
        segment = self._closed_segment(log, base)
        if segment is None:
            return
        facts = checked_segment(log, segment)
        step = STEP_BYTES if rate is None else max(1, min(STEP_BYTES, rate))
        progress = Progress(Place(0, base), None)
        found: list[DamagedRange] = []
        while progress.place.position < facts.size:
            began, position = loop.time(), progress.place.position
            progress = await workers.run(check_segment, disk, facts, progress.place, progress.before, step)
            if self._closed_segment(log, base) is not segment or segment.size != facts.size:
                return
            if progress.errno is not None:
                log.on_io_error(OSError(progress.errno, progress.error))
                return
            found += progress.damaged
            done = progress.place.position - position
            self.read_bytes += done
            if rate is not None:
                await asyncio.sleep(max(0.0, done / rate - (loop.time() - began)))
        self._report(log, segment, tuple(found))

    def _closed_segment(self, log: Log, base: int) -> Segment | None:
        """The closed segment with this base offset; None where it is gone or the log cannot be used."""
        if self._logs.get(log.partition) is not log or log.has_failed:
            return None
        segments = log.segments
        if not segments.first.base_offset <= base < segments.active.base_offset:
            return None
        segment = segments.from_slot(segments.slot_of(base))[0]
        return segment if segment.base_offset == base else None

    def _report(self, log: Log, segment: Segment, found: tuple[DamagedRange, ...]) -> None:
        """Mark the damaged ranges, so that they are not served, and write them to the node's log."""
        known, segment.damaged = segment.damaged, found
        for damage in found:
            if damage in known:
                continue
            self.damaged_ranges += 1
            logger.error(
                "damaged records found: they are not served",
                partition=str(log.partition),
                file=segment.log_path,
                offsets=f"{damage.first_offset} to {damage.end_offset - 1}",
                bytes=f"{damage.position} to {damage.end_position - 1}",
                reason=damage.reason,
                action="Check the disk. The records are copied from another in-sync replica, if there is one.",
            )
        if found:
            self._damaged.add(log.partition)
            self.on_damage(log)

    # -- facts for metrics ---------------------------------------------------------------------------------------------

    def unrepaired_ranges(self) -> int:
        """The number of damaged ranges that are known and not repaired yet."""
        counts = {}
        for partition in self._damaged:
            log = self._logs.get(partition)
            counts[partition] = 0 if log is None else sum(len(segment.damaged) for segment in log.segments)
        self._damaged = {partition for partition, count in counts.items() if count}
        return sum(counts.values())


def checked_segment(log: Log, segment: Segment) -> CheckedSegment:
    """Return what a check needs to know of a closed segment."""
    following = log.segments.at(log.segments.slot_of(segment.base_offset) + 1)
    assert following is not None, f"{segment} is still written to"
    return CheckedSegment(
        segment.log_path,
        segment.offset_index.path,
        segment.size,
        segment.base_offset,
        following.base_offset,
        log.latest_epoch,
    )
