"""The batches of segment files, read in runs of bounded size by the process that cleans."""

from collections.abc import Iterator

from klamm.log.names import LOG, segment_file
from klamm.log.runs import run_at
from klamm.runtime.disk import Disk
from klamm.wire.vectors.batches import CorruptBatch, Run, check_crc, check_order


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
                run = run_at(file, position, size, read_bytes)
                check_order(run)
                check_crc(run)
            except CorruptBatch as error:
                raise CorruptBatch(f"{path}, from byte {position} on: {error}") from error
            position += sum(run.sizes)
            yield run
    finally:
        file.close()
