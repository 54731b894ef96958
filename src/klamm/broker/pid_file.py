"""Which process runs a node: a plain file beside the partitions, true as long as the directory's lock is held."""

from typing import Final

from klamm.runtime.disk import Disk
from klamm.runtime.processes import own_pid

PID_FILE: Final = "node.pid"
LOCK_FILE: Final = ".lock"


def write_pid(disk: Disk, directory: str) -> None:
    """Call it once the directory's lock is ours. Raises OSError."""
    disk.write_atomically(f"{directory}/{PID_FILE}", f"{own_pid()}\n".encode())


def read_pid(disk: Disk, directory: str) -> int | None:
    """The process that holds the directory; None where none does, or it does not say which."""
    if not disk.is_directory(directory):
        return None
    lock = disk.lock(f"{directory}/{LOCK_FILE}")
    if lock is not None:
        lock.release()
        return None
    try:
        text = disk.read(f"{directory}/{PID_FILE}").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
