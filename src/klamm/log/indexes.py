"""The two sparse indexes of a segment: offset to file position, timestamp to offset.

Entries live in memory until `write`; files have exactly the length of their entries, never preallocated. After a crash
they are rebuilt from the log. Source: OffsetIndex.java, TimeIndex.java, AbstractIndex.java.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.log.errors import CorruptFile
from klamm.runtime.disk import Disk

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_RELATIVE: Final = struct.Struct(">i")
_TIMESTAMP: Final = struct.Struct(">q")
MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class _Index:
    """Entries of one size in one file. `count` is known without reading the file; the entries are read when needed."""

    __slots__ = (
        "_disk", "_entries", "_entry", "_is_file_exact", "_offset_at", "_stored_bytes", "base_offset", "count", "most",
        "path",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, path: str, base_offset: int, max_bytes: int, entry: struct.Struct, offset_at: int
    ) -> None:
        self._disk = disk
        self._entry = entry
        self._offset_at = offset_at  # where in an entry its relative offset stands
        self.path = path
        self.base_offset = base_offset
        self.most = max_bytes // entry.size
        self._entries: bytearray | None = bytearray()
        self._stored_bytes = 0
        self._is_file_exact = False
        """Whether the file exists and has `_stored_bytes` bytes."""
        self.count = 0

    @property
    def size(self) -> int:
        """The bytes of all entries, written to the file or not."""
        return self.count * self._entry.size

    @property
    def is_full(self) -> bool:
        """Whether the index has no room for another entry."""
        return self.count >= self.most

    def open(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Read the file's size and return its first and last entry; None where it is empty.

        Raises FileNotFoundError, CorruptFile.
        """
        file = self._disk.open_read(self.path)
        try:
            size = file.size()
            if size % self._entry.size:
                raise CorruptFile(
                    f"{self.path} has {size} bytes, which is not a multiple of its entry size {self._entry.size}"
                )
            ends = [file.pread(self._entry.size, at) for at in (0, size - self._entry.size)] if size else []
        finally:
            file.close()
        self._entries = None if size else bytearray()
        self._stored_bytes = size
        self._is_file_exact = True
        self.count = size // self._entry.size
        if not ends:
            return None
        first, last = ends
        return self._entry.unpack(first), self._entry.unpack(last)

    def load_hints(self) -> None:
        """Read the entries of a file that another process may write, or that may be missing. Raises OSError.

        A part of an entry at the end and preallocated zeros are left out. The entries are not checked: they are only
        hints, and lack what the other process has not written yet.
        """
        size = self._entry.size
        try:
            content = self._disk.read(self.path)
        except FileNotFoundError:
            content = b""
        zeros = bytes(size)
        slots = range(len(content) // size)
        self.count = bisect_left(slots, True, key=lambda slot: content[slot * size : (slot + 1) * size] == zeros)
        self._entries = bytearray(content[: self.count * size])
        self._stored_bytes = len(self._entries)

    @property
    def is_in_memory(self) -> bool:
        """Whether the entries can be looked up without reading the file."""
        return self._entries is not None

    def take(self, content: bytes) -> None:
        """Keep the entries that were read from the file."""
        self._entries = bytearray(content[: self.size])

    def _load_entries(self) -> bytearray:
        """All entries, read from the file if they are not in memory."""
        if self._entries is None:
            self.take(self._disk.read(self.path))
            assert self._entries is not None
        return self._entries

    def release(self) -> None:
        """Free the entries in memory; they are read again when needed."""
        if self._stored_bytes == self.size and self.count:
            self._entries = None

    def write(self) -> None:
        """Write the entries to the file, without syncing it. Raises OSError."""
        entries = self._load_entries()
        file = self._disk.open(self.path, create=True)
        try:
            file.pwrite([memoryview(entries)[self._stored_bytes :]], self._stored_bytes)
            file.truncate(len(entries))
        finally:
            file.close()
        self._stored_bytes = len(entries)
        self._is_file_exact = True

    @property
    def is_written(self) -> bool:
        """Whether the file exists and has exactly these entries."""
        return self._is_file_exact and self._stored_bytes == self.size

    def reset(self) -> None:
        """Remove all entries."""
        self._truncate_entries(0)

    def _truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        entries = self._load_entries() if count else bytearray()
        del entries[count * self._entry.size :]
        self._entries = entries
        self.count = count
        self._stored_bytes = min(self._stored_bytes, len(entries))
        self._is_file_exact = False

    def _relative_at(self, slot: int) -> int:
        """The relative offset of an entry."""
        relative: int = _RELATIVE.unpack_from(self._load_entries(), slot * self._entry.size + self._offset_at)[0]
        return relative

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of `offset` and later, in memory and in the file."""
        kept = bisect_left(range(self.count), offset - self.base_offset, key=self._relative_at)
        if kept < self.count:
            self._truncate_entries(kept)
            self.write()


class OffsetIndex(_Index):
    """Sparse index from offset to file position."""

    __slots__ = ("last_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path, base_offset, max_bytes, _OFFSET_ENTRY, 0)
        self.last_offset = base_offset

    def load(self, log_bytes: int) -> None:
        """Read the index file. Raises CorruptFile where it does not fit a `.log` file of `log_bytes` bytes."""
        ends = self.open()
        if ends is None:
            self.last_offset = self.base_offset
            return
        _first, last = ends
        self.last_offset = self.base_offset + last[0]
        if (last[0] <= 0 and self.count > 1) or last[0] < 0 or last[1] < 0 or last[1] >= log_bytes:
            raise CorruptFile(
                f"{self.path}: its last entry (offset {self.last_offset} at byte {last[1]}) does not fit the segment, "
                f"which has {log_bytes} bytes"
            )

    def append(self, offset: int, position: int) -> None:
        """Add an entry: the last offset of the batch that begins at `position`. Offsets must increase."""
        assert not self.count or offset > self.last_offset, (
            f"{self.path}: offset {offset} does not follow the last entry, {self.last_offset}"
        )
        self._load_entries().extend(_OFFSET_ENTRY.pack(offset - self.base_offset, position))
        self.count += 1
        self.last_offset = offset

    def entries_down_from(self, offset: int) -> Iterator[OffsetPosition]:
        """Entries with an offset of at most `offset`, in descending order."""
        slot = bisect_right(range(self.count), offset - self.base_offset, key=self._relative_at)
        while slot > 0:
            slot -= 1
            relative, position = _OFFSET_ENTRY.unpack_from(self._load_entries(), slot * _OFFSET_ENTRY.size)
            yield OffsetPosition(self.base_offset + relative, position)

    def first_at_position(self, position: int) -> OffsetPosition | None:
        """The first entry whose batch begins at `position` or later."""
        slot = bisect_left(range(self.count), position, key=self._position_at)
        if slot == self.count:
            return None
        relative, found = _OFFSET_ENTRY.unpack_from(self._load_entries(), slot * _OFFSET_ENTRY.size)
        return OffsetPosition(self.base_offset + relative, found)

    def _position_at(self, slot: int) -> int:
        """The file position of an entry."""
        position: int = _RELATIVE.unpack_from(self._load_entries(), slot * _OFFSET_ENTRY.size + 4)[0]
        return position

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        super().truncate_to(offset)
        self.last_offset = self.base_offset + (self._relative_at(self.count - 1) if self.count else 0)

    def reset(self) -> None:
        """Remove all entries."""
        super().reset()
        self.last_offset = self.base_offset


class TimeIndex(_Index):
    """Sparse index from timestamp to offset: all records up to an entry's offset have at most its timestamp."""

    __slots__ = ("last",)

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path, base_offset, max_bytes, _TIME_ENTRY, 8)
        self.last = TimestampOffset(-1, base_offset)

    @property
    def is_full(self) -> bool:
        """Whether no entry may be appended.

        The last place is kept for the entry that is written when the segment rolls or closes.
        """
        return self.count >= self.most - 1  # the last slot is for the entry at roll or close

    def load(self) -> None:
        """Read the index file. Raises FileNotFoundError, CorruptFile."""
        ends = self.open()
        if ends is None:
            self.last = self._no_entry()
            return
        first, last = ends
        self.last = TimestampOffset(last[0], self.base_offset + last[1])
        if last[1] < 0 or last[0] < first[0] or (self.count > 1 and last[1] <= first[1]):
            raise CorruptFile(
                f"{self.path}: its last entry (timestamp {last[0]}, offset {self.last.offset}) does not come after "
                f"its first (timestamp {first[0]}, offset {self.base_offset + first[1]})"
            )

    def load_hints(self) -> None:
        """Read the entries of a file that another process may write, or that may be missing. Raises OSError."""
        super().load_hints()
        self.last = self._entry_at(self.count - 1) if self.count else self._no_entry()

    def _no_entry(self) -> TimestampOffset:
        """The entry that stands for an empty index: (-1, base offset)."""
        return TimestampOffset(-1, self.base_offset)

    def _timestamp_at(self, slot: int) -> int:
        """The timestamp of an entry."""
        timestamp: int = _TIMESTAMP.unpack_from(self._load_entries(), slot * _TIME_ENTRY.size)[0]
        return timestamp

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is later than that of every entry before."""
        if timestamp > self.last.timestamp:
            self._load_entries().extend(_TIME_ENTRY.pack(timestamp, offset - self.base_offset))
            self.count += 1
            self.last = TimestampOffset(timestamp, offset)

    def last_before(self, timestamp: int) -> TimestampOffset | None:
        """The last entry with a timestamp below `timestamp`; None where there is none."""
        slot = bisect_left(range(self.count), timestamp, key=self._timestamp_at)
        return self._entry_at(slot - 1) if slot else None

    def _entry_at(self, slot: int) -> TimestampOffset:
        """The entry in this slot."""
        timestamp, relative = _TIME_ENTRY.unpack_from(self._load_entries(), slot * _TIME_ENTRY.size)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def ceiling(self, timestamp: int) -> TimestampOffset | None:
        """The first entry with a timestamp of at least `timestamp`; None where there is none."""
        slot = bisect_left(range(self.count), timestamp, key=self._timestamp_at)
        return None if slot == self.count else self._entry_at(slot)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        super().truncate_to(offset)
        self.last = self._no_entry()
        if self.count:
            last = self.count - 1
            self.last = TimestampOffset(self._timestamp_at(last), self.base_offset + self._relative_at(last))

    def reset(self) -> None:
        """Remove all entries."""
        super().reset()
        self.last = self._no_entry()
