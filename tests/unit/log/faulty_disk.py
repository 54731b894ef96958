"""The real disk, which refuses or tears a write when told to."""

from collections.abc import Sequence

from klamm.runtime.disk import Buffer, File, RealDisk


class FaultyDisk(RealDisk):
    """From the `fail_at`-th write on (counted from 1; None: never) every write raises `error`.

    The first that fails leaves `torn_bytes` of its content behind, as a full disk does.
    """

    def __init__(self) -> None:
        self.writes = 0
        self.fail_at: int | None = None
        self.torn_bytes = 0
        self.error = OSError(28, "No space left on device")
        self.prefix = ""

    def fail_from_here(self, error: OSError | None = None, torn_bytes: int = 0, prefix: str = "") -> None:
        """Only paths that begin with `prefix` fail."""
        self.fail_at = self.writes + 1
        self.torn_bytes = torn_bytes
        self.prefix = prefix
        self.error = error or self.error

    def refuses(self, path: str) -> bool:
        """Whether this write fails: from the chosen one on, all below the prefix fail."""
        self.writes += 1
        return self.fail_at is not None and self.writes >= self.fail_at and path.startswith(self.prefix)

    def open(self, path: str, *, create: bool = False) -> File:
        return _FaultyFile(self, path, super().open(path, create=create))

    def write_atomically(self, path: str, content: bytes) -> None:
        if self.refuses(path):
            raise self.error
        super().write_atomically(path, content)

    def sync_filesystem(self, path: str) -> None:
        if self.refuses(path):
            raise self.error

    def rename(self, source: str, target: str) -> None:
        if self.refuses(source):
            raise self.error
        super().rename(source, target)

    def make_directories(self, path: str) -> None:
        if self.refuses(path):
            raise self.error
        super().make_directories(path)


class _FaultyFile:
    def __init__(self, disk: FaultyDisk, path: str, file: File) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        if not self._disk.refuses(self._path):
            return self._file.pwrite(buffers, position)
        if self._disk.torn_bytes and self._disk.writes == self._disk.fail_at:
            self._file.pwrite([b"".join(map(bytes, buffers))[: self._disk.torn_bytes]], position)
        raise self._disk.error

    def truncate(self, size: int) -> None:
        if self._disk.refuses(self._path):
            raise self._disk.error
        self._file.truncate(size)

    def sync(self) -> None:
        if self._disk.refuses(self._path):
            raise self._disk.error

    def pread(self, count: int, position: int) -> bytes:
        return self._file.pread(count, position)

    def pread_cached(self, count: int, position: int) -> Buffer | None:
        return self._file.pread_cached(count, position)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
