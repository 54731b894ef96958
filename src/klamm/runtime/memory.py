"""Settings of the garbage collector, which stops the whole process while it scans, and of malloc for large buffers."""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import ClassVar, Final
from weakref import WeakSet

YOUNG_OBJECTS: Final = 2_000
"""New objects between two collections of the youngest generation."""
LONG_WORK_SLICES: Final = 20
"""Slices in a row that make work long: it made thousands of objects."""
FULL_FREEZE_SLICES: Final = 4
"""After this many slices all objects are frozen. The collector counts created minus freed objects, which stays near
zero where states are replaced: without this it would at some time scan all of them (150 ms at 200,000)."""
IN_A_ROW_S: Final = 1.0


class LongWork:
    """Excludes the objects that long work creates from garbage collection.

    Scanning a hundred thousand partitions would block the event loop for a tenth of a second, repeatedly. Objects
    without cycles are still freed by reference counts; cyclic garbage stays until the work ends. It is a
    `SliceObserver` of `TimeSlices`. Work that was not long, such as a large request, changes nothing when it ends.
    """

    _excluding: ClassVar["WeakSet[LongWork]"] = WeakSet()
    """All work that has excluded objects and has not ended."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        """`now` returns seconds; by default the running loop's time."""
        self._now = now
        self._row = 0
        self._last_at = 0.0

    def on_slice_end(self) -> None:
        """Exclude the objects that the work has created so far from garbage collection."""
        now = self._time()
        self._row = self._row + 1 if now - self._last_at < IN_A_ROW_S else 1
        self._last_at = now
        if self._row <= LONG_WORK_SLICES:
            return
        # a young dict of a hundred thousand partitions costs the next collection tens of ms, however little is new
        if self._row % FULL_FREEZE_SLICES == 0 or gc.get_count()[0] > YOUNG_OBJECTS:
            self._excluding.add(self)
            gc.freeze()

    def on_work_end(self) -> None:
        """Include all objects in garbage collection again, unless other long work is under way.

        The next full collection scans them.
        """
        self._row = 0
        if self not in self._excluding:
            return
        self._excluding.discard(self)
        now = self._time()
        if not any(now - work._last_at < IN_A_ROW_S for work in self._excluding):
            gc.unfreeze()

    def _time(self) -> float:
        """The time in seconds."""
        return asyncio.get_running_loop().time() if self._now is None else self._now()


def free_cycles() -> None:
    """Free objects that only refer to each other; the collector does so by itself, but rarely where few are created."""
    gc.collect()


def freeze_objects() -> None:
    """Exclude all objects that exist now from garbage collection."""
    gc.collect()
    gc.freeze()


_TRIM_THRESHOLD: Final = -1  # M_TRIM_THRESHOLD of glibc's malloc.h
_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD
KEPT_BUFFER_BYTES: Final = 32 * 1024 * 1024
KEPT_FREE_BYTES: Final = 128 * 1024 * 1024


def keep_large_buffers() -> bool:
    """Let malloc reuse freed buffers up to 32 MiB; false if malloc is not glibc's.

    By default, each large buffer is mapped again, and the kernel zeroes its pages: that is half of the time of a broker
    that reads segments into memory, and up to a quarter of that of a Spark worker. At most 128 MiB of free memory stay
    with the process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BUFFER_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_FREE_BYTES))
