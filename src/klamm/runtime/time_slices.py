"""Long work beside everything else: the loop is given back once one pass of it was held for a slice of time.

A dozen tasks that each rest after 5 ms still hold the loop for 60 ms when all of them are ready in one pass. Tasks that
share a `TimeSlices` share the slice of each pass: when it is used up they wait, and go on one after the other, each in
a pass of its own, so that whatever else is ready runs between them.

Time is the loop's. On a simulated loop it stands still while a callback computes, so a slice is a number of items there
(`CountedSlices`): the same seed gives the loop back at the same places, whatever the machine.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

SLICE_S: Final = 0.003
"""After how long a pass of the loop is over: it is held for about 5 ms then, and for 10 at most, since the last piece
of work before the look at the clock, a request to encode, takes some milliseconds by itself."""
PIECE: Final = 128
"""Items between two looks at the clock: they take a millisecond at most."""
COUNTED_ITEMS: Final = 250
"""What a slice is worth where time cannot be measured: an item costs some 20 microseconds."""


class SliceObserver(Protocol):
    """Is told how long the work is: memory that it made stays for long (see `memory.LongWork`)."""

    def slice_ends(self) -> None: ...
    def work_ends(self) -> None: ...


class Slices(Protocol):
    """Where long work gives the loop back."""

    async def checkpoint(self, items: int = 1) -> None:
        """Call this before each piece of work of so many items: at the end of a slice it yields to the event loop."""

    async def give_back(self) -> None:
        """Whatever else is ready runs now, however short the work was."""

    def over(self, items: Iterable[T], size: int = PIECE) -> AsyncIterator[list[T]]:
        """Yield the items in lists, with a checkpoint before each; the size of lists matters only where it is given."""

    def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items one by one, with checkpoints between them."""

    async def let_go(self, contents: dict[Any, Any]) -> None:
        """Empty a dict in pieces: to free a hundred thousand objects at once takes tens of milliseconds."""

    def close(self) -> None:
        """End the work: the objects it created may be collected."""


class _Pieces(ABC):
    """What follows from checkpoints, wherever these give the loop back."""

    @abstractmethod
    async def checkpoint(self, items: int = 1) -> None: ...

    async def give_back(self) -> None:
        await asyncio.sleep(0)

    async def over(self, items: Iterable[T], size: int = PIECE) -> AsyncIterator[list[T]]:
        rest = iter(items)
        while piece := list(islice(rest, size)):
            await self.checkpoint(len(piece))
            yield piece

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        async for piece in self.over(items):
            for item in piece:
                yield item

    async def let_go(self, contents: dict[Any, Any]) -> None:
        while contents:
            going = min(PIECE, len(contents))
            await self.checkpoint(going)
            for _ in range(going):
                contents.popitem()


class TimeSlices(_Pieces):
    """Shared by tasks of one loop that work for the same cause."""

    def __init__(self, observer: SliceObserver | None = None, slice_s: float = SLICE_S) -> None:
        self._observer = observer
        self._slice_s = slice_s
        self._pass_began_at: float | None = None
        """When work was first looked at in this pass of the loop."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_waking = False

    async def checkpoint(self, items: int = 1) -> None:  # noqa: ARG002 - the clock tells what they cost
        loop = asyncio.get_running_loop()
        if self._pass_began_at is None:
            self._pass_began_at = loop.time()
            loop.call_soon(self._start_slice)
        elif loop.time() - self._pass_began_at >= self._slice_s:
            await self._wait_for_slice(loop)
            self._pass_began_at = loop.time()
            loop.call_soon(self._start_slice)

    def close(self) -> None:
        if self._observer is not None:
            self._observer.work_ends()

    def _start_slice(self) -> None:
        self._pass_began_at = None

    async def _wait_for_slice(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return in an iteration of the loop in which no other task begins a slice."""
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_waking:
            self._is_waking = True
            loop.call_soon(self._wake_next)
        await turn

    def _wake_next(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                if self._observer is not None:
                    self._observer.slice_ends()
                turn.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._wake_next)
        else:
            self._is_waking = False


class CountedSlices(_Pieces):
    """Slices of so many items in one pass of the loop. Work on fewer never gives the loop back."""

    def __init__(self, items: int = COUNTED_ITEMS) -> None:
        self._most = items
        self._count = 0

    async def checkpoint(self, items: int = 1) -> None:
        if self._count == 0:
            asyncio.get_running_loop().call_soon(self._next_pass)
        self._count += items
        if self._count > self._most:
            await asyncio.sleep(0)
            self._count = items

    def close(self) -> None:
        self._count = 0

    def _next_pass(self) -> None:
        self._count = 0
