"""Work spread over all cores, one process on each."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def core_count() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def over_cores(work: Callable[[T], R], items: Iterable[T], cores: int | None = None) -> Iterator[R]:
    """Results as they come, in any order; `work` is a function of a module, items and results can be pickled.

    Closing the iterator ends the processes. With one core all happens in this process.
    """
    count = cores or core_count()
    if count == 1:
        yield from map(work, items)
        return
    with multiprocessing.get_context("fork").Pool(count) as pool:
        yield from pool.imap_unordered(work, items)
