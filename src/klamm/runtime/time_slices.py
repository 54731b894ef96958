"""Time slices: long work yields to the event loop after a slice of time.

A dozen tasks that each work for 5 ms hold the loop for 60 ms if all are ready in one pass. Tasks that share a
`TimeSlices` share one slice per pass: when it is used up they wait, and continue one per pass, so that other tasks run
in between. Time is the loop's. A simulated loop's time does not advance during a callback, so there a slice is a number
of items (`CountedSlices`): the same seed yields at the same places on any machine.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

SLICE_S: Final = 0.003
"""The time that long work may use in one pass of the loop."""
PIECE: Final = 128
"""The default number of items in a list of `over`."""
COUNTED_ITEMS: Final = 250
"""Items per pass in `CountedSlices`."""


class SliceObserver(Protocol):
    """Is notified of the end of slices and of the work (see `memory.LongWork`)."""

    def on_slice_end(self) -> None:
        """Called when a slice of the work has ended, before other callbacks of the event loop run."""

    def on_work_end(self) -> None:
        """Called when the whole work has ended."""


class Slices(Protocol):
    """The interface of time slices, for work on many partitions."""

    async def checkpoint(self, items: int = 1) -> None:
        """Let the event loop run other callbacks if the time slice is used up.

        Call it before each `items` items of work.
        """

    async def yield_now(self) -> None:
        """Yield to the loop now, even if the slice is not used up."""

    def over(self, items: Iterable[T], size: int = PIECE) -> AsyncIterator[list[T]]:
        """Yield the items in lists, with a checkpoint before each; set `size` only if it matters to the caller."""

    def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items one by one, with checkpoints between them."""

    async def clear(self, contents: dict[Any, Any] | list[Any]) -> None:
        """Remove everything from it, some in each time slice: freeing 100,000 objects at once takes tens of ms."""

    async def run(self, steps: Iterable[object]) -> None:
        """Exhaust the iterator, whose every step is work on one item: a generator that yields after each."""

    def begin(self, steps: Iterable[object]) -> Awaitable[None] | None:
        """Run up to `PIECE` steps at once; await the result, if it is not None, to run the others in time slices.

        It does what `run` does, and costs less where there are few steps.
        """

    async def list_of(self, items: Iterable[T]) -> list[T]:
        """Return the items of a lazy iterable as a list, made in time slices; the first `PIECE` at once."""

    async def dict_of(self, entries: Iterable[tuple[K, V]]) -> dict[K, V]:
        """Return the entries of a lazy iterable as a dict, made in time slices; the first `PIECE` at once."""

    def close(self) -> None:
        """Record that the work which is divided into these slices has ended, and notify the observer."""


