"""The journal on disk: `<directory>/klamm-journal-<node>-<number>.jsonl`, rotated by size; the newest stay."""

import contextlib
import re
from collections.abc import Sequence
from posixpath import join
from typing import Any, Final, Protocol

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
MAX_FILES: Final = 8
"""So many full ones; of small ones, which a node that starts again and again leaves, as many as that is in bytes."""
_MOST_FILES: Final = 500

_NAME: Final = re.compile(r"klamm-journal-(\d+)-(\d+)\.jsonl")


class _File(Protocol):
    def pwrite(self, buffers: Sequence[Any], position: int) -> int:
        """Write the buffers from the position on and return the number of bytes."""

    def truncate(self, size: int) -> None:
        """Set the file's size in bytes."""

    def close(self) -> None:
        """Close the file."""


class JournalDisk(Protocol):
    """What the journal needs of `runtime.disk.Disk`."""

    def open(self, path: str, *, create: bool = False) -> Any:
        """Open the file for reading and writing; `create` makes it where it is missing."""

    def open_read(self, path: str) -> Any:
        """Open an existing file for reading."""

    def read(self, path: str) -> bytes:
        """Return the whole content of the file."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory at the path."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names in the directory, sorted."""

    def make_directories(self, path: str) -> None:
        """Create the directory and its missing parents."""

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""

    def remove(self, path: str) -> None:
        """Remove the file."""

    def size(self, path: str) -> int:
        """Return the size of the file in bytes."""


def journal_files(disk: JournalDisk, directory: str) -> list[tuple[int, int, str]]:
    """The journal files in a directory as (node, number, path), in order; empty if the directory does not exist."""
    if not disk.exists(directory):
        return []
    matches = (_NAME.fullmatch(name) for name in disk.list_directory(directory))
    return sorted((int(m[1]), int(m[2]), join(directory, m[0])) for m in matches if m)


class JournalFiles:
    """A sink that writes files; each start begins a new file, whose number is the incarnation.

    Files are in `directory`, or in one of `others` while that one has failed. Lines are written to the page cache only:
    they survive a killed process, but not a power loss. `reserve_incarnation` makes the incarnation survive it.
    """

    def __init__(
        self,
        disk: JournalDisk,
        directory: str,
        node_id: int,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
        others: Sequence[str] = (),
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._node_id = node_id
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        disk.make_directories(directory)
        found = [file for d in (directory, *others) for file in journal_files(disk, d)]
        numbers = [number for node, number, _ in found if node == node_id]
        self.incarnation = max(numbers, default=0) + 1
        self._number = self.incarnation
        self._position = 0
        self._file: _File | None = None

    def reserve_incarnation(self) -> None:
        """Create the first journal file of this start, so that no later start gets its number, even after a power loss.

        Waits for the device. An error is left to the first write.
        """
        with contextlib.suppress(OSError):
            self._open()
            self._disk.sync_directory(self._directory)

    def _open(self) -> _File:
        """The current file, created where it is missing; a new one replaces the oldest beyond the limits."""
        if self._file is None:
            self._file = self._disk.open(self._path(self._number), create=True)
            self._remove_oldest()
        return self._file

    def write(self, lines: bytes) -> None:
        """Append the lines to the current file, or to a new one where it would become too large.

        Raises OSError; a part that was written is truncated.
        """
        if self._position and self._position + len(lines) > self._max_file_bytes:
            self.close()
            self._number += 1
            self._position = 0
        file = self._open()
        try:
            self._position += file.pwrite([lines], self._position)
        except OSError:
            file.truncate(self._position)  # no half line in front of the next one
            raise

    def move_from(self, failed: str, directory: str) -> None:
        """Continue with a new file in `directory`, where the current directory has failed; older files stay there."""
        if failed != self._directory:
            return
        with contextlib.suppress(OSError):
            self.close()
        self._file = None
        self._directory = directory
        self._number += 1
        self._position = 0

    def close(self) -> None:
        """Close the current file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, number: int) -> str:
        """Return the path of file number `number` of this node's journal."""
        return join(self._directory, f"klamm-journal-{self._node_id}-{number:08}.jsonl")

    def _remove_oldest(self) -> None:
        """Remove the node's oldest journal files beyond the limits of total size and number."""
        own = [path for node, _, path in journal_files(self._disk, self._directory) if node == self._node_id]
        left = self._max_file_bytes * (self._max_files - 1)  # the newest may grow to its full size
        for older, path in enumerate(reversed(own[:-1]), start=1):
            left -= self._disk.size(path)
            if left < 0 or older >= _MOST_FILES:
                self._disk.remove(path)
