"""Small files that are always replaced as a whole: temporary file, sync, rename, sync of the directory.

Several threads may replace one file at the same time: each has its own temporary file, and older content never replaces
newer content.
"""

import threading
from collections.abc import Sequence
from posixpath import dirname
from typing import Final, NamedTuple

from klamm.runtime.disk import Disk

_MAX_SINGLE_SYNCS: Final = 16
"""With more files, two syncs of the whole filesystem take less time than two syncs per file."""


class SmallFile:
    """One file, with the version numbers of its content in memory and on disk."""

    __slots__ = ("_durable_version", "_is_closed", "_lock", "_placed_version", "path", "version")

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.version = 0
        """Counts the changes of the content in memory."""
        self._placed_version = 0
        self._durable_version = 0
        self._is_closed = False

    def next_version(self) -> int:
        """Count a change of the file's content; returns the new version."""
        self.version += 1
        return self.version

    @property
    def is_changed(self) -> bool:
        """Whether the newest content of the file is not durable yet."""
        return self.version > self._durable_version

    def replacement(self, content: bytes) -> "Replacement":
        """Return this content together with the file's current version number, for a thread to write."""
        return Replacement(self, self.version, content)

    def close(self) -> None:
        """Let no thread replace the file any more: its path may soon be that of another file."""
        with self._lock:
            self._is_closed = True

    def place(self, disk: Disk, temporary: str, version: int) -> bool:
        """Rename the temporary file over the file, or remove it if a newer version is in place, or the file is closed.

        Returns whether it was renamed. Raises OSError.
        """
        with self._lock:
            if self._is_closed or version <= self._placed_version:
                disk.remove(temporary)
                return False
            disk.rename(temporary, self.path)
            self._placed_version = version
            return True

    def mark_durable(self, version: int) -> None:
        """Record that this version of the file is durable on disk."""
        with self._lock:
            self._durable_version = max(self._durable_version, version)


class Replacement(NamedTuple):
    """Content to write to a file, with its version."""

    file: SmallFile
    version: int
    content: bytes


def replace_files(disk: Disk, replacements: Sequence[Replacement]) -> None:
    """Write all files and return when they are durable; call it in a thread.

    Raises OSError. The files are on one filesystem.
    """
    if not replacements:
        return
    at_once = len(replacements) > _MAX_SINGLE_SYNCS
    anywhere = replacements[0].file.path
    temporaries = [_write_temporary(disk, each, sync=not at_once) for each in replacements]
    if at_once:
        disk.sync_filesystem(_parent(anywhere))
    for each, temporary in zip(replacements, temporaries, strict=True):
        each.file.place(disk, temporary, each.version)
    if at_once:
        disk.sync_filesystem(_parent(anywhere))
    else:
        for directory in dict.fromkeys(_parent(each.file.path) for each in replacements):
            disk.sync_directory(directory)
    for each in replacements:
        each.file.mark_durable(each.version)


def create_directory(disk: Disk, path: str) -> None:
    """Create the directory and its missing parents, so that a power loss keeps them. Raises OSError."""
    missing, above = [], path.rstrip("/") or "/"
    while not disk.exists(above):
        missing.append(above)
        above = dirname(above) or "."
    disk.make_directories(path)
    for created in missing:
        disk.sync_directory(dirname(created) or ".")


def _write_temporary(disk: Disk, replacement: Replacement, *, sync: bool) -> str:
    """Write the new content to a temporary file next to the target, with `sync` durably, and return its path."""
    temporary = disk.temporary_name(replacement.file.path)
    file = disk.open(temporary, create=True)
    try:
        file.pwrite([replacement.content], 0)
        if sync:
            file.sync()
    finally:
        file.close()
    return temporary


def _parent(path: str) -> str:
    """Return the directory part of the path; `.` where it has none."""
    return path.rpartition("/")[0] or "."
