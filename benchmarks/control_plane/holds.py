"""Measures how long each pass of an event loop takes, in processor time, and in which functions."""

import asyncio
import gc
import resource
import selectors
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

LIMIT_S: Final = 0.010
EVERY_S: Final = 0.001
FRAMES: Final = 6
"""How many of the innermost calls tell where it was."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One pass of the event loop that took long."""

    step: str
    held_s: float
    page_faults: int
    notes: Sequence[tuple[float, str]]


class Holds:
    """Records how long each pass of an event loop holds it, and where."""

    def __init__(self) -> None:
        self.step = ""
        self.longest_s = 0.0
        self.kept: list[Hold] = []
        self._began = 0.0
        self._noted = 0.0
        self._faults = 0
        self._notes: list[tuple[float, str]] = []

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on a new loop whose passes are measured."""
        before = signal.signal(signal.SIGPROF, self._record_position)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        gc.callbacks.append(self._record_garbage_collection)
        try:
            with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_Selector(self))) as runner:
                return runner.run(main)
        finally:
            gc.callbacks.remove(self._record_garbage_collection)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def begin(self, step: str) -> None:
        """Record the following passes under this step."""
        self.step, self.longest_s = step, 0.0

    def longest_of(self, step: str, most: int) -> Iterator[str]:
        """The longest passes of a step that held the loop for long, and where."""
        kept = [hold for hold in self.kept if hold.step == step]
        yield f"{step}: {len(kept)} passes over {LIMIT_S * 1000:g} ms"
        for hold in sorted(kept, key=lambda hold: -hold.held_s)[:most]:
            yield f"    {hold.held_s * 1000:.1f} ms, {hold.page_faults} page faults"
            for where, notes in groupby(hold.notes, key=itemgetter(1)):
                yield f"        {sum(spent for spent, _ in notes) * 1000:.1f}  {where}"

    def pass_begins(self) -> None:
        """Called by the selector when a pass of the loop begins."""
        self._notes = []
        self._faults = _page_faults()
        self._began = self._noted = time.thread_time()

    def pass_ends(self) -> None:
        """Called by the selector when a pass of the loop ends."""
        held_s = time.thread_time() - self._began
        self.longest_s = max(self.longest_s, held_s)
        if held_s > LIMIT_S and self._began:
            self.kept.append(Hold(self.step, held_s, _page_faults() - self._faults, self._notes))

    def _record_position(self, _: int, frame: FrameType | None) -> None:
        """Signal handler: record the running function."""
        if frame is None or frame.f_code is Holds._record_garbage_collection.__code__:
            return  # the timer rang while the collector ran
        self._notes.append((self._cpu_s_since_last(), " < ".join(islice(_call_names(frame), FRAMES))))

    def _record_garbage_collection(self, phase: str, info: dict[str, int]) -> None:
        """The garbage collector stands in the notes by name: where it begins says little."""
        what = "before it" if phase == "start" else f"generation {info['generation']}"
        self._notes.append((self._cpu_s_since_last(), f"garbage collector, {what}"))

    def _cpu_s_since_last(self) -> float:
        """Processor seconds since the last call."""
        now = time.thread_time()
        spent, self._noted = now - self._noted, now
        return spent


class _Selector(selectors.DefaultSelector):
    def __init__(self, holds: Holds) -> None:
        super().__init__()
        self._holds = holds

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._holds.pass_ends()
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        self._holds.pass_begins()
        return ready


def _page_faults() -> int:
    """Page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def _call_names(frame: FrameType | None) -> Iterator[str]:
    """Names of the calls, from the innermost outwards."""
    while frame is not None:
        code = frame.f_code
        yield f"{'/'.join(code.co_filename.split('/')[-2:])}:{frame.f_lineno} {code.co_name}"
        frame = frame.f_back
