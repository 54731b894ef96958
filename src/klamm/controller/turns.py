"""Long loops in turns: the event loop does other things in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

from klamm.zk.fenced import chunks

T = TypeVar("T")

TURN: Final = 500  # partitions looked at without a rest: a few ms


async def in_turns(items: Iterable[T], size: int = TURN) -> AsyncIterator[T]:
    """The items, with a rest after every so many."""
    for chunk in chunks(items, size):
        for item in chunk:
            yield item
        await asyncio.sleep(0)
