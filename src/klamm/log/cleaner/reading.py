"""The batches of segment files, read in runs of bounded size by the process that cleans."""

from collections.abc import Iterator
from typing import NamedTuple

from klamm.log.names import LOG, segment_file
from klamm.log.runs import MIN_READ_BYTES, run_at
from klamm.runtime.disk import Disk, File
from klamm.wire.records import BatchHeader, CorruptRecords, crc_is_valid, entry_size, header_at
from klamm.wire.records.batch import IDENTIFYING_BYTES, MAGIC, crc_mismatch
from klamm.wire.vectors.batches import CorruptBatch, Run, check_crc, check_order


class LegacyRun(NamedTuple):
    """Adjacent messages of the formats 0 and 1, compressed or not, and their headers."""

    buffer: bytes
    headers: list[BatchHeader]


def log_path(directory: str, base_offset: int) -> str:
    """Return the path of the `.log` file of the segment with this base offset."""
    return f"{directory}/{segment_file(base_offset, LOG)}"


def read_runs(disk: Disk, path: str, size: int, read_bytes: int) -> Iterator[Run | LegacyRun]:
    """The batches in the first `size` bytes of the file, checked; a run has batches of format 2, or older ones.

    A read grows for a batch that is larger. Raises OSError, and CorruptBatch with the file and position where a batch
    is damaged or cut off.
    """
    file = disk.open_read(path)
    try:
        position = 0
        while position < size:
            try:
                run = _checked_run(file, position, size, read_bytes)
            except (CorruptBatch, CorruptRecords) as error:
                raise CorruptBatch(f"{path}, from byte {position} on: {error}") from error
            position += sum(run.sizes) if isinstance(run, Run) else len(run.buffer)
            yield run
    finally:
        file.close()


def _checked_run(file: File, position: int, size: int, read_bytes: int) -> Run | LegacyRun:
    """The batches from this position on, until about `read_bytes` or the format changes between 2 and older.

    Raises CorruptBatch, CorruptRecords.
    """
    start = file.pread(IDENTIFYING_BYTES, position)
    if len(start) == IDENTIFYING_BYTES and 0 <= start[-1] < MAGIC:
        return _legacy_run(file, position, size, read_bytes)
    run = run_at(file, position, size, read_bytes)
    check_order(run)
    check_crc(run)
    return run


def _legacy_run(file: File, position: int, size: int, read_bytes: int) -> LegacyRun:
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
