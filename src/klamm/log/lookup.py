"""Offsets by timestamp. Source: LogSegment.java (findOffsetByTimestamp), UnifiedLog.scala (fetchOffsetByTimestamp).

Most searches read a few batch headers and one small batch, which the event loop does. A worker process does those that
read more, or read from the device: clients decide how many records a batch has and which timestamps it announces.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from klamm.log.errors import CorruptFile
from klamm.log.indexes import TimestampOffset
from klamm.log.open_files import OpenFiles
from klamm.log.preparation import MAX_DECOMPRESSED_BYTES, MAX_INLINE_BYTES, MAX_INLINE_RECORDS
from klamm.log.scan import ScannedBatch
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.runtime.disk import Disk
from klamm.wire.compression import BadCompression, Codec
from klamm.wire.records import BatchHeader, CorruptRecords
from klamm.wire.records.batch import HEADER_BYTES, MAGIC, TimestampType
from klamm.wire.records.legacy import messages_of
from klamm.wire.records.walk import MalformedRecord, walk
from klamm.wire.unfolding import decompress_pieces

_MAX_HEADERS_ON_LOOP: Final = 256
_OPEN_FILES: Final = 4
_INDEX_BYTES: Final = 1 << 31  # nothing is appended to these indexes


class FoundOffset(NamedTuple):
    """A record found by timestamp; `leader_epoch` is its batch's, -1 where that has none."""

    timestamp: int
    offset: int
    leader_epoch: int


class SearchedSegment(NamedTuple):
    """What a search in another process needs to know of a segment."""

    base_offset: int
    size: int
    largest: TimestampOffset


class OffsetSearch(NamedTuple):
    """A search in the files of a log, for any process. `timestamp`: None for the largest one."""

    directory: str
    segments: tuple[SearchedSegment, ...]
    timestamp: int | None
    log_start: int


class SearchResult(NamedTuple):
    """What a search found: a record, none, or files that cannot be read (`problem`, with `errno` of an I/O error)."""

    found: FoundOffset | None
    problem: str | None = None
    errno: int | None = None


class NeedsWorker(Exception):
    """The search takes too long for the event loop."""


def searched_segments(segments: Segments, timestamp: int | None, log_start: int) -> tuple[SearchedSegment, ...]:
    """The segments that may have a record of at least this timestamp, None: any record."""
    behind_start = segments.from_slot(segments.slot_of(log_start))
    return tuple(
        SearchedSegment(s.base_offset, s.size, s.largest)
        for s in behind_start
        if timestamp is None or s.largest.timestamp >= timestamp
    )


def find_now(segments: Segments, timestamp: int, log_start: int) -> FoundOffset | None:
    """The first record from `log_start` on whose timestamp is at least this, in less than a millisecond.

    Raises NeedsWorker where that is not possible, CorruptRecords.
    """
    behind_start = segments.from_slot(segments.slot_of(log_start))
    return _first_at_or_after(behind_start, timestamp, log_start, _Effort(_MAX_HEADERS_ON_LOOP))


def find_in_files(disk: Disk, search: OffsetSearch) -> SearchResult:
    """Run a search in the log's files; for a worker process."""
    files = OpenFiles(disk, _OPEN_FILES)
    try:
        if search.timestamp is None:
            return SearchResult(_largest_by_scan(list(_opened(files, search)), search.log_start))
        return SearchResult(_first_at_or_after(_opened(files, search), search.timestamp, search.log_start, None))
    except CorruptRecords as error:
        return SearchResult(None, str(error))
    except OSError as error:
        return SearchResult(None, str(error), error.errno or -1)
    finally:
        files.close()


def offset_count_before(modified_ms: Sequence[int], timestamp: int) -> int:
    """How many of the times in `modified_ms` come up to and include the last one that is at most `timestamp`."""
    return next((slot + 1 for slot in reversed(range(len(modified_ms))) if modified_ms[slot] <= timestamp), 0)


class _Effort:
    """Counts what a search reads on the event loop."""

    def __init__(self, headers: int) -> None:
        self._headers = headers

    def on_header(self) -> None:
        """Count a header that is read. Raises NeedsWorker above the limit."""
        self._headers -= 1
        if self._headers < 0:
            raise NeedsWorker

    def on_batch(self, header: BatchHeader) -> None:
        """Raise NeedsWorker for a batch whose records take long to read."""
        is_short = header.size <= MAX_INLINE_BYTES and header.record_count <= MAX_INLINE_RECORDS
        if header.codec is not Codec.NONE or not is_short:
            raise NeedsWorker


def _opened(files: OpenFiles, search: OffsetSearch) -> Iterator[Segment]:
    """The segments of a search, one after the other, with their index files opened."""
    for facts in search.segments:
        segment = Segment(
            files,
            search.directory,
            facts.base_offset,
            index_interval_bytes=0,
            index_max_bytes=_INDEX_BYTES,
            created_ms=0,
        )
        segment.size = facts.size
        try:
            segment.load_indexes()
        except CorruptFile:  # without its indexes the whole segment is read
            segment.offset_index.reset()
            segment.time_index.reset()
        segment.largest = facts.largest
        yield segment


def _first_at_or_after(
    segments: Iterable[Segment], timestamp: int, log_start: int, effort: _Effort | None
) -> FoundOffset | None:
    """The first record from `log_start` on whose timestamp is at least this. Raises NeedsWorker above the effort."""
    for segment in segments:
        if segment.largest.timestamp < timestamp:
            continue
        for found in segment.headers_at_timestamp(timestamp):
            if effort is not None:
                effort.on_header()
            header = found.header
            if header.max_timestamp < timestamp or header.last_offset < log_start:
                continue
            if effort is not None:
                effort.on_batch(header)
            for time, offset in times_and_offsets(segment, found):
                if time >= timestamp and offset >= log_start:
                    return FoundOffset(time, offset, header.partition_leader_epoch)
    return None


def _largest_by_scan(segments: Sequence[Segment], log_start: int) -> FoundOffset | None:
    """Find the first record with the largest timestamp at or after the log start by reading every batch.

    Headers that announce a later timestamp than their records have do not count.
    """
    largest: FoundOffset | None = None
    for segment in segments:
        for found in segment.headers(0):
            header = found.header
            if header.last_offset < log_start or header.max_timestamp <= (-1 if largest is None else largest.timestamp):
                continue
            for time, offset in times_and_offsets(segment, found):
                if offset >= log_start and time > (-1 if largest is None else largest.timestamp):
                    largest = FoundOffset(time, offset, header.partition_leader_epoch)
    return largest


def times_and_offsets(segment: Segment, found: ScannedBatch) -> Iterator[tuple[int, int]]:
    """Timestamp and offset of each record of a batch. Raises CorruptRecords."""
    header = found.header
    batch = segment.pread(header.size, found.position)
    if header.magic < MAGIC:
        for message in messages_of(batch, header._replace(position=0), MAX_DECOMPRESSED_BYTES):
            yield message.timestamp, message.offset
        return
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    pieces = decompress_pieces(header.codec, memoryview(batch)[HEADER_BYTES:])
    try:
        for timestamp_delta, offset_delta, _has_key in walk(pieces, header.record_count):
            time = header.max_timestamp if is_append_time else header.base_timestamp + timestamp_delta
            yield time, header.base_offset + offset_delta
    except (BadCompression, MalformedRecord) as error:
        raise CorruptRecords(f"{segment.log_path}, batch at offset {header.base_offset}: {error}") from error
