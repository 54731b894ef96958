"""Files. Calls that only use the page cache are plain; calls that wait for the device go through `in_thread`."""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class DiskUsage(NamedTuple):
    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """An open file; every read and write names its position."""

    def pread(self, count: int, position: int) -> bytes:
        """At most `count` bytes; fewer only at the end of the file."""
        ...

    def pread_cached(self, count: int, position: int) -> Buffer | None:
        """Read at most `count` bytes if they are in the page cache; fewer bytes if only some are.

        Empty only at the end of the file. None if the device would be read: then call `pread` in a thread.
        """
        ...

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers one after the other from `position`; the number of bytes. Raises OSError."""
        ...

    def truncate(self, size: int) -> None: ...
    def size(self) -> int: ...
    def sync(self) -> None:
        """fsync; waits for the device, so call it through `Disk.in_thread`."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are plain text. Every call raises OSError as the operating system does."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; raises FileNotFoundError unless `create`."""
        ...

    def open_read(self, path: str) -> File: ...
    def read(self, path: str) -> bytes: ...
    def write_atomically(self, path: str, content: bytes) -> None:
        """Write a temporary file, sync, rename, sync the directory: readers see the old or the new content."""
        ...

    def temporary_name(self, path: str) -> str:
        """A name beside `path` that no other writer uses; it ends in `.tmp`, leftovers are removed at a start."""
        ...

    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def make_directories(self, path: str) -> None: ...
    def list_directory(self, path: str) -> list[str]:
        """Names, sorted."""
        ...

    def exists(self, path: str) -> bool: ...
    def is_directory(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def sync_directory(self, path: str) -> None: ...
    def sync_filesystem(self, path: str) -> None:
        """Sync everything written to the filesystem of `path`, which is faster than syncing many files."""
        ...

    def lock(self, path: str) -> DirectoryLock | None:
        """Lock the file at `path`; None if another process has locked it."""
        ...

    def usage(self, path: str) -> DiskUsage: ...
    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that waits for the device without holding the loop."""
        ...


TEMPORARY: Final = ".tmp"
_temporary_numbers = itertools.count(1)

_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)  # Linux has it, Python does not name it
_MAX_BUFFERS = 512  # below every IOV_MAX
_ONLY_CACHED: int | None = getattr(os, "RWF_NOWAIT", None)  # Linux


class _RealFile:
    __slots__ = ("_open_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._open_descriptor = descriptor

    def pread(self, count: int, position: int) -> bytes:
        first = os.pread(self._open_descriptor, count, position)
        if len(first) == count or not first:
            return first
        parts = [first]
        done = len(first)
        while done < count and (part := os.pread(self._open_descriptor, count - done, position + done)):
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def pread_cached(self, count: int, position: int) -> Buffer | None:
        if _ONLY_CACHED is None:
            return None
        content = bytearray(count)
        try:
            done = os.preadv(self._open_descriptor, (content,), position, _ONLY_CACHED)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL):  # or the filesystem cannot tell
                return None
            raise
        if done < count:
            del content[done:]
        return content

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        start = position
        pending = [memoryview(b) for b in buffers if len(b)]
        while pending:
            written = os.pwritev(self._open_descriptor, pending[:_MAX_BUFFERS], position)
            position += written
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]
        return position - start

    def truncate(self, size: int) -> None:
        os.ftruncate(self._open_descriptor, size)

    def size(self) -> int:
        return os.fstat(self._open_descriptor).st_size

    def sync(self) -> None:
        os.fsync(self._open_descriptor)

    def close(self) -> None:
        os.close(self._open_descriptor)


class _RealLock:
    def __init__(self, descriptor: int) -> None:
        self._open_descriptor = descriptor

    def release(self) -> None:
        os.close(self._open_descriptor)


class RealDisk:
    def open(self, path: str, *, create: bool = False) -> File:
        return _RealFile(os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644))

    def open_read(self, path: str) -> File:
        return _RealFile(os.open(path, os.O_RDONLY))

    def read(self, path: str) -> bytes:
        with _open_descriptor(path, os.O_RDONLY) as descriptor:
            return _RealFile(descriptor).pread(os.fstat(descriptor).st_size, 0)

    def write_atomically(self, path: str, content: bytes) -> None:
        temporary = self.temporary_name(path)
        try:
            with _open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
                _RealFile(descriptor).pwrite([content], 0)
                os.fsync(descriptor)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        self.sync_directory(os.path.dirname(path) or ".")

    def temporary_name(self, path: str) -> str:
        return f"{path}.{os.getpid()}-{next(_temporary_numbers)}{TEMPORARY}"

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_directory(self, path: str) -> None:
        with _open_descriptor(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)

    def sync_filesystem(self, path: str) -> None:
        if _syncfs is None:
            os.sync()
            return
        with _open_descriptor(path, os.O_RDONLY) as descriptor:
            if _syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)

    def lock(self, path: str) -> DirectoryLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # a POSIX record lock, the kind that Java's FileChannel.tryLock takes
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return _RealLock(descriptor)

    def usage(self, path: str) -> DiskUsage:
        facts = os.statvfs(path)
        return DiskUsage(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(call, *args, **kwargs)


@contextlib.contextmanager
def _open_descriptor(path: str, flags: int) -> Iterator[int]:
    """A file descriptor for the block; closed at its end."""
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
