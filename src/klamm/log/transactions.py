"""The index of aborted transactions of a segment. Source: TransactionIndex.java, AbortedTxn.java."""

import struct
from bisect import bisect_left
from typing import Final, NamedTuple

import structlog

from klamm.log.errors import CorruptFile
from klamm.runtime.disk import Disk

logger = structlog.get_logger("logs")

_ENTRY: Final = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = struct.Struct(">q")
_LAST_OFFSET_AT: Final = 18  # where in an entry its last offset stands
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: producer, offsets, and the last stable offset after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the end marker."""
    last_stable_offset: int
    """What it was once the marker was replicated: a transaction that ends later begins here or behind."""


class TransactionIndex:
    """Index of aborted transactions, ordered by their end markers; the file is read when first needed.

    A file that is found to be damaged then is not written to: appends and truncations of the log go on, readers get the
    error, and the next start, which finds the damage too, builds the index again.
    """

    __slots__ = ("_base_offset", "_content", "_disk", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self._base_offset = base_offset
        self._content: bytearray | None = None
        self.path = path

    def append(self, aborted: AbortedTransaction) -> None:
        """Append an aborted transaction to the index file, unless that is damaged. Raises OSError."""
        content = self._intact_entries()
        if content is None:
            return
        entry = _ENTRY.pack(_VERSION, *aborted)
        file = self._disk.open(self.path, create=True)
        try:
            file.pwrite([entry], len(content))
        finally:
            file.close()
        content += entry

    def check(self) -> None:
        """Read the index file and check its entries. Raises OSError, CorruptFile."""
        self._content = None
        self._load_entries()

    def _load_entries(self) -> bytearray:
        """The file's content, read once."""
        if self._content is None:
            try:
                content = self._disk.read(self.path)
            except FileNotFoundError:
                content = b""
            self._check(content)
            self._content = bytearray(content)
        return self._content

    def _intact_entries(self) -> bytearray | None:
        """The file's content; None where it is damaged, which is logged. Raises OSError."""
        try:
            return self._load_entries()
        except CorruptFile as error:
            logger.error(
                "index of aborted transactions is damaged: read_committed consumers get an error for its segment",
                file=self.path,
                why=str(error),
                action="Check the disk, and restart the node: it builds the index again.",
            )
            return None

    def _check(self, content: bytes) -> None:
        """Raise CorruptFile if the entries are not valid."""
        if len(content) % _ENTRY.size:
            raise CorruptFile(
                f"{self.path} has {len(content)} bytes, which is not a multiple of its entry size {_ENTRY.size}"
            )
        before = self._base_offset
        for version, _producer_id, first, last, stable in _ENTRY.iter_unpack(content):
            if version != _VERSION or not (0 <= first < last and before <= last and 0 <= stable <= last + 1):
                raise CorruptFile(
                    f"{self.path} has an entry that is not valid: version {version}, first offset {first}, last "
                    f"offset {last}, last stable offset {stable}"
                )
            before = last + 1

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker is at `offset` or later, unless the file is damaged. Raises OSError."""
        content = self._intact_entries()
        if content is None:
            return
        kept = self._slot_of(content, offset) * _ENTRY.size
        if kept < len(content):
            file = self._disk.open(self.path)
            try:
                file.truncate(kept)
            finally:
                file.close()
            del content[kept:]

    def remove(self) -> None:
        """Remove all entries and the index file, which the caller rebuilds. Raises OSError."""
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
        self._content = bytearray()

    def collect(self, start_offset: int, end_offset: int, into: list[AbortedTransaction]) -> bool:
        """Add the aborted transactions that overlap [start, end) to `into`.

        Returns whether later segments cannot have more of them. Raises OSError, CorruptFile.
        """
        content = self._load_entries()
        for at in range(self._slot_of(content, start_offset) * _ENTRY.size, len(content), _ENTRY.size):
            _version, *fields = _ENTRY.unpack_from(content, at)
            entry = AbortedTransaction(*fields)
            if entry.first_offset < end_offset:
                into.append(entry)
            if entry.last_stable_offset >= end_offset:
                return True
        return False

    @staticmethod
    def _slot_of(content: bytearray, offset: int) -> int:
        """The number of the first entry whose marker is at `offset` or later."""

        def last_offset(slot: int) -> int:
            """Return the last offset of the transaction in entry number `slot`."""
            value: int = _LAST_OFFSET.unpack_from(content, slot * _ENTRY.size + _LAST_OFFSET_AT)[0]
            return value

        return bisect_left(range(len(content) // _ENTRY.size), offset, key=last_offset)
