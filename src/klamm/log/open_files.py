"""Open files, at most so many: 10,000 logs must not need 10,000 descriptors for ever."""

import errno
from collections import OrderedDict

from klamm.runtime.disk import Disk, File

DEFAULT_MOST_OPEN = 4_000


class OpenFiles:
    """Files by path, opened when first asked for; the one unused longest is closed where there are too many.

    Only the event loop may use it: threads open a file of their own.
    """

    __slots__ = ("_files", "_most", "disk")

    def __init__(self, disk: Disk, most: int = DEFAULT_MOST_OPEN) -> None:
        self.disk = disk
        self._most = most
        self._files: OrderedDict[str, File] = OrderedDict()

    def get(self, path: str) -> File:
        """The open file at `path`, which must exist. Good until the next call. Raises OSError."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self._files[path] = self._open(path)
        if len(self._files) > self._most:
            self._close_oldest()
        return file

    def _open(self, path: str) -> File:
        try:
            return self.disk.open(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._files:
                raise
        for _ in range((len(self._files) + 1) // 2):  # sockets took what was left: the disk is not to blame
            self._close_oldest()
        return self.disk.open(path)

    def _close_oldest(self) -> None:
        _path, oldest = self._files.popitem(last=False)
        oldest.close()

    def forget(self, path: str) -> None:
        """Close the file at `path` where it is open: before it is renamed or removed."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        while self._files:
            _path, file = self._files.popitem()
            file.close()

    def __len__(self) -> int:
        return len(self._files)
