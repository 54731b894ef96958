"""Items of many callers in one request to a broker: what comes while a request is under way goes with the next.

Source: InterBrokerSendThread.java, as the marker and verification channels of Apache Kafka use it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from klamm.model.cluster import Address
from klamm.model.errors import KlammError

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class _Waiting(NamedTuple, Generic[ItemT, AnswerT]):
    item: ItemT
    answer: "asyncio.Future[AnswerT]"


class RequestBatches(Generic[ItemT, AnswerT]):
    """At most one request per broker is under way. `close` cancels all."""

    def __init__(
        self, send: Callable[[Address, Sequence[ItemT]], Awaitable[AnswerT]], key: Callable[[ItemT], Hashable]
    ) -> None:
        """`key`: two items with the same key do not go in one request, because the response tells them by it."""
        self._send = send
        self._key = key
        self._queues: dict[Address, list[_Waiting[ItemT, AnswerT]]] = {}
        self._senders: dict[Address, asyncio.Task[None]] = {}

    async def ask(self, address: Address, item: ItemT) -> AnswerT:
        """Queue the item, and return the response to the request that carries it. Raises what `send` raises."""
        waiting = _Waiting(item, asyncio.get_running_loop().create_future())
        self._queues.setdefault(address, []).append(waiting)
        if address not in self._senders:
            self._senders[address] = asyncio.get_running_loop().create_task(self._send_all(address))
        answer: AnswerT = await waiting.answer
        return answer

    def close(self) -> None:
        """Cancel the sending tasks and the callers that wait for a response."""
        for sender in self._senders.values():
            sender.cancel()
        for queue in self._queues.values():
            for waiting in queue:
                waiting.answer.cancel()

    async def _send_all(self, address: Address) -> None:
        """Send the address's queued items in requests, one after the other, until the queue is empty."""
        try:
            while batch := self._next_batch(address):
                await self._send_batch(address, batch)
        finally:
            del self._senders[address]
            if not self._queues.get(address):
                self._queues.pop(address, None)

    def _next_batch(self, address: Address) -> list[_Waiting[ItemT, AnswerT]]:
        """Take the first queued item of each key; items whose callers have given up are left out."""
        batch: dict[Hashable, _Waiting[ItemT, AnswerT]] = {}
        left: list[_Waiting[ItemT, AnswerT]] = []
        for waiting in self._queues.get(address, ()):
            if waiting.answer.done():
                continue
            if batch.setdefault(self._key(waiting.item), waiting) is not waiting:
                left.append(waiting)
        self._queues[address] = left
        return list(batch.values())

    async def _send_batch(self, address: Address, batch: Sequence[_Waiting[ItemT, AnswerT]]) -> None:
        """Send one request and answer its callers."""
        try:
            answer = await self._send(address, [waiting.item for waiting in batch])
        except KlammError as error:
            _fail(batch, error)
            return
        except BaseException as error:
            _fail([*batch, *self._queues.pop(address, ())], error)
            raise
        for waiting in batch:
            if not waiting.answer.done():
                waiting.answer.set_result(answer)


def _fail(callers: Iterable[_Waiting[ItemT, AnswerT]], error: BaseException) -> None:
    """Raise the error in each caller that still waits."""
    for waiting in callers:
        if isinstance(error, asyncio.CancelledError):
            waiting.answer.cancel()
        elif not waiting.answer.done():
            waiting.answer.set_exception(error)
