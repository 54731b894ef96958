"""Reading a node's own journal files from a saved position, across rotations and restarts."""

from typing import NamedTuple, Self

from klamm.telemetry.journal_files import JournalDisk, journal_files


class Position(NamedTuple):
    """A position in the journal: all files before `number`, and `offset` bytes of that file, were read."""

    number: int = 0
    offset: int = 0

    def encode(self) -> bytes:
        """Return the position as one line of text: file number and offset."""
        return f"{self.number} {self.offset}\n".encode()

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Parse a saved position; a damaged one becomes the start, since repeated lines do less harm than lost ones."""
        words = text.split()
        if len(words) == 2 and all(word.isdigit() for word in words):
            return cls(int(words[0]), int(words[1]))
        return cls()


class Tailed(NamedTuple):
    """The lines read, the position after them, and how many files were deleted unread."""

    lines: list[bytes]
    """Whole ones, without their newlines."""
    position: Position
    lost_files: int
    """Rotated away before they were read."""


def read_next_lines(disk: JournalDisk, directory: str, node: int, position: Position, max_bytes: int) -> Tailed:
    """The next lines, about `max_bytes` of them but at least one; none if all were read.

    An incomplete last line is skipped once a newer file exists.
    """
    files = {number: path for owner, number, path in journal_files(disk, directory) if owner == node}
    lost = 0
    if files and position.number and position.number < min(files):
        lost = min(files) - position.number
        position = Position(min(files))
    for number in sorted(n for n in files if n >= position.number):
        offset = position.offset if number == position.number else 0
        found = _read_lines(disk, files[number], offset, max_bytes)
        position = Position(number, offset + len(found))
        if found:
            return Tailed(found[:-1].split(b"\n"), position, lost)
    return Tailed([], position, lost)


def _read_lines(disk: JournalDisk, path: str, offset: int, max_bytes: int) -> bytes:
    """Whole lines from `offset` on, newlines included."""
    file = disk.open_read(path)
    try:
        read_bytes = max_bytes
        while True:
            found: bytes = file.pread(read_bytes, offset)
            end = found.rfind(b"\n") + 1
            if end or len(found) < read_bytes:
                return found[:end]
            read_bytes *= 2  # a line longer than what was asked for
    finally:
        file.close()