class _Pieces(ABC):
    """The methods that follow from `checkpoint` and `yield_now`."""

    @abstractmethod
    async def checkpoint(self, items: int = 1) -> None:
        """Let the event loop run other callbacks if this pass of the loop has done enough work."""

    async def yield_now(self) -> None:
        """Let the event loop run other callbacks in any case."""
        await asyncio.sleep(0)

    async def over(self, items: Iterable[T], size: int = PIECE) -> AsyncIterator[list[T]]:
        """Yield the items in lists of at most `size`; let the event loop run other work when the time slice is over."""
        rest = iter(items)
        while piece := list(islice(rest, size)):
            await self.checkpoint(len(piece))
            yield piece

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items one by one; let the event loop run other work when the time slice is over."""
        async for piece in self.over(items):
            for item in piece:
                yield item

    async def clear(self, contents: dict[Any, Any] | list[Any]) -> None:
        """Remove everything from it, with a checkpoint before each `PIECE` entries where there are more."""
        remove: Callable[[], Any] = contents.popitem if isinstance(contents, dict) else contents.pop
        while len(contents) > PIECE:
            await self.checkpoint(PIECE)
            for _ in range(PIECE):
                remove()
            if len(contents) <= PIECE:
                await self.checkpoint(len(contents))
        contents.clear()

    async def run(self, steps: Iterable[object]) -> None:
        """Exhaust the iterator, with a checkpoint after each `PIECE` steps."""
        rest = self.begin(steps)
        if rest is not None:
            await rest

    def begin(self, steps: Iterable[object]) -> Awaitable[None] | None:
        """Run up to `PIECE` steps; returns a coroutine for the others, or None where there are none."""
        rest = iter(steps)
        return self._run_on(rest) if len(list(islice(rest, PIECE))) == PIECE else None

    async def _run_on(self, rest: Iterator[object]) -> None:
        """Exhaust an iterator of which the first piece has run."""
        await self.checkpoint(PIECE)
        while len(list(islice(rest, PIECE))) == PIECE:
            await self.checkpoint(PIECE)

    async def list_of(self, items: Iterable[T]) -> list[T]:
        """Return the items as a list, with a checkpoint after each `PIECE` of them."""
        rest = iter(items)
        made = list(islice(rest, PIECE))
        count = len(made)
        while count == PIECE:
            await self.checkpoint(PIECE)
            piece = list(islice(rest, PIECE))
            made += piece
            count = len(piece)
        return made

    async def dict_of(self, entries: Iterable[tuple[K, V]]) -> dict[K, V]:
        """Return the entries as a dict, with a checkpoint after each `PIECE` of them."""
        rest = iter(entries)
        piece = list(islice(rest, PIECE))
        made = dict(piece)
        while len(piece) == PIECE:
            await self.checkpoint(PIECE)
            piece = list(islice(rest, PIECE))
            made.update(piece)
        return made


class TimeSlices(_Pieces):
    """Slices of time, shared by the tasks of one loop that do the same work."""

    def __init__(self, observer: SliceObserver | None = None, slice_s: float = SLICE_S) -> None:
        self._observer = observer
        self._slice_s = slice_s
        self._pass_began_at: float | None = None
        """When work was first looked at in this pass of the loop."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_waking = False

    async def checkpoint(self, items: int = 1) -> None:  # noqa: ARG002 - the clock tells what they cost
        """Wait for the next slice if this pass of the event loop has used up its time."""
        loop = asyncio.get_running_loop()
        if self._pass_began_at is None:
            self._pass_began_at = loop.time()
            loop.call_soon(self._start_slice)
        elif loop.time() - self._pass_began_at >= self._slice_s:
            await self._wait_for_slice(loop)
            self._pass_began_at = loop.time()
            loop.call_soon(self._start_slice)

    def close(self) -> None:
        """Tell the observer that the work which is divided into these slices has ended."""
        if self._observer is not None:
            self._observer.on_work_end()

    def _start_slice(self) -> None:
        """End the slice after a pass of the loop; the next work begins another."""
        self._pass_began_at = None

    async def _wait_for_slice(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for a pass of the loop in which no other task begins a slice."""
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_waking:
            self._is_waking = True
            loop.call_soon(self._wake_next)
        await turn

    def _wake_next(self) -> None:
        """Wake the task that waits longest for a slice."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                if self._observer is not None:
                    self._observer.on_slice_end()
                turn.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._wake_next)
        else:
            self._is_waking = False


class CountedSlices(_Pieces):
    """Slices of a number of items in one pass of the loop. Work on three quarters of them never yields.

    Most work is on a few items: only once a quarter of a slice is counted, the next pass of the loop is waited for, to
    begin again with zero.
    """

    def __init__(self, items: int = COUNTED_ITEMS) -> None:
        self._most = items
        self._uncalled = items // 4
        self._count = 0

    async def checkpoint(self, items: int = 1) -> None:
        """Wait for the next pass of the event loop if this one has had its number of items."""
        if self._count + items > self._most:
            await asyncio.sleep(0)
            self._count = 0
        if self._count <= self._uncalled < self._count + items:
            asyncio.get_running_loop().call_soon(self._next_pass)
        self._count += items

    def close(self) -> None:
        """End the work: set the count of items of this pass to 0."""
        self._count = 0

    def _next_pass(self) -> None:
        """Count items from zero again, because a new pass of the event loop begins."""
        self._count = 0
