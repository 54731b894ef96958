"""Offsets by timestamp. Source: LogSegment.java (findOffsetByTimestamp), UnifiedLog.scala (fetchOffsetByTimestamp)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from klamm.log.scan import ScannedBatch
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.wire.records import Record, records


class FoundOffset(NamedTuple):
    """A record found by timestamp; `leader_epoch` is its batch's, -1 where that has none."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Segments, timestamp: int, log_start: int) -> FoundOffset | None:
    """The first record from `log_start` on whose timestamp is at least this."""
    for segment in segments:
        if segment.largest.timestamp < timestamp:
            continue
        if found := first_in_batches(segment, segment.headers_at_timestamp(timestamp), timestamp, log_start):
            return found
    return None


def first_in_batches(
    segment: Segment, batches: Iterable[ScannedBatch], timestamp: int, log_start: int
) -> FoundOffset | None:
    """The first record in these batches of the segment, from `log_start` on, whose timestamp is at least this."""
    for found in batches:
        if found.header.max_timestamp < timestamp or found.header.last_offset < log_start:
            continue
        for record in _records(segment, found):
            if record.timestamp >= timestamp and record.offset >= log_start:
                return FoundOffset(record.timestamp, record.offset, found.header.partition_leader_epoch)
    return None


def offset_count_before(modified_ms: Sequence[int], timestamp: int) -> int:
    """How many of the times in `modified_ms` come up to and include the last one that is at most `timestamp`."""
    return next((slot + 1 for slot in reversed(range(len(modified_ms))) if modified_ms[slot] <= timestamp), 0)


def with_largest_timestamp(segments: Segments, log_start: int) -> FoundOffset | None:
    """The first record that has the largest timestamp in the log."""
    holder = max(segments, key=lambda segment: (segment.largest.timestamp, -segment.base_offset))
    if holder.largest.timestamp < 0:
        return None
    found = first_at_or_after(segments, holder.largest.timestamp, log_start)
    return found or _largest_by_scan(segments, log_start)


def _largest_by_scan(segments: Segments, log_start: int) -> FoundOffset | None:
    """Find the record with the largest timestamp at or after the log start by reading every batch.

    None without records.
    """
    largest_timestamp = -1
    for segment in segments.from_slot(segments.slot_of(log_start)):
        for found in segment.headers(0):
            header = found.header
            if header.last_offset < log_start or header.max_timestamp <= largest_timestamp:
                continue
            if header.base_offset >= log_start:
                largest_timestamp = header.max_timestamp
                continue
            alive = [record.timestamp for record in _records(segment, found) if record.offset >= log_start]
            largest_timestamp = max([largest_timestamp, *alive])
    return first_at_or_after(segments, largest_timestamp, log_start) if largest_timestamp >= 0 else None


def _records(segment: Segment, found: ScannedBatch) -> Iterator[Record]:
    """The records of a batch."""
    header = found.header
    batch = segment.pread(header.size, found.position)
    return records(batch, header._replace(position=0))
