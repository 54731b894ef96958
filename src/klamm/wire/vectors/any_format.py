"""The batches of one fetched run of bytes in any message format: those of format 0 and 1 become batches of format 2."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from klamm.wire.records.batch import (
    IDENTIFYING_BYTES,
    MAGIC,
    BatchHeader,
    CorruptRecords,
    batches,
    crc_is_valid,
    header_at,
)
from klamm.wire.records.up_conversion import grouped, up_convert
from klamm.wire.vectors.batches import CorruptBatch, Run, read_run


def read_run_of_any_format(records: bytes | memoryview) -> Run:
    """The complete batches in `records`, as `read_run` returns them, after a conversion of old messages.

    The column `magic` of the headers has the format before the conversion. What is only of format 2 is not copied.
    Raises CorruptBatch, also where a checksum of an old message is wrong.
    """
    buffer = memoryview(records)
    try:
        run = read_run(buffer)
    except CorruptBatch as error:
        if error.position is None or not _is_old(buffer, error.position):
            raise
    else:
        if not _is_old(buffer, sum(run.sizes)):  # the last messages may be shorter than a header of format 2
            return run
    return converted(buffer, _headers(buffer))


def _is_old(buffer: memoryview, position: int) -> bool:
    """Whether a message of format 0 or 1 begins at this position."""
    at = position + IDENTIFYING_BYTES - 1
    return at < len(buffer) and buffer[at] < MAGIC


def is_old_message(buffer: memoryview, position: int) -> bool:
    """Whether an intact message of format 0 or 1 begins at this position; damage may only look like one."""
    try:
        header = header_at(buffer, position)
    except CorruptRecords:
        return False
    return header.magic < MAGIC and position + header.size <= len(buffer) and crc_is_valid(buffer, header)


class _Piece(NamedTuple):
    content: bytes | memoryview
    magic: int


def converted(buffer: memoryview, headers: Iterable[BatchHeader]) -> Run:
    """The batches and messages of these headers as one run, a copy; their checksums are verified where they are old.

    Raises CorruptBatch.
    """
    pieces = [_convert(buffer, group) for group in grouped(headers)]
    run = read_run(b"".join(piece.content for piece in pieces))
    assert len(run.positions) == len(pieces), "each piece is one whole batch"
    run.headers["magic"] = np.array([piece.magic for piece in pieces], np.int8)
    return run


def _headers(buffer: memoryview) -> Iterator[BatchHeader]:
    """The headers of the complete batches and messages. Raises CorruptBatch."""
    end = 0
    try:
        for header in batches(buffer):
            yield header
            end = header.position + header.size
    except CorruptRecords as error:
        raise CorruptBatch(str(error), end) from error


def _convert(buffer: memoryview, group: list[BatchHeader]) -> _Piece:
    """One batch as it is, or old messages as one batch. Raises CorruptBatch."""
    first = group[0]
    if first.magic == MAGIC:
        return _Piece(buffer[first.position : first.position + first.size], MAGIC)
    try:
        return _Piece(up_convert(buffer, group), first.magic)
    except CorruptRecords as error:
        raise CorruptBatch(str(error), first.position) from error
