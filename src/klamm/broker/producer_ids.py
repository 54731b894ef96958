"""Ids for idempotent producers, from blocks that the controller hands out. Source: RPCProducerIdManager (3.9).

The next block is fetched when nine tenths of this one are used, so that a producer hardly ever waits. A controller that
has none to give (its znode cannot be read, or all ids are used up) is asked again while a producer waits, no longer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

PREFETCH_AT: Final = 0.9
_RETRY_S: Final = 0.05
_MOST_RETRY_S: Final = 2.0
_WAIT_S: Final = 2.0
log = structlog.get_logger("producer-ids")


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


class ProducerIds:
    """`allocate` asks the controller for a block; None where it refused this time."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock | None]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0

    async def next_id(self) -> int | None:
        """An id never given before; None where the controller gives no block for now: the client asks again."""
        if self._next == self._end and not self._take_following():
            await self._wait()
            if self._next == self._end and not self._take_following():
                return None
        given = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self._fetch()
        return given

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    async def _wait(self) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_S):
                await asyncio.shield(self._fetch())
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    def _take_following(self) -> bool:
        block, self._following = self._following, None
        if block is None:
            return False
        self._next, self._end = block.first, block.first + block.size
        self._prefetch_at = block.first + int(block.size * PREFETCH_AT)
        return True

    def _fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch_block())
        return self._fetching

    async def _fetch_block(self) -> None:
        pause_s = _RETRY_S
        while (block := await self._allocate()) is None:
            await asyncio.sleep(pause_s)
            if not self._waiting:
                return
            pause_s = min(2 * pause_s, _MOST_RETRY_S)
        log.debug("block of producer ids", first=block.first, count=block.size)
        self._following = block
