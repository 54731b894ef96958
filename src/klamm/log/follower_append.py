"""What a follower checks of the leader's batches before it writes them. Source: UnifiedLog.scala (appendAsFollower)."""

from collections.abc import Iterator

from klamm.log.errors import UnexpectedOffset
from klamm.runtime.disk import Buffer
from klamm.wire.records import BatchHeader, CorruptRecords, batches, crc_is_valid

Run = list[BatchHeader]
"""Consecutive batches, at least one."""


def runs(buffer: Buffer, name: str, expected: int, segment_bytes: int) -> Iterator[Run]:
    """Batches that may be written at once: together they fit a segment, a larger one comes alone.

    Raises UnexpectedOffset where one begins before `expected` or its predecessor's end, CorruptRecords; what lies
    before the bad one has been given then. `name` is for the error's text.
    """
    run: Run = []
    run_bytes = 0
    for header in batches(buffer):
        problem = _problem(buffer, header, name, expected)
        if problem is not None:
            if run:
                yield run
            raise problem
        if run and run_bytes + header.size > segment_bytes:
            yield run
            run, run_bytes = [], 0
        run.append(header)
        run_bytes += header.size
        expected = header.next_offset
    if run:
        yield run


def _problem(buffer: Buffer, header: BatchHeader, name: str, expected: int) -> UnexpectedOffset | CorruptRecords | None:
    first, last = header.base_offset, header.last_offset
    if first < expected:
        text = f"{name}: batch of offsets {first} to {last}, expected {expected} or later"
        return UnexpectedOffset(text, first, last)
    if not crc_is_valid(buffer, header):
        return CorruptRecords(f"{name}: batch at offset {first}: CRC does not match")
    return None
