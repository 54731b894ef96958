"""Producer state and snapshots of one log, updated by appends, rolls and truncations.

Source: ProducerStateManager.java (takeSnapshot, truncateAndReload).
"""

import asyncio
from collections.abc import Callable

from klamm.config.topic_config import TopicConfig
from klamm.log.open_files import OpenFiles
from klamm.log.producer_files import SnapshotFiles, rebuild_producers, update_producers
from klamm.log.producers import Producers
from klamm.log.segment import Segment, new_segment
from klamm.log.segments import Segments
from klamm.log.transactions import AbortedTransaction
from klamm.runtime.disk import Buffer, Disk
from klamm.wire.records import BatchHeader

MAX_REPLAY_ON_LOOP_BYTES = 64 * 1024
"""More than that is replayed in a thread: some 1,000 small batches, a few milliseconds."""

_OPEN_FILES = 4


class ProducerState:
    """The producers of one log with their snapshot files."""

    __slots__ = ("_directory", "_disk", "_restoring", "_restoring_to", "_snapshots", "producers")

    def __init__(self, disk: Disk, directory: str, producers: Producers) -> None:
        self._disk = disk
        self._directory = directory
        self._snapshots = SnapshotFiles(disk, directory)
        self._restoring: asyncio.Task[None] | None = None
        self._restoring_to: int | None = None
        self.producers = producers

    @property
    def is_restoring(self) -> bool:
        """Whether a thread replays batches after a truncation; nothing may be appended meanwhile."""
        return self._restoring_to is not None

    def move_to(self, directory: str) -> None:
        """Use these paths from now on, because the log's directory was renamed; no thread may be replaying batches."""
        assert not self.is_restoring
        self._directory = self._snapshots.directory = directory

    def on_batch_written(self, header: BatchHeader, buffer: Buffer, active: Segment) -> None:
        """Update the producer state with a written batch. Raises OSError."""
        completed = update_producers(self.producers, header, buffer)
        if completed is not None and completed.is_aborted:
            stable = self.producers.last_stable_offset_after(completed)
            entry = AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            active.transaction_index.append(entry)

    def write_snapshot(self, base_offset: int) -> None:
        """Write the producer snapshot of a segment that begins at this offset, the log end or behind. Raises OSError.

        It is flushed and removed with the segment, by whose name it is found.
        """
        self.producers.end_offset = base_offset
        self._snapshots.write(self.producers)

    def write_last_snapshot(self, segments: Segments, log_start: int) -> str | None:
        """Write the producer snapshot of a closing log; returns the path of a new file, which is not synced yet.

        A start after a clean shutdown that finds no snapshot concludes that there are no producers.
        """
        self.finish_restoring(segments, log_start)
        if not self.producers and self.producers.snapshot_offset < 0:
            return None
        return self._snapshots.write(self.producers)

    def start_at(self, offset: int) -> None:
        """Remove all producers: the log was emptied and continues at `offset`. Raises OSError."""
        self._restoring_to = None
        self.producers.restore((), offset)
        self.producers.snapshot_offset = -1
        self._snapshots.remove(self._snapshots.offsets())

    # -- truncation ----------------------------------------------------------------------------------------------------

    def truncate_to(
        self, offset: int, segments: Segments, log_start: int, config: TopicConfig, on_error: Callable[[OSError], None]
    ) -> None:
        """Restore the producer state at `offset` after a truncation. Raises OSError.

        If the replay takes more than a few milliseconds, a thread does it; `on_error` is called with its I/O errors.
        """
        taken = self._snapshots.offsets()
        self._snapshots.remove(o for o in taken if o > offset)
        producers = self.producers
        producers.snapshot_offset = max((o for o in taken if o <= offset), default=-1)
        if not self.is_restoring and not producers.has_state_from(offset):
            producers.end_offset = offset
            return
        self._restoring_to = offset
        begin = max(producers.snapshot_offset, log_start)
        if _replay_bytes(segments, begin) <= MAX_REPLAY_ON_LOOP_BYTES or not _has_running_loop():
            self.finish_restoring(segments, log_start)
        elif self._restoring is None or self._restoring.done():
            work = self._restore_in_thread(segments, log_start, config, on_error)
            self._restoring = asyncio.get_running_loop().create_task(work)

    def finish_restoring(self, segments: Segments, log_start: int) -> None:
        """Finish the replay after a truncation in the calling thread. Raises OSError."""
        if self._restoring_to is not None:
            rebuild_producers(self._disk, self.producers, segments, self._directory, log_start, self._restoring_to)
            self._restoring_to = None

    async def _restore_in_thread(
        self, segments: Segments, log_start: int, config: TopicConfig, on_error: Callable[[OSError], None]
    ) -> None:
        """Replay batches in a thread, then replace the producer state in memory."""
        while (offset := self._restoring_to) is not None:
            paths = [(segment.base_offset, segment.size) for segment in segments]
            try:
                restored = await self._disk.in_thread(self._rebuild_from_files, paths, log_start, offset, config)
            except OSError as error:
                if self._restoring_to != offset:
                    continue  # another truncation removed files that the thread was about to read
                on_error(error)
                return
            if self._restoring_to == offset:  # no other truncation came meanwhile
                self.producers.replace_by(restored)
                self._restoring_to = None

    def _rebuild_from_files(
        self, segments: list[tuple[int, int]], log_start: int, end: int, config: TopicConfig
    ) -> Producers:
        """Rebuild the producer state at `end` in a thread that opens the files itself."""
        files = OpenFiles(self._disk, _OPEN_FILES)
        try:
            copies = []
            for base_offset, size in segments:
                copy = new_segment(files, self._directory, base_offset, config, 0)
                copy.size = size
                copies.append(copy)
            producers = Producers()
            rebuild_producers(self._disk, producers, Segments(copies), self._directory, log_start, end)
            return producers
        finally:
            files.close()


def _replay_bytes(segments: Segments, begin: int) -> int:
    """An upper bound of the bytes of batches from `begin` to the log end."""
    return sum(segment.size for segment in segments.from_slot(segments.slot_of(begin)))


def _has_running_loop() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
