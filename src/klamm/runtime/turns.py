"""Long work beside everything else: at most one piece of it in each pass of the event loop.

A dozen tasks that each rest after 5 ms still hold the loop for 60 ms when all of them are ready in one pass. Those that
take turns go one after another, and whatever else is ready runs between them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

from klamm.runtime import memory

T = TypeVar("T")

LIGHT: Final = 250
"""Items that nobody waits for the end of: a few hundred microseconds."""


class Turns:
    """Shared by tasks of one loop that work for the same cause."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_going_round = False

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

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                memory.settle_young()
                turn.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._is_going_round = False

    async def each(self, items: Iterable[T], size: int) -> AsyncIterator[T]:
        """The same, one item after another."""
        async for chunk in self.over(items, size):
            for item in chunk:
                yield item
