"""What is read of a log: batches, aborted transactions, offsets by timestamp. Source: UnifiedLog.scala."""

import errno
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Final

from klamm.log.errors import ColdRead, CorruptFile, NotCached, OffsetOutOfRange, StorageFailed
from klamm.log.file_slice import FileSlice
from klamm.log.local_log import ReadResult
from klamm.log.log_storage import LogStorage
from klamm.log.lookup import (
    FoundOffset,
    NeedsWorker,
    OffsetSearch,
    find_in_files,
    find_now,
    offset_count_before,
    searched_segments,
)
from klamm.log.transactions import AbortedTransaction
from klamm.runtime.disk import Disk
from klamm.wire.records import CorruptRecords

_READ_AT_ONCE_BYTES: Final = 16 * 1024
_MAX_SEARCHES: Final = 3


class ReadableLog(LogStorage):
    """Reads and look-ups of one log."""

    __slots__ = ()

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int | None = None, min_one_message: bool = True
    ) -> ReadResult:
        """Read batches from the one that contains `offset` on, below the bound (None: the log end).

        Raises OffsetOutOfRange, StorageFailed, CorruptRecords.
        """
        bound = self._checked_bound(offset, upper_bound_offset)
        with self._translating_io_errors():
            return self._local.read(offset, max_bytes, bound, min_one=min_one_message)

    def bytes_before(self, offset: int) -> int:
        """How many bytes the batches have that end before `offset`. Raises StorageFailed, CorruptRecords."""
        self._check_usable()
        slot = self.segments.slot_of(offset)
        size = sum(segment.size for segment in self.segments.from_slot(0)[:slot])
        with self._translating_io_errors():
            segment = self.segments.from_slot(slot)[0]
            found = segment.find(offset)
        return size + (segment.size if found is None else found.position)

    def slice(self, offset: int, max_bytes: int, upper_bound_offset: int, min_one_message: bool) -> ReadResult:
        """Read like `read`, but return a slice of the file, whose bytes can be read later, even after a deletion.

        Where readers keep too many files open already, few bytes are read at once. Raises what `read` raises.
        """
        bound = self._checked_bound(offset, upper_bound_offset)
        with self._translating_io_errors():
            found = self._local.locate(offset, max_bytes, bound, min_one=min_one_message)
            segment = found.segment
            shared = segment.lend_file() if found.size else None
            if shared is None:
                return self._local.read(offset, min(max_bytes, _READ_AT_ONCE_BYTES), bound, min_one=min_one_message)
            records = FileSlice(
                self._world.disk,
                segment.log_path,
                shared,
                found.position,
                found.size,
                self._report_failure,
                is_closed=segment is not self.segments.active,
            )
            return ReadResult(records, segment.base_offset, found.position)

    def _checked_bound(self, offset: int, upper_bound_offset: int | None) -> int:
        """The offset at which a read ends. Raises OffsetOutOfRange if `offset` lies outside the log."""
        self._check_usable()
        end = self._local.end_offset
        if offset > end or offset < self._log_start:
            raise OffsetOutOfRange(self.partition, offset, self._log_start, end)
        return end if upper_bound_offset is None or upper_bound_offset > end else upper_bound_offset

    def aborted_in(self, result: ReadResult, offset: int, bound: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the records read from `offset` on, below `bound`.

        Raises StorageFailed, CorruptRecords.
        """
        segments = self.segments
        slot = segments.slot_of(result.segment_base)
        following = segments.at(slot + 1)
        end = segments.from_slot(slot)[0].offset_bound(result.position + len(result.records))
        if end is None:
            end = self.end_offset if following is None else following.base_offset
        return self.aborted_transactions(offset, min(end, bound))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap offsets from `start_offset` to before `end_offset`.

        Raises StorageFailed, CorruptRecords.
        """
        aborted: list[AbortedTransaction] = []
        with self._translating_io_errors():
            for segment in self.segments.from_slot(self.segments.slot_of(start_offset)):
                try:
                    if segment.transaction_index.collect(start_offset, end_offset, aborted):
                        break
                except CorruptFile as error:
                    raise CorruptRecords(
                        f"the index of aborted transactions is damaged: {error}. The next start of the node "
                        "builds it again."
                    ) from error
        return aborted

    @contextmanager
    def avoiding_device(self, read_before: Container[ColdRead] = ()) -> Iterator[None]:
        """Within the block, reads raise NotCached instead of waiting for the device, except of `read_before`."""
        with self._local.files.avoiding_device(read_before):
            yield

    async def read_into_cache(self, read: ColdRead) -> None:
        """Read these bytes in a thread, so that they are in the page cache. Raises StorageFailed."""
        with self._translating_io_errors():
            await self._world.disk.in_thread(_read_file, self._world.disk, read)

    async def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """The first record of at least this timestamp, None without one.

        Raises StorageFailed, CorruptRecords, WorkerFailed.
        """
        self._check_usable()
        with self._translating_io_errors():
            try:
                with self._local.files.avoiding_device():
                    return find_now(self.segments, timestamp, self._log_start)
            except (NeedsWorker, NotCached):
                return await self._find_in_worker(timestamp)

    async def max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp. Raises StorageFailed, CorruptRecords, WorkerFailed."""
        self._check_usable()
        largest = max(segment.largest.timestamp for segment in self.segments)
        if largest < 0:
            return None
        found = await self.offset_for_timestamp(largest)
        if found is None:  # a header announces it, or the record is before the log start
            with self._translating_io_errors():
                found = await self._find_in_worker(None)
        return found

    async def _find_in_worker(self, timestamp: int | None) -> FoundOffset | None:
        """Search in the files of the log, in a worker process; again if files were replaced or deleted meanwhile.

        Raises OSError, CorruptRecords, WorkerFailed.
        """
        for attempt in range(_MAX_SEARCHES):
            self._check_usable()
            self.segments.active.write_indexes()
            before = list(self.segments)
            segments = searched_segments(self.segments, timestamp, self._log_start)
            search = OffsetSearch(self.directory, segments, timestamp, self._log_start)
            result = await self._world.workers.run(find_in_files, self._world.disk, search)
            is_last = attempt == _MAX_SEARCHES - 1
            if result.problem is None:
                return result.found
            if is_last and result.errno in (None, errno.ENOENT) and not set(before) <= set(self.segments):
                raise StorageFailed(  # neither the disk nor the records are to blame
                    f"segments of {self.directory} were replaced each time while they were searched. Retry."
                )
            if result.errno not in (None, errno.ENOENT) or (result.errno is not None and is_last):
                raise OSError(result.errno, result.problem)
            if is_last:
                raise CorruptRecords(result.problem)
        raise AssertionError("bug: the last attempt neither returned nor raised")

    def segment_offsets_before(self, timestamp: int, most: int) -> list[int]:
        """Base offsets of segments written up to the timestamp, and the log end, newest first; for old ListOffsets.

        A timestamp of -1 means all, -2 the first one. Source: UnifiedLog.legacyFetchOffsetsBefore. Raises
        StorageFailed.
        """
        self._check_usable()
        offsets = [max(segment.base_offset, self._log_start) for segment in self.segments]
        with self._translating_io_errors():
            times = [segment.modified_ms() for segment in self.segments]
        if self.segments.active.size:
            offsets.append(self.end_offset)
            times.append(self._world.clock.now_ms())
        count = {-1: len(offsets), -2: 1}.get(timestamp)
        if count is None:
            count = offset_count_before(times, timestamp)
        return offsets[max(0, count - most) : count][::-1] if most > 0 else []


def _read_file(disk: Disk, read: ColdRead) -> None:
    """Read a part of a file; what was deleted meanwhile is not read."""
    try:
        file = disk.open_read(read.path)
    except FileNotFoundError:
        return
    try:
        file.pread(read.size, read.position)
    finally:
        file.close()
