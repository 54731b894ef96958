"""Running work on all cores, with one process per core."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_ITEMS_AHEAD: Final = 2
"""Items in flight per process."""


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_s() -> float:
    """The processor time that this process has used, independent of the load of the machine."""
    return time.process_time()


def over_cores(work: Callable[[T], R], items: Iterable[T], cores: int | None = None) -> Iterator[R]:
    """Apply `work` to the items in several processes; yields results as they complete, in any order.

    `work` has to be a function of a module, items and results have to be picklable. Closing the iterator ends the
    processes. With one core everything runs in this process.
    """
    count = cores or core_count()
    if count == 1:
        yield from map(work, items)
        return
    gate = threading.Semaphore(count * _ITEMS_AHEAD)
    closing = threading.Event()
    with multiprocessing.get_context("fork").Pool(count, _ignore_stop_signals) as pool:
        try:
            for result in pool.imap_unordered(work, _with_limit(items, gate, closing)):
                gate.release()
                yield result
        finally:
            closing.set()
            gate.release()


def _with_limit(items: Iterable[T], gate: threading.Semaphore, closing: threading.Event) -> Iterator[T]:
    """Yield each item once the semaphore allows it, so that only a limited number is in flight."""
    for item in items:
        gate.acquire()
        if closing.is_set():
            return
        yield item


def _ignore_stop_signals() -> None:
    """Ignore Ctrl-C in a worker, as it reaches every process of the terminal; the parent ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
