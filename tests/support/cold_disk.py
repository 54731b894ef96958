"""A disk whose files are not in the page cache until a thread has read them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from tests.support.real_logs import DiskWithoutThreads

from klamm.log.log import Log
from klamm.runtime.disk import Buffer, File

P = ParamSpec("P")
T = TypeVar("T")


class ColdDisk(DiskWithoutThreads):
    """`waited_for`: the files that the event loop read from the device."""

    def __init__(self) -> None:
        self.cached: set[tuple[str, int]] = set()
        """Path and position of what was read in a thread."""
        self.is_in_thread = False
        self.waited_for: list[str] = []

    def open(self, path: str, *, create: bool = False) -> File:
        return _ColdFile(self, path, super().open(path, create=create))

    def open_read(self, path: str) -> File:
        return _ColdFile(self, path, super().open_read(path))

    def read(self, path: str) -> bytes:
        if not self.is_in_thread:
            self.waited_for.append(path)
        return super().read(path)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.is_in_thread = True
        try:
            return call(*args, **kwargs)
        finally:
            self.is_in_thread = False


class _ColdFile:
    """An open file of a `ColdDisk`."""

    def __init__(self, disk: ColdDisk, path: str, file: File) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def pread_cached(self, count: int, position: int) -> Buffer | None:
        return self._file.pread(count, position) if (self._path, position) in self._disk.cached else None

    def pread(self, count: int, position: int) -> bytes:
        if self._disk.is_in_thread:
            self._disk.cached.add((self._path, position))
        elif (self._path, position) not in self._disk.cached:
            self._disk.waited_for.append(self._path)
        return self._file.pread(count, position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def evict_from_cache(log: Log) -> ColdDisk:
    """Let the log use a cold disk from now on, without anything of closed segments in memory."""
    disk = ColdDisk()
    log._world = replace(log._world, disk=disk)
    log._local.files.close()
    log._local.files.disk = disk
    for segment in list(log.segments)[:-1]:
        for index in (segment.offset_index, segment.time_index):
            index.release()
            index._disk = disk
    return disk
