"""The index of aborted transactions of a segment. Source: TransactionIndex.java, AbortedTxn.java."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from klamm.log.errors import CorruptFile
from klamm.runtime.disk import Disk

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def append_aborted(disk: Disk, path: str, aborted: AbortedTransaction) -> None:
    """Add one entry at the end of the file, which begins with the first entry. Raises OSError."""
    file = disk.open(path, create=True)
    try:
        file.pwrite([_ENTRY.pack(_VERSION, *aborted)], file.size())
    finally:
        file.close()


def read_aborted(disk: Disk, path: str) -> list[AbortedTransaction]:
    """All entries; none where there is no file. Raises OSError, CorruptFile."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return []
    if len(content) % _ENTRY.size:
        raise CorruptFile(f"{path} has {len(content)} bytes, not a multiple of {_ENTRY.size}")
    return list(_entries(content, path))


def check_aborted(disk: Disk, path: str, base_offset: int) -> None:
    """Raises CorruptFile where the file cannot be the index of the segment that begins at `base_offset`."""
    for entry in read_aborted(disk, path):
        if not (0 <= entry.first_offset <= entry.last_offset and base_offset <= entry.last_offset):
            raise CorruptFile(f"{path} has the transaction {entry}; its segment begins at {base_offset}")


def _entries(content: bytes, path: str) -> Iterator[AbortedTransaction]:
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(content):
        if version != _VERSION:
            raise CorruptFile(f"{path} has an entry of version {version}; {_VERSION} is known")
        yield AbortedTransaction(producer_id, first, last, stable)


def truncate_aborted(disk: Disk, path: str, offset: int) -> None:
    """Keep the transactions whose marker lies before `offset`."""
    entries = read_aborted(disk, path)
    kept = [entry for entry in entries if entry.last_offset < offset]
    if len(kept) < len(entries):
        file = disk.open(path)
        try:
            file.truncate(len(kept) * _ENTRY.size)
        finally:
            file.close()


def aborted_between(disk: Disk, paths: Iterable[str], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Those that touch offsets from `start_offset` up to, not including, `end_offset`.

    `paths`: the indexes of the segment that holds `start_offset` and of those behind it, in order.
    """
    found = []
    for path in paths:
        for entry in read_aborted(disk, path):
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found
    return found
