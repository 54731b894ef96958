"""A simulated disk in memory: it can fill up, lose power (`sim/power_loss.py`), and faults can be injected.

Data that a process wrote stays when the process is killed.
"""

import asyncio
import errno
import posixpath
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from klamm.runtime.disk import TEMPORARY, Buffer, DirectoryLock, DiskUsage, File
from klamm.runtime.randomness import Rng
from klamm.sim.power_loss import DirectoryRenamed, Inode, NameChanged, Names, PowerLoss, without_orphans

P = ParamSpec("P")
T = TypeVar("T")
Fault = Callable[[str, str], int | None]
"""(call, path) -> the errno with which it fails, or None."""


class DiskObserver:
    """Told of what a process does to files, before it is done."""

    def on_write(self, path: str) -> None:
        """Called before the file is written."""
        return

    def on_truncate(self, path: str, size: int) -> None:
        """Called before the file is set to `size` bytes."""
        return

    def on_remove(self, path: str) -> None:
        """Called when a file is removed or renamed."""
        return

    def on_directory_renamed(self, source: str, target: str) -> None:
        """Called before a directory is renamed."""
        return

    def on_error(self, call: str, path: str) -> None:
        """Called when a fault makes a call fail."""
        return


class SimulatedDisk:
    """The disk of one simulated machine; implements the `Disk` port."""

    def __init__(self, rng: Rng, capacity_bytes: int = 1 << 40) -> None:
        self._rng = rng
        self.capacity_bytes = capacity_bytes
        self.fault: Fault = lambda call, path: None
        self.latency_s = 0.0
        """How long a call that waits for the device takes."""
        self.is_cold: Callable[[str], bool] = lambda path: False
        """Whether the next bytes of a file are only on the device."""
        self.cold: dict[str, None] = {}
        """The files of which bytes were not in the page cache, until they are read from the device."""
        self._names: Names = {"/": None}
        self._durable: Names = {"/": None}
        self._unsynced: list[NameChanged | DirectoryRenamed] = []
        """Changes of names since their directory was synced."""
        self._listings: dict[str, tuple[str, ...]] = {}
        """The names in each directory that was asked for, until one of them changes."""
        self._locks: set[str] = set()
        self._temporary_files = 0
        self.observer = DiskObserver()
        self.now_ms: Callable[[], int] = lambda: 0
        """The machine's clock, for the times at which files were changed."""
        self._failed: dict[str, None] = {}
        """Directories on a device that is dead."""

    # ---- what befalls it

    def process_died(self) -> None:
        """Release the directory locks of a process that has died."""
        self._locks.clear()

    def lose_power(self, how: PowerLoss = PowerLoss.BYTES) -> None:
        """Discard unsynced data and directory entries at random, as a power loss does."""
        for change in self._unsynced[: self._rng.randint(0, len(self._unsynced))]:
            change.apply(self._durable)
        self._unsynced.clear()
        self._durable = without_orphans(self._durable)
        self._names = dict(self._durable)
        self._listings.clear()
        for inode in dict.fromkeys(self._names.values()):
            if inode is not None:
                inode.lose_power(self._rng, how)
        self._locks.clear()

    def fail(self, directory: str) -> None:
        """Make every call below this directory fail, as when its device dies."""
        self._failed[directory] = None

    def replace(self, directory: str) -> None:
        """Put a new, empty device in place of the failed one."""
        del self._failed[directory]
        for names in (self._names, self._durable):
            for path in [p for p in names if p == directory or p.startswith(directory + "/")]:
                del names[path]
        self._listings.clear()
        self._unsynced = [change for change in self._unsynced if not change.is_below(directory)]

    def repair(self, directory: str) -> None:
        """Let the device of this directory work again, with what it had."""
        del self._failed[directory]

    def is_failed(self, path: str) -> bool:
        """Whether the path lies in a directory whose disk an injected fault made fail."""
        return any((path + "/").startswith(directory + "/") for directory in self._failed)

    # ---- what invariants look at: no fault applies

    def children(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted: the same object until a name in it, or what it stands for, changes."""
        known = self._listings.get(path)
        if known is None:
            above = path.rstrip("/") + "/"
            below = [p[len(above) :] for p in self._names if p.startswith(above)]
            known = self._listings[path] = tuple(sorted(name for name in below if name and "/" not in name))
        return known

    def inode_exists(self, path: str) -> bool:
        """Whether there is a file or directory of this name."""
        return path in self._names

    def inode(self, path: str) -> Inode | None:
        """Return the content of the file; None where there is no file at the path."""
        return self._names.get(path)

    def is_on_device(self, path: str, count: int | None = None) -> bool:
        """Whether a power loss leaves the file, with its first bytes, or with all of them."""
        inode = self._names.get(path)
        if inode is None or self._durable.get(path) is not inode:
            return False
        return inode.durable == inode.content if count is None else inode.durable[:count] == inode.content[:count]

    def used_bytes(self) -> int:
        """The number of bytes of all files."""
        return sum(len(i.content) for i in set(self._names.values()) if i is not None)

    # ---- runtime.disk.Disk

    def open(self, path: str, *, create: bool = False) -> File:
        """Open the file for reading and writing; `create` makes it where it is missing."""
        path = self._check_call("open", path)
        inode = self._names.get(path)
        if inode is None:
            if path in self._names:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._require_parent_directory(path)
            inode = Inode()
            self._record(NameChanged(path, inode, True))
        return SimulatedFile(self, path, inode)

    def open_read(self, path: str) -> File:
        """Open an existing file."""
        return self.open(path)

    def read(self, path: str) -> bytes:
        """Return the whole content of the file."""
        return bytes(self._file("read", path).content)

    def write_atomically(self, path: str, content: bytes) -> None:
        """Replace the file's content durably: after a power loss it has the old content or the new one."""
        temporary = self.temporary_name(path)
        file = self.open(temporary, create=True)
        file.pwrite([content], 0)
        file.sync()
        self.rename(temporary, path)
        self.sync_directory(posixpath.dirname(path) or ".")

    def temporary_name(self, path: str) -> str:
        """Return a path next to `path` that no other file uses."""
        self._temporary_files += 1
        return f"{path}.{self._temporary_files}{TEMPORARY}"

    def rename(self, source: str, target: str) -> None:
        """Rename a file, or a directory with everything below it.

        A power loss undoes it until the directory is synced.
        """
        source, target = self._check_call("rename", source), _normalize_path(target)
        self._require_existing(source)
        self._require_parent_directory(target)
        inode = self._names[source]
        if inode is None:
            self.observer.on_directory_renamed(source, target)
            self._record(DirectoryRenamed(source, target))
        else:
            self.observer.on_remove(source)
            self._record(NameChanged(target, inode, True))
            self._record(NameChanged(source, inode, False))

    def remove(self, path: str) -> None:
        """Remove the file; a power loss undoes it until the directory is synced."""
        path = self._check_call("remove", path)
        self._file("remove", path)
        self.observer.on_remove(path)
        self._record(NameChanged(path, None, False))

    def remove_tree(self, path: str) -> None:
        """Remove the directory and everything below it."""
        path = self._check_call("remove", path)
        self._require_existing(path)
        for each in sorted((p for p in self._names if p == path or p.startswith(path + "/")), reverse=True):
            self._record(NameChanged(each, None, False))

    def make_directories(self, path: str) -> None:
        """Create the directory and its missing parents."""
        path = self._check_call("mkdir", path)
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            each = "/" + "/".join(parts[:depth])
            if self._names.get(each) is not None:
                raise FileExistsError(errno.EEXIST, "is a file", each)
            if each not in self._names:
                self._record(NameChanged(each, None, True))

    def list_directory(self, path: str) -> list[str]:
        """Return the names directly below the path, sorted."""
        path = self._check_call("list", path)
        self._require_existing(path)
        return list(self.children(path))

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory at the path."""
        return _normalize_path(path) in self._names

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory at the path."""
        path = _normalize_path(path)
        return path in self._names and self._names[path] is None

    def size(self, path: str) -> int:
        """Return the size of the file in bytes."""
        return len(self._file("stat", path).content)

    def modified_ms(self, path: str) -> int:
        """Return when the file was last modified, in ms of simulated time."""
        return self._file("stat", path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set when the file counts as last modified, in ms of simulated time."""
        self._file("utime", path).modified_ms = modified_ms

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable, so that a power loss keeps them.

        Where an older directory of this path was renamed, that is durable as well: the journal of a file system keeps
        the order.
        """
        path = self._check_call("sync", path)
        for slot in reversed(range(len(self._unsynced))):
            change = self._unsynced[slot]
            if isinstance(change, DirectoryRenamed) and (path + "/").startswith(change.source + "/"):
                earlier = self._sync_names(self._unsynced[: slot + 1], posixpath.dirname(change.source))
                self._unsynced = earlier + self._unsynced[slot + 1 :]
                break
        self._unsynced = self._sync_names(self._unsynced, path)

    def _sync_names(
        self, changes: list[NameChanged | DirectoryRenamed], path: str
    ) -> list[NameChanged | DirectoryRenamed]:
        """Make those of the changes durable that are in the directory; returns the others."""
        left: list[NameChanged | DirectoryRenamed] = []
        for change in changes:
            if not change.is_in(path):
                left.append(change)
                continue
            change.apply(self._durable)
            if isinstance(change, DirectoryRenamed):
                left = [earlier.after(change) for earlier in left]
        return left

    def sync_filesystem(self, path: str) -> None:
        """Make all names and contents of the disk durable."""
        self._check_call("sync", path)
        for inode in dict.fromkeys(self._names.values()):
            if inode is not None:
                inode.sync()
        self._durable = dict(self._names)
        self._unsynced.clear()

    def lock(self, path: str) -> DirectoryLock | None:
        """Lock the file, created where missing; None where it is locked already."""
        path = _normalize_path(path)
        if path in self._locks:
            return None
        self.open(path, create=True)
        self._locks.add(path)
        return _Lock(self._locks, path)

    def usage(self, path: str) -> DiskUsage:
        """Return total and free bytes of the disk."""
        return DiskUsage(self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes()))

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make the call after the latency of the disk and return its result."""
        await asyncio.sleep(self.latency_s)
        return call(*args, **kwargs)

    # ---- inside

    def check(self, call: str, path: str) -> None:
        """Raise the OSError that a test or a fault injects for this call."""
        code = errno.EIO if self.is_failed(path) else self.fault(call, path)
        if code is not None:
            self.observer.on_error(call, path)
            raise OSError(code, errno.errorcode.get(code, str(code)), path)

    def require_free_space(self, count: int, path: str) -> None:
        """Raise ENOSPC if this many more bytes do not fit."""
        if self.used_bytes() + count > self.capacity_bytes:
            self.observer.on_error("write", path)
            raise OSError(errno.ENOSPC, "no space left on device", path)

    def _check_call(self, call: str, path: str) -> str:
        """Raise the injected error for this call, if any; return the normalized path."""
        path = _normalize_path(path)
        self.check(call, path)
        return path

    def _file(self, call: str, path: str) -> Inode:
        """Return the file with this path. Raises FileNotFoundError, or the error injected for this call."""
        path = self._check_call(call, path)
        inode = self._names.get(path)
        if inode is None:
            self._require_existing(path)
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return inode

    def _require_existing(self, path: str) -> None:
        """Raise FileNotFoundError if nothing has this path."""
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)

    def _require_parent_directory(self, path: str) -> None:
        """Raise FileNotFoundError if the parent directory does not exist."""
        parent = posixpath.dirname(path)
        if self._names.get(parent, parent) is not None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)

    def _record(self, change: NameChanged | DirectoryRenamed) -> None:
        """Change the names; a power loss may undo it until the directory is synced."""
        change.apply(self._names)
        if isinstance(change, NameChanged):
            self._listings.pop(posixpath.dirname(change.path), None)
        else:
            self._listings.clear()
        self._unsynced.append(change)


def _normalize_path(path: str) -> str:
    """Return the path as absolute, without `.`, `..` and double slashes."""
    return posixpath.normpath(posixpath.join("/", path))


class SimulatedFile:
    """An open simulated file; it stays usable after its name was removed, as in Unix."""

    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def pread(self, count: int, position: int) -> bytes:
        """Return up to `count` bytes from the position; they are in the page cache from then on."""
        self._disk.cold.pop(self._path, None)
        self._disk.check("read", self._path)
        return bytes(self._inode.content[position : position + count])

    def pread_cached(self, count: int, position: int) -> Buffer | None:
        """Return up to `count` bytes; None while a fault keeps the file out of the page cache."""
        if self._path in self._disk.cold or self._disk.is_cold(self._path):
            self._disk.cold[self._path] = None
            return None
        return self.pread(count, position)

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers from the position on and return the number of bytes; lost in a power loss until `sync`."""
        self._disk.check("write", self._path)
        data = b"".join(buffers)
        growth = position + len(data) - len(self._inode.content)
        if growth > 0 and self._disk.capacity_bytes < 1 << 40:
            self._disk.require_free_space(growth, self._path)
        self._disk.observer.on_write(self._path)
        self._inode.modified_ms = self._disk.now_ms()
        self._inode.apply(position, data)
        return len(data)

    def truncate(self, size: int) -> None:
        """Set the file's size in bytes; a power loss undoes it until `sync`."""
        self._disk.check("truncate", self._path)
        self._disk.observer.on_truncate(self._path, size)
        self._inode.apply(size, None)

    def size(self) -> int:
        """Return the file's size in bytes."""
        return len(self._inode.content)

    def sync(self) -> None:
        """Make the content of the file durable, so that a power loss keeps it."""
        self._disk.check("sync", self._path)
        self._inode.sync()

    def close(self) -> None:
        """Do nothing: an open file holds no resource."""


class _Lock:
    """The lock on a directory; `release` frees it."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        """Release the lock, so that the file can be locked again."""
        self._locks.discard(self._path)
