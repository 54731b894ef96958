"""One segment: a file of batches and its two indexes. Source: LogSegment.java, LocalLog.scala."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import CorruptFile
from klamm.log.indexes import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex, TimestampOffset
from klamm.log.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, segment_file
from klamm.log.open_files import OpenFiles, SharedFile
from klamm.log.repair.checking import DamagedRange
from klamm.log.scan import ScannedBatch, scan_headers
from klamm.log.transactions import TransactionIndex
from klamm.runtime.disk import Buffer
from klamm.wire.records.batch import NO_TIMESTAMP, CorruptRecords

_MAX_BOUNDARIES: Final = 128
_MAX_ENTRIES_TRIED: Final = 16


class BatchPosition(NamedTuple):
    """Where a batch begins; `size` is None where the header was not read."""

    position: int
    size: int | None


class Segment:
    """One segment of a log; positions are those of the `.log` file, offsets are absolute."""

    __slots__ = (
        "_boundaries",
        "_bytes_since_entry",
        "_files",
        "_first_timestamp",
        "_index_interval_bytes",
        "_suffix",
        "base_offset",
        "created_ms",
        "damaged",
        "directory",
        "is_preallocated",
        "largest",
        "log_path",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_max_bytes: int,
        created_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        """`suffix`: what stands after the usual names of all files, such as `.cleaned`."""
        disk = files.disk
        self._suffix = suffix
        self._files = files
        self._index_interval_bytes = index_interval_bytes
        self.directory = directory
        self.base_offset = base_offset
        self.log_path = self.path(LOG)
        self.offset_index = OffsetIndex(disk, self.path(INDEX), base_offset, index_max_bytes)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX), base_offset, index_max_bytes)
        self.transaction_index = TransactionIndex(disk, self.path(TRANSACTION_INDEX), base_offset)
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.size = 0
        self.largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        """The largest timestamp and the last offset of the batch that has it."""
        self.damaged: tuple[DamagedRange, ...] = ()
        """What is known to be damaged, in the order of the file; it is not served."""
        self.is_preallocated = False
        """Whether the file is longer than `size`, because it was created so: zeros follow the batches."""
        self._first_timestamp: int | None = None
        self._bytes_since_entry = 0
        # where offsets next to be read begin; readers at the tail need neither index nor scan
        self._boundaries: dict[int, int] = {base_offset: 0}

    def path(self, kind: str) -> str:
        """The path of the segment's file of this kind, such as `.log`."""
        return f"{self.directory}/{segment_file(self.base_offset, kind)}{self._suffix}"

    def paths(self) -> list[str]:
        """Every file a segment may have; not all of them exist."""
        return [self.path(suffix) for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)]

    # -- append ------------------------------------------------------------------------------------------------------

    def append(
        self, buffers: Sequence[Buffer], size: int, first_offset: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Write one batch of `size` bytes at the end of the segment.

        Raises OSError; the bytes written until then are never read.
        """
        position = self.size
        self._files.get(self.log_path).pwrite(buffers, position)
        self.index_batch(position, size, first_offset, last_offset, max_timestamp)

    def append_run(self, buffer: Buffer, batches: Sequence[tuple[int, int, int, int]]) -> None:
        """Write consecutive batches at once, each as (size, first offset, last offset, max timestamp)."""
        position = self.size
        self._files.get(self.log_path).pwrite((buffer,), position)
        for size, first_offset, last_offset, max_timestamp in batches:
            self.index_batch(self.size, size, first_offset, last_offset, max_timestamp)

    def index_batch(self, position: int, size: int, first_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Update size, timestamps and indexes for a batch that is in the file at `position`."""
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self.largest.timestamp:
            self.largest = TimestampOffset(max_timestamp, last_offset)
        if self._bytes_since_entry > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*self.largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        self.size = position + size
        boundaries = self._boundaries
        boundaries[last_offset + 1] = self.size
        if len(boundaries) > _MAX_BOUNDARIES:
            del boundaries[next(iter(boundaries))]

    def skip_batch(self, position: int, size: int) -> None:
        """Leave a damaged batch in the file at `position`, and index the batch after it."""
        self.size = position + size
        self._bytes_since_entry = self._index_interval_bytes + 1

    @property
    def first_timestamp(self) -> int | None:
        """The max timestamp of the first batch, from which the segment's age is counted; None while it is empty.

        -1 where that batch is damaged, which must not stop appends: the age then counts from the creation.
        """
        if self._first_timestamp is None and self.size:
            try:
                found = next(self.headers(0), None)
                self._first_timestamp = found.header.max_timestamp if found else None
            except CorruptRecords:
                self._first_timestamp = NO_TIMESTAMP
        return self._first_timestamp

    def fits(self, last_offset: int) -> bool:
        """Whether the offset can be stored relative to the segment's base offset."""
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    @property
    def has_full_index(self) -> bool:
        """Whether the offset index or the time index has no room for another entry."""
        return self.offset_index.is_full or self.time_index.is_full

    def seal(self) -> None:
        """End appends to the segment: write the last time index entry and the indexes, and free their memory."""
        self.cut_preallocated()
        self.time_index.append(*self.largest)
        self.write_indexes()
        self.offset_index.release()
        self.time_index.release()
        self._boundaries.clear()

    def cut_preallocated(self) -> None:
        """Cut the preallocated bytes that no batch has used from the file. Raises OSError."""
        if self.is_preallocated:
            self._files.truncate(self.log_path, self.size)
            self.is_preallocated = False

    def load_indexes(self) -> None:
        """Load the index files of a flushed segment. Raises FileNotFoundError, CorruptFile."""
        self.offset_index.load(self.size)
        self.time_index.load()
        self.largest = self.time_index.last  # the last entry, which roll and close write

    def write_indexes(self) -> None:
        """Write the offset and time index to their files where these do not have exactly the entries in memory."""
        for index in (self.offset_index, self.time_index):
            if not index.is_written:
                index.write()

    # -- look up and read --------------------------------------------------------------------------------------------

    def find(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is at least `offset`; None if there is none. Raises CorruptRecords."""
        position = self._boundaries.get(offset)
        if position is not None:
            return BatchPosition(position, None) if position < self.size else None
        for found in self.headers_from(offset):
            if found.header.last_offset >= offset:
                return BatchPosition(found.position, found.header.size)
        return None

    def headers_from(self, offset: int) -> Iterator[ScannedBatch]:
        """The batches from the last index entry at or before `offset` on. Raises CorruptRecords.

        An entry is used only where the batch that it points to begins at or before the entry's offset: a damaged index
        must not skip records.
        """
        self._load(self.offset_index)
        for entry in islice(self.offset_index.entries_down_from(offset), _MAX_ENTRIES_TRIED):
            if entry.offset > offset:
                continue  # the entries do not rise: one of them is damaged
            batches = self.headers(entry.position)
            try:
                first = next(batches, None)
            except CorruptRecords:
                continue
            if first is not None and self.base_offset <= first.header.base_offset <= entry.offset:
                return chain((first,), batches)
        return self.headers(0)

    def headers_at_timestamp(self, timestamp: int) -> Iterator[ScannedBatch]:
        """The batches from shortly before the first one whose maximum timestamp is at least this.

        The time index got its first entry of at least this timestamp with an entry of the offset index. All batches up
        to the offset index's entry before that are older. Raises CorruptRecords.
        """
        self._load(self.time_index)
        newer = self.time_index.ceiling(timestamp)
        return self.headers_from(self.offset_index.last_offset if newer is None else newer.offset - 1)

    def offset_bound(self, position: int) -> int | None:
        """The base offset of a batch shortly after `position`; None where no index entry leads to one."""
        self._load(self.offset_index)
        entry = self.offset_index.first_at_position(position)
        batch = None if entry is None else next(self.headers(entry.position), None)
        return None if batch is None else batch.header.base_offset

    def _load(self, index: OffsetIndex | TimeIndex) -> None:
        """Read the index into memory if it is not there. Raises OSError, NotCached."""
        if not index.is_in_memory:
            index.take(self._files.read(index.path))

    def headers(self, position: int) -> Iterator[ScannedBatch]:
        """Yield the headers of the batches from this file position on.

        Raises CorruptRecords where a batch does not follow the one before.
        """
        end = position
        try:
            for found in scan_headers(self.pread, position, self.size):
                end = found.position + found.header.size
                yield found
        except CorruptRecords as error:
            raise CorruptRecords(f"{self.log_path}: {error}") from error
        if end < self.size:
            raise CorruptRecords(
                f"{self.log_path}: the last {self.size - end} bytes, from byte {end} on, are not a complete batch"
            )

    def pread(self, count: int, position: int) -> bytes:
        """Read up to `count` bytes of the `.log` file from this position. Raises OSError, NotCached."""
        return self._files.pread(self.log_path, count, position)

    def lend_file(self) -> SharedFile | None:
        """Return the open file for a reader to keep; None where readers keep too many. Raises OSError."""
        return self._files.lend(self.log_path)

    def file_size(self) -> int:
        """The real size of the file; it is below `size` where another process truncated the file."""
        return self._files.get(self.log_path).size()

    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp of all batches, with its offset.

        Without any timestamp, the file's modification time at the base offset.
        """
        if self.largest.timestamp >= 0 or not self.size:
            return self.largest
        return TimestampOffset(self.modified_ms(), self.base_offset)

    def modified_ms(self) -> int:
        """The modification time of the `.log` file in ms. Raises OSError."""
        return self._files.disk.modified_ms(self.log_path)

    def check_before(self, offset: int) -> None:
        """Read the headers that a truncation to `offset` reads, up to the batch that contains it.

        Raises CorruptRecords.
        """
        for found in self.headers_from(offset - 1):
            if found.header.last_offset >= offset:
                return

    def restore_largest_timestamp(self) -> None:
        """Restore the largest timestamp after a truncation, from the time index and the batches that it lacks.

        Only batches after the last entry of the offset index are read: the time index covers those before it.
        """
        self.largest = self.time_index.last
        for found in self.headers_from(self.offset_index.last_offset):
            if found.header.max_timestamp > self.largest.timestamp:
                self.largest = TimestampOffset(found.header.max_timestamp, found.header.last_offset)

    def complete_time_index(self) -> None:
        """Add the entry with the largest timestamp, which a roll writes, if it is missing.

        Raises OSError, CorruptRecords.
        """
        self.restore_largest_timestamp()
        self.time_index.append(*self.largest)
        self.write_indexes()

    # -- truncate, close ---------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncate at the batch that contains `offset`, or the next one. Raises OSError."""
        spot = self.find(offset)
        if spot is None:
            return
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.truncate_file(spot.position)
        self.restore_largest_timestamp()
        if not self.size:
            self.created_ms = now_ms
            self._first_timestamp = None

    def truncate_file(self, size: int) -> None:
        """Cut the `.log` file to `size` bytes."""
        self._files.truncate(self.log_path, size)
        self.size = size
        self.is_preallocated = False
        self.damaged = tuple(damage for damage in self.damaged if damage.position < size)
        self._bytes_since_entry = 0
        self._boundaries = {self.base_offset: 0}

    def next_offset(self) -> int:
        """The offset after the last batch. Raises CorruptRecords where bytes that are no batch follow it."""
        next_offset = self.base_offset
        for found in self.headers_from(self.offset_index.last_offset):
            next_offset = found.header.next_offset
        return next_offset

    def check_end(self) -> None:
        """Check that appends can continue after the last batch. Raises CorruptFile, CorruptRecords."""
        next_offset = self.next_offset()
        last = max(self.offset_index.last_offset if self.offset_index.count else -1, self.largest.offset)
        if self.size and last >= next_offset:
            raise CorruptFile(
                f"an index of {self.log_path} has offset {last} in its last entry, but the segment ends before "
                f"{next_offset}"
            )
        if self.time_index.count and self.max_timestamp_at(self.largest.offset) != self.largest.timestamp:
            raise CorruptFile(
                f"{self.time_index.path}: its last entry has timestamp {self.largest.timestamp} for offset "
                f"{self.largest.offset}, but the batch there has another timestamp"
            )

    def max_timestamp_at(self, offset: int) -> int | None:
        """The maximum timestamp of the batch that contains this offset."""
        spot = self.find(offset)
        batch = None if spot is None else next(self.headers(spot.position), None)
        return None if batch is None else batch.header.max_timestamp

    def reset(self) -> None:
        """Forget size, timestamps and indexes; the caller then reads the file again."""
        self.offset_index.reset()
        self.time_index.reset()
        self.largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.size = 0
        self._first_timestamp = None
        self._bytes_since_entry = 0
        self._boundaries = {self.base_offset: 0}

    def use(self, files: OpenFiles) -> None:
        """Open files through this cache from now on."""
        self._files = files

    def move_to(self, directory: str) -> None:
        """Use these paths from now on, because the log's directory was renamed to `directory`."""
        self.close_files()
        self.directory = directory
        self.log_path = self.path(LOG)
        self.offset_index.path = self.path(INDEX)
        self.time_index.path = self.path(TIME_INDEX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX)

    def close_files(self) -> None:
        """Close the `.log` file; it is opened again when needed."""
        self._files.forget(self.log_path)

    def __repr__(self) -> str:
        return f"Segment({self.log_path}, {self.size} bytes)"


def new_segment(files: OpenFiles, directory: str, base_offset: int, config: TopicConfig, now_ms: int) -> Segment:
    """A segment object with the settings of the topic config."""
    return Segment(
        files,
        directory,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        index_max_bytes=config.segment_index_bytes,
        created_ms=now_ms,
    )
