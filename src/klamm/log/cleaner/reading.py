"""The batches of segment files, read in runs of bounded size by the process that cleans."""

from collections.abc import Iterator

from klamm.log.names import LOG, segment_file
from klamm.log.runs import LegacyRun, is_legacy_at, legacy_run_at, run_at
from klamm.runtime.disk import Disk, File
from klamm.wire.records import CorruptRecords
from klamm.wire.vectors.batches import CorruptBatch, Run, check_crc, check_order


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
    if is_legacy_at(file, position):
        return legacy_run_at(file, position, size, read_bytes)
    run = run_at(file, position, size, read_bytes)
    check_order(run)
    check_crc(run)
    return run
