"""Ids for idempotent producers, from blocks that the controller hands out. Source: RPCProducerIdManager (3.9).

The next block is requested when nine tenths of this one are used, so that producers hardly ever wait. Where the
controller refuses (its znode cannot be read, or no ids are left), it is asked again only while a producer waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

from klamm.broker.controller_channel import ControllerChannel, is_not_controller
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from klamm.zk.store import Store

PREFETCH_AT: Final = 0.9
_RETRY_BACKOFF_S: Final = 0.05
_MAX_RETRY_BACKOFF_S: Final = 2.0
_WAIT_TIMEOUT_S: Final = 2.0
log = structlog.get_logger("producer-ids")


class ProducerIdBlock(NamedTuple):
    """A range of producer ids."""

    first: int
    size: int


AllocateBlock = Callable[[], Awaitable[ProducerIdBlock | None]]
"""Gets a new block; None where it was refused this time."""


class ProducerIds:
    """Hands out the ids of its block, and gets the next block in time."""

    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._next_block: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0

    async def next_id(self) -> int | None:
        """Return a new producer id; None where no block could be allocated, and the client has to ask again."""
        if self._next == self._end and not self._use_next_block():
            await self._wait_for_block()
            if self._next == self._end and not self._use_next_block():
                return None
        given = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._next_block is None:
            self._start_fetch()
        return given

    def close(self) -> None:
        """Cancel the request for a block of producer ids, if one is under way."""
        if self._fetching is not None:
            self._fetching.cancel()

    async def _wait_for_block(self) -> None:
        """Wait until the next block of producer ids has arrived, at most for the timeout."""
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_TIMEOUT_S):
                await asyncio.shield(self._start_fetch())
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    def _use_next_block(self) -> bool:
        """Continue with the prefetched block; False where there is none."""
        block, self._next_block = self._next_block, None
        if block is None:
            return False
        self._next, self._end = block.first, block.first + block.size
        self._prefetch_at = block.first + int(block.size * PREFETCH_AT)
        return True

    def _start_fetch(self) -> "asyncio.Task[None]":
        """Return the task that fetches the next block; it is started if none is running."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch_block())
        return self._fetching

    async def _fetch_block(self) -> None:
        """Fetch the next block, with growing backoff as long as a producer waits."""
        pause_s = _RETRY_BACKOFF_S
        while (block := await self._allocate()) is None:
            await asyncio.sleep(pause_s)
            if not self._waiting:
                return
            pause_s = min(2 * pause_s, _MAX_RETRY_BACKOFF_S)
        log.debug("received a block of producer ids", first=block.first, count=block.size)
        self._next_block = block


async def allocate_from_zookeeper(store: Callable[[], Store], broker_id: BrokerId) -> ProducerIdBlock | None:
    """Allocate a block of producer ids in ZooKeeper itself; None where that fails for now."""
    try:
        block = await store().allocate_producer_ids(broker_id)
    except KlammError as error:
        log.warning(
            "cannot allocate a block of producer ids in ZooKeeper; the next InitProducerId tries again",
            reason=str(error),
        )
        return None
    return ProducerIdBlock(block.first, block.last - block.first + 1)


async def allocate_from_controller(
    channel: ControllerChannel, broker_id: BrokerId, broker_epoch: int
) -> ProducerIdBlock | None:
    """Allocate a block of producer ids by AllocateProducerIds; None where the controller refuses for now."""
    answer: AllocateProducerIdsResponse = await channel.ask(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        0,
        lambda version: AllocateProducerIdsRequest(broker_id, broker_epoch),
        is_not_controller,
    )
    if answer.error_code:
        log.warning(
            "the controller refused AllocateProducerIds; the next InitProducerId tries again",
            error=ErrorCode(answer.error_code).name,
        )
        return None
    return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)
