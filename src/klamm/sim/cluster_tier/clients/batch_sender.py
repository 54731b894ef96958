"""Sending one batch to the leader of its partition, again until it is known whether it was stored."""

import asyncio
from collections.abc import Callable
from typing import Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.errors import RequestRefused, UnsupportedVersion
from klamm.client.records import produce_error_code, produce_request
from klamm.client.transactions import ProducerFenced
from klamm.model.errors import ErrorCode
from klamm.runtime.world import World
from klamm.sim.cluster_tier.clients.locator import TRANSIENT, Locator
from klamm.sim.cluster_tier.clients.one_way import OneWayProducer
from klamm.sim.cluster_tier.trace import Acknowledged, ClientEvent, Send, SendState, SequenceRefused

_BACKOFF_S: Final = 0.1
_TIMEOUT_S: Final = 3.0
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_NOTHING_APPENDED: Final = frozenset({
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_TXN_STATE,
    *_FENCED,
})  # fmt: skip
"""Errors that say that this attempt appended nothing."""
_SEQUENCE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class BatchSender:
    """Sends the batches of one producer, one after the other."""

    def __init__(self, world: World, client: AsyncClient, name: str, tell: Callable[[ClientEvent], None]) -> None:
        self._client = client
        self._one_way = OneWayProducer(world, name)
        self._locator = Locator(client)
        self._tell = tell

    async def send(self, send: Send, batch: bytes, transactional_id: str | None = None) -> None:
        """Send the batch until it is known whether the broker appended it.

        Raises TimeoutError where that can never be known; in a transaction also ProducerFenced and RequestRefused.
        """
        is_known = await self._attempt(send, batch, transactional_id)
        while not is_known:
            await asyncio.sleep(_BACKOFF_S)
            is_known = await self._attempt(send, batch, transactional_id)

    async def _attempt(self, send: Send, batch: bytes, transactional_id: str | None) -> bool:
        """Send the batch once; return whether it is known if it was appended. Raises as `send` does."""
        was = send.state
        try:
            leader = await self._locator.leader(send.partition)
            send.state, send.attempted_s = SendState.UNKNOWN, asyncio.get_running_loop().time()
            send.attempts += 1
            if not send.acks:
                await self._one_way.send(leader.address, send.partition, batch)
                return True
            request = produce_request(send.partition, batch, _TIMEOUT_S, send.acks, transactional_id=transactional_id)
            answer = await self._client.ask(leader.address, request)
        except (*TRANSIENT, UnsupportedVersion, OSError):
            self._locator.forget(send.partition)
            return False
        error = ErrorCode(produce_error_code(answer))
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            send.state, send.acknowledged_s = SendState.ACKNOWLEDGED, asyncio.get_running_loop().time()
            send.offset = answer.responses[0].partition_responses[0].base_offset if not error else -1
            self._tell(Acknowledged(send))
            return True
        if error in _NOTHING_APPENDED:
            send.state = was
        if error in _SEQUENCE:
            self._tell(SequenceRefused(send, error.name))
            raise TimeoutError
        if transactional_id is not None:
            _raise_if_final(transactional_id, error)
        self._locator.forget(send.partition)
        return False


def _raise_if_final(transactional_id: str, error: ErrorCode) -> None:
    """Raise ProducerFenced or RequestRefused for the errors after which the transaction cannot continue."""
    if error in _FENCED:
        raise ProducerFenced(transactional_id, error)
    if error is ErrorCode.INVALID_TXN_STATE:
        raise RequestRefused(subject=f"transactional id {transactional_id}", code=error)
