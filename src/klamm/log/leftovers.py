"""Cleans up a log directory after a crash: finishes or undoes deletions, compactions and file replacements.

Source: LogLoader.scala (removeTempFilesAndCollectSwapFiles).
"""

from collections.abc import Sequence

from klamm.log.names import CLEANED, DELETED, INDEX, LOG, SWAP, TIME_INDEX, TRANSACTION_INDEX, offset_of
from klamm.log.scan import scan_headers
from klamm.log.segment import Segment
from klamm.runtime.disk import TEMPORARY, Disk

_INDEXES = (INDEX, TIME_INDEX, TRANSACTION_INDEX)


def clear_leftovers(disk: Disk, directory: str) -> None:
    """Finish or undo interrupted deletions and compactions before the log is opened. Raises OSError."""
    names = disk.list_directory(directory)
    cleaned = [offset for name in names if name.endswith(CLEANED) and (offset := offset_of(name)) is not None]
    for name in names:
        offset = offset_of(name)
        is_incomplete = name.endswith(SWAP) and offset is not None and cleaned and offset >= min(cleaned)
        if name.endswith((DELETED, CLEANED, TEMPORARY)) or is_incomplete:
            disk.remove(f"{directory}/{name}")
    _finish_swaps(disk, directory)
    _remove_indexes_without_log(disk, directory)


def rename_cleaned_to_swap(disk: Disk, first: Segment) -> list[str]:
    """Rename the `.cleaned` files of a complete compaction to `.swap`, and return the new names. Raises OSError.

    From then on a start finishes the compaction.
    """
    swaps = []
    for path in first.paths():
        if disk.exists(path + CLEANED):
            disk.rename(path + CLEANED, path + SWAP)
            swaps.append(path + SWAP)
    return swaps


def remove_cleaned_files(disk: Disk, directory: str) -> None:
    """Remove the `.cleaned` files of a compaction that ended early.

    Does nothing if the log was deleted. Raises OSError.
    """
    if disk.exists(directory):
        for name in disk.list_directory(directory):
            if name.endswith(CLEANED):
                disk.remove(f"{directory}/{name}")


def _finish_swaps(disk: Disk, directory: str) -> None:
    """Put finished compactions (`.swap` files) in place of the segments they replace."""
    names = disk.list_directory(directory)
    for name in names:
        if name.endswith(LOG + SWAP):
            _remove_replaced(disk, directory, name, names)
    for name in names:
        if name.endswith(SWAP):
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _remove_replaced(disk: Disk, directory: str, swap: str, names: Sequence[str]) -> None:
    """Remove the segments whose content the finished compaction replaces."""
    first = offset_of(swap)
    assert first is not None
    file = disk.open_read(f"{directory}/{swap}")
    try:
        last = first
        for found in scan_headers(file.pread, 0, file.size()):
            last = found.header.last_offset
    finally:
        file.close()
    for name in names:
        offset = offset_of(name)
        if offset is not None and first <= offset <= last and name.endswith((LOG, *_INDEXES)):
            disk.remove(f"{directory}/{name}")


def _remove_indexes_without_log(disk: Disk, directory: str) -> None:
    """Remove index files whose segment has no `.log` file."""
    names = disk.list_directory(directory)
    logs = {offset_of(name) for name in names if name.endswith(LOG)}
    for name in names:
        offset = offset_of(name)
        if offset is not None and offset not in logs and name.endswith(_INDEXES):
            disk.remove(f"{directory}/{name}")
