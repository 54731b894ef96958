"""Long work beside everything else: at most one piece of it in each pass of the event loop.

A dozen tasks that each rest after 5 ms still hold the loop for 60 ms when all of them are ready in one pass. Those that
take turns go one after another, and whatever else is ready runs between them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

from klamm.runtime import memory

T = TypeVar("T")

LIGHT: Final = 250
"""Items that nobody waits for the end of: a few hundred microseconds."""
LARGE: Final = 20
"""TimeSlices in a row that make work large: thousands of items, and the garbage collector is told to pass them over."""
REPLACED: Final = 4
"""Every so many turns of large work all is settled, whatever the collector counts: it counts what is made less what
goes, which is nothing where states are replaced, and would look at all of them some day (150 ms at 200,000)."""
IN_A_ROW_S: Final = 1.0
LET_GO: Final = 10_000
"""Items freed in one turn: a millisecond, two where nobody else has them."""


class TimeSlices:
    """Shared by tasks of one loop that work for the same cause."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_going_round = False
        self._row = 0
        self._last_at = 0.0

    async def take(self) -> None:
        """Returns in a pass of the loop in which no other turn begins."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if not self._is_going_round:
            self._is_going_round = True
            loop.call_soon(self._next)
        await turn

    async def take_for(self, items: int) -> None:
        """The same for work on so many items; little work needs no turn."""
        if items > LIGHT:
            await self.take()

    async def over(self, items: Iterable[T], size: int) -> AsyncIterator[list[T]]:
        """Cut into lists of at most `size`, each for a turn of its own."""
        rest = iter(items)
        while chunk := list(islice(rest, size)):
            await self.take_for(len(chunk))
            yield chunk

    async def let_go(self, contents: dict[Any, Any], size: int = LET_GO) -> None:
        """Empty a dict: to free a hundred thousand objects at once takes tens of milliseconds."""
        while contents:
            going = min(size, len(contents))
            await self.take_for(going)
            for _ in range(going):
                contents.popitem()

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._look_how_large()
                turn.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._is_going_round = False

    def _look_how_large(self) -> None:
        now = asyncio.get_running_loop().time()
        self._row = self._row + 1 if now - self._last_at < IN_A_ROW_S else 1
        self._last_at = now
        if self._row > LARGE and self._row % REPLACED == 0:
            memory.settle()
        elif self._row > LARGE:
            memory.settle_young()

    async def each(self, items: Iterable[T], size: int) -> AsyncIterator[T]:
        """The same, one item after another."""
        async for chunk in self.over(items, size):
            for item in chunk:
                yield item
