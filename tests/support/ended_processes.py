"""Whether processes have ended; they may end between two looks at them."""

from collections.abc import Iterable

import psutil


def all_gone(processes: Iterable[psutil.Process]) -> bool:
    """Whether each of these processes has ended."""
    return all(map(is_gone, processes))


def is_gone(process: psutil.Process) -> bool:
    """Whether the process has ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def has_ended(pid: int) -> bool:
    """Whether the process with this id has ended."""
    try:
        return is_gone(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True
