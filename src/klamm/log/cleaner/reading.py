"""The batches of segment files, read in runs of bounded size by the process that cleans."""

from collections.abc import Iterator
from typing import Final

from klamm.log.names import LOG, segment_file
from klamm.runtime.disk import Disk, File
from klamm.wire.records.batch import IDENTIFYING_BYTES, entry_size
from klamm.wire.vectors.batches import CorruptBatch, Run, check_crc, check_order, read_run

MIN_READ_BYTES: Final = 64 * 1024


def log_path(directory: str, base_offset: int) -> str:
    """Return the path of the `.log` file of the segment with this base offset."""
    return f"{directory}/{segment_file(base_offset, LOG)}"


def read_runs(disk: Disk, path: str, size: int, read_bytes: int) -> Iterator[Run]:
    """The batches in the first `size` bytes of the file, checked.

    A read grows for a batch that is larger. Raises OSError, and CorruptBatch with the file and position where a batch
    is damaged, cut off or of an old format.
    """
    file = disk.open_read(path)
    try:
        position = 0
        while position < size:
            try:
                run = _run_at(file, position, size, max(read_bytes, MIN_READ_BYTES))
            except CorruptBatch as error:
                raise CorruptBatch(f"{path}, from byte {position} on: {error}") from error
            position += sum(run.sizes)
            yield run
    finally:
        file.close()


def _run_at(file: File, position: int, size: int, read_bytes: int) -> Run:
    """Read about `read_bytes` from the position and return the complete batches there, at least one.

    Their checksums are verified; raises CorruptBatch.
    """
    content = file.pread(min(read_bytes, size - position), position)
    run = read_run(content)
    if not run.positions:
        if len(content) < IDENTIFYING_BYTES or (needed := entry_size(content)) > size - position:
            raise CorruptBatch(f"the batch at byte {position} is cut off at the end of the file, byte {size}")
        run = read_run(file.pread(needed, position))
    if not run.positions:
        raise CorruptBatch(f"the file ends before byte {position + needed}, where the batch at byte {position} ends")
    check_order(run)
    check_crc(run)
    return run
