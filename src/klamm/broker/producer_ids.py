"""Ids for idempotent producers, from blocks that the controller hands out. Source: RPCProducerIdManager (3.9).

The next block is fetched when nine tenths of this one are used, so that a producer hardly ever waits.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

PREFETCH_AT: Final = 0.9
_RETRY_S: Final = 0.05
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

    async def next_id(self) -> int | None:
        """An id never given before; None where the controller gives no block for now: the client asks again."""
        if self._next == self._end and not self._take_following():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await asyncio.shield(self._fetch())
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
        block = await self._allocate()
        while block is None:
            await asyncio.sleep(_RETRY_S)
            block = await self._allocate()
        log.debug("block of producer ids", first=block.first, count=block.size)
        self._following = block
