"""A cache of open files with a limit, so that 10,000 logs need fewer file descriptors."""

import errno
import sys
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from klamm.runtime.disk import Disk, File

DEFAULT_MAX_OPEN_FILES = 4_000
_NEVER_TRUNCATED: Final = sys.maxsize


class SharedFile:
    """An open file with several users; its reference count is their number, and the last one closes it.

    The bytes of a file that was renamed, replaced or removed can still be read through it.
    """

    __slots__ = ("__weakref__", "file", "valid_bytes")

    def __init__(self, file: File) -> None:
        self.file = file
        self.valid_bytes = _NEVER_TRUNCATED
        """Bytes before this position are those that were there when a reader took hold; the file was cut behind."""

    def __del__(self) -> None:
        self.file.close()


class OpenFiles:
    """Open files by path; above the limit the least recently used is closed.

    Only the event loop may use it: threads open a file of their own, or read one that is lent to them. Files that are
    lent stay open beside the others until their last reader lets go, at most as many again.
    """

    __slots__ = ("_files", "_lent", "_most", "disk")

    def __init__(self, disk: Disk, most: int = DEFAULT_MAX_OPEN_FILES) -> None:
        self.disk = disk
        self._most = most
        self._files: OrderedDict[str, SharedFile] = OrderedDict()
        self._lent: WeakValueDictionary[str, SharedFile] = WeakValueDictionary()
        """By path, what readers took hold of; also what is no longer among `_files`."""

    def get(self, path: str) -> File:
        """The open file at `path`, which must exist; valid until the next call. Raises OSError."""
        return self._get(path).file

    def lend(self, path: str) -> SharedFile | None:
        """Return the open file for a reader to keep; None where readers keep too many files already. Raises OSError."""
        if len(self._lent) >= self._most and path not in self._lent:
            return None
        shared = self._lent[path] = self._get(path)
        return shared

    def truncate(self, path: str, size: int) -> None:
        """Truncate the file; readers that keep it open get an error for bytes after `size`.

        Other bytes may be written there afterwards, so later readers get the file opened anew.
        """
        holder = self._files.pop(path, None) or self._lent.get(path)
        if holder is not None:
            holder.valid_bytes = min(holder.valid_bytes, size)
        self._lent.pop(path, None)
        self.get(path).truncate(size)

    def _get(self, path: str) -> SharedFile:
        """The shared open file at this path, opened if needed."""
        shared = self._files.get(path)
        if shared is not None:
            self._files.move_to_end(path)
            return shared
        shared = self._files[path] = self._lent.get(path) or SharedFile(self._open(path))
        if len(self._files) > self._most:
            self._files.popitem(last=False)
        return shared

    def _open(self, path: str) -> File:
        """Open the file, closing the least recently used one above the limit."""
        try:
            return self.disk.open(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._files:
                raise
        for _ in range((len(self._files) + 1) // 2):  # sockets took what was left: the disk is not to blame
            self._files.popitem(last=False)
        return self.disk.open(path)

    def forget(self, path: str) -> None:
        """Remove a file that was renamed or deleted from the cache, and close it once no reader keeps it."""
        self._files.pop(path, None)
        self._lent.pop(path, None)

    def close(self) -> None:
        """Remove all files from the cache; each is closed once no reader keeps it."""
        self._files.clear()

    def __len__(self) -> int:
        return len(self._files)
