"""What a follower checks of the leader's batches before it writes them. Source: UnifiedLog.scala (appendAsFollower).

It stores what the leader has, byte for byte, even where a batch announces what it does not hold: a log that leaves such
a batch out has diverged. Refused is only what this log could not be read with afterwards.
"""

from collections.abc import Iterator
from typing import Final

from klamm.log.errors import UnexpectedOffset
from klamm.log.indexes import MAX_RELATIVE_OFFSET
from klamm.runtime.disk import Buffer
from klamm.wire.records import BatchHeader, CorruptRecords, batches, crc_is_valid, end_marker_of

Run = list[BatchHeader]
"""Consecutive batches, at least one."""
_MAX_OFFSET: Final = 2**63 - 2
"""The end of the log, one more, must be an offset too."""


def appendable_runs(buffer: Buffer, name: str, expected: int, segment_bytes: int) -> Iterator[Run]:
    """Group batches into runs that fit a segment and are written at once; a larger batch is a run alone.

    Raises UnexpectedOffset where a batch begins before `expected` or before its predecessor's end, and CorruptRecords;
    the batches before the bad one have been yielded by then. `name` is for the error's text.
    """
    run: Run = []
    run_bytes = 0
    for header in batches(buffer):
        problem = _problem(buffer, header, name, expected)
        if problem is not None:
            if run:
                yield run
            raise problem
        if run and not _fits(run[0], run_bytes, header, segment_bytes):
            yield run
            run, run_bytes = [], 0
        run.append(header)
        run_bytes += header.size
        expected = header.next_offset
    if run:
        yield run


def _fits(first: BatchHeader, run_bytes: int, header: BatchHeader, segment_bytes: int) -> bool:
    """Whether the batch fits in the same segment as the run so far."""
    return run_bytes + header.size <= segment_bytes and header.last_offset - first.base_offset <= MAX_RELATIVE_OFFSET


def base_of_new_segment(run: Run, log_end: int) -> int:
    """The base offset of a segment that begins with this run, where the log ends at `log_end`.

    It is the log's end, or as late as it must be to hold the run's last offset. Compaction may have left a gap before
    the run in the leader's log: a segment that began after it would look, after a power loss, as if the end of the
    segment before it were lost. Apache Kafka begins it at the run's base offset.
    """
    return max(log_end, run[-1].last_offset - MAX_RELATIVE_OFFSET)


def _problem(buffer: Buffer, header: BatchHeader, name: str, expected: int) -> UnexpectedOffset | CorruptRecords | None:
    """Why a follower must not write the batch; None where it may."""
    first, last = header.base_offset, header.last_offset
    if first < expected:
        text = f"{name}: the leader sent a batch of offsets {first} to {last}, but {expected} or later was expected"
        return UnexpectedOffset(text, first, last)
    if last < first or last > _MAX_OFFSET:
        return CorruptRecords(
            f"{name}: batch at offset {first}: its last offset {last} is not between {first} and {_MAX_OFFSET}"
        )
    if not crc_is_valid(buffer, header):
        return CorruptRecords(f"{name}: batch at offset {first}: its CRC does not match its bytes")
    if header.is_control and header.has_producer:
        return _marker_problem(buffer, header, name)
    return None


def _marker_problem(buffer: Buffer, header: BatchHeader, name: str) -> CorruptRecords | None:
    """Why a transaction marker cannot be read; None where it can.

    A marker decides about its transaction, so it must be readable once it is written.
    """
    try:
        end_marker_of(buffer, header)
    except CorruptRecords as error:
        return CorruptRecords(f"{name}: {error}")
    return None
