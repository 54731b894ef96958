"""Which process owns a TCP connection on this machine. Linux only: read from /proc, without special rights."""

import os
from collections.abc import Iterable

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL_ADDRESS, _INODE = 1, 9
_NO_INODE = "0"


def can_find_owners() -> bool:
    """Whether this system can tell which process owns a connection."""
    return os.path.exists(_TABLES[0])


def owner_of_port(port: int, candidates: Iterable[int]) -> int | None:
    """The id of the process among `candidates` that has a connection from this local port; None where none has."""
    inodes = {f"socket:[{inode}]" for inode in _inodes_of_port(port)}
    return next((pid for pid in candidates if inodes.intersection(_open_files(pid))), None)


def _inodes_of_port(port: int) -> list[str]:
    """The inodes of the sockets that are bound to this local port."""
    suffix = f":{port:04X}"
    found: list[str] = []
    for table in _TABLES:
        try:
            with open(table) as lines:
                rows = [line.split() for line in lines]
        except OSError:
            continue
        found += [row[_INODE] for row in rows[1:] if row[_LOCAL_ADDRESS].endswith(suffix) and row[_INODE] != _NO_INODE]
    return found


def _open_files(pid: int) -> set[str]:
    """The files and sockets that the process has open; empty where it has ended."""
    directory = f"/proc/{pid}/fd"
    found: set[str] = set()
    try:
        names = os.listdir(directory)
    except OSError:
        return found
    for name in names:
        try:
            found.add(os.readlink(f"{directory}/{name}"))
        except OSError:
            continue  # closed meanwhile
    return found
