"""Work spread over all cores, one process on each."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_AHEAD: Final = 2
"""Items dealt to each core before their results are there: so items may be endless, and be decided upon late."""


def core_count() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_s() -> float:
    """Seconds of a core that this process has used, however busy the machine is."""
    return time.process_time()


def over_cores(work: Callable[[T], R], items: Iterable[T], cores: int | None = None) -> Iterator[R]:
    """Results as they come, in any order; `work` is a function of a module, items and results can be pickled.

    Closing the iterator ends the processes. With one core all happens in this process.
    """
    count = cores or core_count()
    if count == 1:
        yield from map(work, items)
        return
    gate = threading.Semaphore(count * _AHEAD)
    closing = threading.Event()
    with multiprocessing.get_context("fork").Pool(count, _leave_signals_to_the_parent) as pool:
        try:
            for result in pool.imap_unordered(work, _dealt(items, gate, closing)):
                gate.release()
                yield result
        finally:
            closing.set()
            gate.release()


def _dealt(items: Iterable[T], gate: threading.Semaphore, closing: threading.Event) -> Iterator[T]:
    for item in items:
        gate.acquire()
        if closing.is_set():
            return
        yield item


def _leave_signals_to_the_parent() -> None:
    """Ctrl-C reaches the whole terminal: the parent decides what it means, and ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
