"""Files. Calls that only use the page cache are plain; calls that wait for the device go through `in_thread`."""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
PathText = str | os.PathLike[str]
"""A path as text or as `pathlib.Path`, in functions that other programs call."""


class DiskUsage(NamedTuple):
    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """An open file; every read and write names its position."""

    def pread(self, count: int, position: int) -> bytes:
        """Return at most `count` bytes from the position; fewer only at the end of the file."""
        ...

    def pread_cached(self, count: int, position: int) -> Buffer | None:
        """Read at most `count` bytes if they are in the page cache; fewer bytes if only some are.

        Empty only at the end of the file. None if the device would be read: then call `pread` in a thread.
        """
        ...

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers one after the other from `position`; returns the number of bytes. Raises OSError."""
        ...

    def truncate(self, size: int) -> None:
        """Set the file's size in bytes: cut its end, or extend it with zeros."""

    def size(self) -> int:
        """Return the file's size in bytes."""

    def sync(self) -> None:
        """Make the content of the file durable (fsync); waits for the device, so call it through `Disk.in_thread`."""
        ...

    def close(self) -> None:
        """Close the file."""


class DirectoryLock(Protocol):
    def release(self) -> None:
        """Release the lock, so that another process can take it."""


class Disk(Protocol):
    """Paths are plain text. Every call raises OSError as the operating system does."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open the file for reading and writing. Raises FileNotFoundError unless `create`."""
        ...

    def open_read(self, path: str) -> File:
        """Open an existing file for reading. Raises FileNotFoundError."""

    def read(self, path: str) -> bytes:
        """Return the whole content of the file."""

    def write_atomically(self, path: str, content: bytes) -> None:
        """Write a temporary file, sync, rename, sync the directory: readers see the old or the new content."""
        ...

    def temporary_name(self, path: str) -> str:
        """A path beside `path`, ending in `.tmp`, that no other writer uses.

        Such files that a crash leaves behind are removed at the next start.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing file `target` is replaced. Not durable before `sync_directory`."""

    def remove(self, path: str) -> None:
        """Remove the file. Raises FileNotFoundError."""

    def remove_tree(self, path: str) -> None:
        """Remove the directory and everything below it."""

    def make_directories(self, path: str) -> None:
        """Create the directory and its missing parents; nothing happens where it exists."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names in the directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory at the path."""

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory at the path."""

    def size(self, path: str) -> int:
        """Return the size of the file in bytes."""

    def modified_ms(self, path: str) -> int:
        """Return when the file was last modified, in ms since 1970."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set when the file counts as last modified, in ms since 1970; a later write changes it again."""

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable: files created, renamed or removed in it."""

    def sync_filesystem(self, path: str) -> None:
        """Sync everything written to the filesystem of `path`, which is faster than syncing many files."""
        ...

    def lock(self, path: str) -> DirectoryLock | None:
        """Lock the file at `path`; None if another process has locked it."""
        ...

    def usage(self, path: str) -> DiskUsage:
        """Return total and usable bytes of the file system that has the path."""

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that waits for the device in a thread, so that it does not hold the event loop."""
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
        """Return up to `count` bytes from the position; fewer only at the end of the file."""
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
        """Return up to `count` bytes if they are in the page cache; None where reading would wait for the device."""
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
        """Write the buffers one after the other from the position on; return the number of bytes."""
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
        """Set the file's size in bytes."""
        os.ftruncate(self._open_descriptor, size)

    def size(self) -> int:
        """Return the file's size in bytes."""
        return os.fstat(self._open_descriptor).st_size

    def sync(self) -> None:
        """Make the content of the file durable (fsync)."""
        os.fsync(self._open_descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._open_descriptor)


class _RealLock:
    def __init__(self, descriptor: int) -> None:
        self._open_descriptor = descriptor

    def release(self) -> None:
        """Release the lock by closing its file."""
        os.close(self._open_descriptor)


class RealDisk:
    def open(self, path: str, *, create: bool = False) -> File:
        """Open the file for reading and writing; `create` makes it where it is missing."""
        return _RealFile(os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644))

    def open_read(self, path: str) -> File:
        """Open an existing file for reading only."""
        return _RealFile(os.open(path, os.O_RDONLY))

    def read(self, path: str) -> bytes:
        """Return the whole content of the file."""
        with _open_descriptor(path, os.O_RDONLY) as descriptor:
            return _RealFile(descriptor).pread(os.fstat(descriptor).st_size, 0)

    def write_atomically(self, path: str, content: bytes) -> None:
        """Replace the file's content durably: after a crash it has the old content or the new one, never a part."""
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
        """Return a path next to `path` that no other file uses."""
        return f"{path}.{os.getpid()}-{next(_temporary_numbers)}{TEMPORARY}"

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing file `target` is replaced."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove the file."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove the directory and everything below it."""
        shutil.rmtree(path)

    def make_directories(self, path: str) -> None:
        """Create the directory and its missing parents; nothing happens where it exists."""
        os.makedirs(path, exist_ok=True)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in the directory, sorted."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """Whether there is a file, directory or link at the path."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory at the path."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """Return the size of the file in bytes."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Return when the file was last modified, in ms since 1970."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set when the file counts as last modified, in ms since 1970."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable (fsync)."""
        with _open_descriptor(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)

    def sync_filesystem(self, path: str) -> None:
        """Make everything durable that was written to the file system of the path.

        Where syncfs is missing, all file systems are synced.
        """
        if _syncfs is None:
            os.sync()
            return
        with _open_descriptor(path, os.O_RDONLY) as descriptor:
            if _syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)

    def lock(self, path: str) -> DirectoryLock | None:
        """Lock the file, created where missing, for this process; None where another process has the lock."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # a POSIX record lock, the kind that Java's FileChannel.tryLock takes
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return _RealLock(descriptor)

    def usage(self, path: str) -> DiskUsage:
        """Return total and usable bytes of the file system that has the path."""
        facts = os.statvfs(path)
        return DiskUsage(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the call in a thread and return its result; exceptions pass through."""
        return await asyncio.to_thread(call, *args, **kwargs)


@contextlib.contextmanager
def _open_descriptor(path: str, flags: int) -> Iterator[int]:
    """Open a file descriptor for the block, and close it at its end."""
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def path_text(path: PathText) -> str:
    """The path as text."""
    return os.fspath(path)


def make_temporary_directory(prefix: str) -> str:
    """Create a directory that no other process uses, where the system keeps temporary files; its path."""
    return tempfile.mkdtemp(prefix=prefix)
