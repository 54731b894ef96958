"""Iterates over the batches of a segment file. Source: FileLogInputStream.java."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from klamm.runtime.disk import File
from klamm.wire.records.batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    CorruptRecords,
    crc_is_valid,
    crc_mismatch,
    entry_size,
    header_at,
)

HEADER_CHUNK_BYTES: Final = 16 * 1024
BATCH_CHUNK_BYTES: Final = 1024 * 1024


class ScannedBatch(NamedTuple):
    """A batch in a file: where it begins, its header, and a buffer that holds it at `header.position`."""

    position: int
    header: BatchHeader
    buffer: bytes


def scan_headers(
    read: Callable[[int, int], bytes], start: int, end: int, chunk_bytes: int = HEADER_CHUNK_BYTES
) -> Iterator[ScannedBatch]:
    """Each batch that lies completely in [start, end); `buffer` has its header only.

    `read(count, position)` reads from the file. Raises CorruptRecords.
    """
    position = start
    chunk, chunk_start = b"", start
    try:
        while position + PREFIX_BYTES <= end:
            within = position - chunk_start
            if within + HEADER_BYTES > len(chunk):
                chunk, chunk_start, within = read(min(chunk_bytes, end - position), position), position, 0
                if len(chunk) < PREFIX_BYTES:
                    return
            size = entry_size(chunk, within)
            if position + size > end:
                return
            yield ScannedBatch(position, header_at(chunk, within), chunk)
            position += size
    except CorruptRecords as error:
        raise CorruptRecords(f"batch at byte {position}: {error}") from error


def scan_batches(file: File, start: int, end: int, *, check: bool) -> Iterator[ScannedBatch]:
    """Each batch that lies completely in [start, end), with its bytes.

    With `check`, raises CorruptRecords where a batch is malformed, cut off or does not match its CRC.
    """
    position = start
    chunk, chunk_start = b"", start
    try:
        while position < end:
            within = position - chunk_start
            if within + PREFIX_BYTES > len(chunk):
                chunk, chunk_start, within = file.pread(min(BATCH_CHUNK_BYTES, end - position), position), position, 0
                if len(chunk) < PREFIX_BYTES:
                    break
            size = entry_size(chunk, within)
            if position + size > end:
                break
            if within + size > len(chunk):
                chunk, chunk_start, within = (
                    file.pread(min(max(size, BATCH_CHUNK_BYTES), end - position), position),
                    position,
                    0,
                )
                if len(chunk) < size:
                    break
            header = header_at(chunk, within)
            if check and not crc_is_valid(chunk, header):
                raise crc_mismatch(header)
            yield ScannedBatch(position, header, chunk)
            position += size
    except CorruptRecords as error:
        raise CorruptRecords(f"batch at byte {position}: {error}") from error
    if check and position < end:
        raise CorruptRecords(f"batch at byte {position}: it is cut off at byte {end}, where the data ends")
