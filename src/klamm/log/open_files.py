"""A cache of open files with a limit, so that 10,000 logs need fewer file descriptors."""

import errno
import sys
from collections import OrderedDict
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from klamm.log.errors import ColdRead, NotCached
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

    __slots__ = ("_cut", "_files", "_lent", "_most", "_read_before", "disk")

    def __init__(self, disk: Disk, most: int = DEFAULT_MAX_OPEN_FILES) -> None:
        self.disk = disk
        self._most = most
        self._files: OrderedDict[str, SharedFile] = OrderedDict()
        self._lent: WeakValueDictionary[str, SharedFile] = WeakValueDictionary()
        """By path, what readers took hold of; also what is no longer among `_files`."""
        self._cut: dict[str, WeakSet[SharedFile]] = {}
        """By path, what readers took hold of before the file was truncated: it may be truncated further."""
        self._read_before: Container[ColdRead] | None = None
        """While set, all other reads use the page cache only."""

    def get(self, path: str) -> File:
        """The open file at `path`, which must exist; valid until the next call. Raises OSError."""
        return self._get(path).file

    @contextmanager
    def avoiding_device(self, read_before: Container[ColdRead] = ()) -> Iterator[None]:
        """Within the block, `pread` and `read` raise NotCached instead of waiting for the device.

        `read_before`: what a thread has read meanwhile; it is read again without another look.
        """
        self._read_before = read_before
        try:
            yield
        finally:
            self._read_before = None

    def pread(self, path: str, count: int, position: int) -> bytes:
        """Read up to `count` bytes of the file. Raises OSError, NotCached."""
        return self._pread(path, self.get(path), count, position)

    def read(self, path: str) -> bytes:
        """Read a whole file, which is not kept open. Raises OSError, NotCached."""
        if self._read_before is None:
            return self.disk.read(path)
        file = self.disk.open_read(path)
        try:
            return self._pread(path, file, file.size(), 0)
        finally:
            file.close()

    def _pread(self, path: str, file: File, count: int, position: int) -> bytes:
        """Read from an open file. Raises OSError, NotCached."""
        if self._read_before is None or ColdRead(path, position, count) in self._read_before:
            return file.pread(count, position)
        content = file.pread_cached(count, position)
        if content is None or (len(content) < count and position + len(content) < file.size()):
            raise NotCached(ColdRead(path, position, count))
        return bytes(content)

    def lend(self, path: str) -> SharedFile | None:
        """Return the open file for a reader to keep; None where readers keep too many files already. Raises OSError."""
        if len(self._lent) >= self._most and path not in self._lent:
            return None
        shared = self._lent[path] = self._get(path)
        return shared

    def truncate(self, path: str, size: int) -> None:
        """Truncate the file; readers that keep it open get an error for bytes after `size`.

        Other bytes may be written there afterwards, so later readers get the file opened again.
        """
        self._files.pop(path, None)
        if (lent := self._lent.pop(path, None)) is not None:
            self._cut.setdefault(path, WeakSet()).add(lent)
        for cut in self._cut.get(path, ()):
            cut.valid_bytes = min(cut.valid_bytes, size)
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
        self._cut.pop(path, None)

    def close(self) -> None:
        """Remove all files from the cache; each is closed once no reader keeps it."""
        self._files.clear()

    def __len__(self) -> int:
        return len(self._files)
