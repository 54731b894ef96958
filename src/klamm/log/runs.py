"""Reads batches of a segment file in runs of bounded size, for those who decode many of them at once."""

from typing import Final, NamedTuple

from klamm.runtime.disk import File
from klamm.wire.records.batch import (
    IDENTIFYING_BYTES,
    MAGIC,
    BatchHeader,
    CorruptRecords,
    crc_is_valid,
    crc_mismatch,
    entry_size,
    header_at,
)
from klamm.wire.vectors.batches import NO_END, CorruptBatch, Run, check_crc, read_run

MIN_READ_BYTES: Final = 64 * 1024


class LegacyRun(NamedTuple):
    """Adjacent messages of the formats 0 and 1, compressed or not, and their headers."""

    buffer: bytes
    headers: list[BatchHeader]


def run_at(file: File, position: int, size: int, read_bytes: int, end_offset: int = NO_END) -> Run:
    """Read about `read_bytes` of a file of `size` bytes, and return the complete batches there before `end_offset`.

    Where one of them cannot be read, those before it are returned. There is at least one, unless the batch at
    `position` begins at or after `end_offset`. A read grows for a larger batch. The checksums are not verified. Raises
    CorruptBatch where the first batch is cut off or of an old format.
    """
    content = file.pread(min(max(read_bytes, MIN_READ_BYTES), size - position), position)
    try:
        run = read_run(content, end_offset)
    except CorruptBatch as error:
        run = _intact(read_run(content[: error.position], end_offset))
        if not run.positions:
            raise
    if run.positions or (len(content) >= IDENTIFYING_BYTES and int.from_bytes(content[:8]) >= end_offset):
        return run
    try:
        if len(content) < IDENTIFYING_BYTES or (needed := entry_size(content)) > size - position:
            raise CorruptBatch(f"the last batch, at byte {position}, is cut off at the end of the file, byte {size}", 0)
    except CorruptRecords as error:
        raise CorruptBatch(str(error), 0) from error
    run = read_run(file.pread(needed, position))
    if not run.positions:
        raise CorruptBatch(f"the file became shorter than {size} bytes while it was read", 0)
    return run


def _intact(run: Run) -> Run:
    """The batches before a wrong length: those up to the first one whose checksum is wrong. Raises CorruptBatch for it.

    A wrong length leads into the midst of a batch, but is noticed only there.
    """
    try:
        check_crc(run)
    except CorruptBatch as error:
        if not error.position:
            raise
        return run.first(run.positions.index(error.position))
    return run


def is_legacy_at(file: File, position: int) -> bool:
    """Whether a message of format 0 or 1 begins at this position of the file."""
    start = file.pread(IDENTIFYING_BYTES, position)
    return len(start) == IDENTIFYING_BYTES and 0 <= start[-1] < MAGIC


def is_legacy_intact_at(file: File, position: int, size: int) -> bool:
    """Whether the messages of format 0 or 1 from this position on are intact, in a file of `size` bytes.

    False for what only looks like one: a batch of format 2 with a damaged header.
    """
    try:
        return is_legacy_at(file, position) and bool(legacy_run_at(file, position, size, MIN_READ_BYTES).headers)
    except CorruptRecords:
        return False


def legacy_run_at(file: File, position: int, size: int, read_bytes: int) -> LegacyRun:
    """The messages of the formats 0 and 1 from this position on; there is at least one. Raises CorruptRecords."""
    needed = entry_size(file.pread(IDENTIFYING_BYTES, position))
    if needed > size - position:
        raise CorruptRecords(f"the last message is cut off at the end of the file, byte {size}")
    content = file.pread(min(max(read_bytes, MIN_READ_BYTES, needed), size - position), position)
    headers: list[BatchHeader] = []
    end, last_offset = 0, -1
    while end + IDENTIFYING_BYTES <= len(content) and content[end + IDENTIFYING_BYTES - 1] != MAGIC:
        if end + entry_size(content, end) > len(content):
            break
        header = header_at(content, end)
        if not crc_is_valid(content, header):
            raise crc_mismatch(header)
        if header.base_offset <= last_offset:
            raise CorruptRecords(
                f"offsets do not rise: the message with offset {header.base_offset} comes after that with {last_offset}"
            )
        headers.append(header)
        end, last_offset = end + header.size, header.base_offset
    if not headers:
        raise CorruptRecords(f"the file became shorter than {size} bytes while it was read")
    return LegacyRun(content[:end], headers)
