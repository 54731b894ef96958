"""Items of many callers share a request; only one request to a broker is under way."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.waiting import settle

from klamm.client.batching import RequestBatches
from klamm.client.errors import ConnectionLost
from klamm.model.cluster import Address

ONE, TWO = Address("one", 1), Address("two", 1)


class Broker:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.waiting: list[asyncio.Future[str]] = []

    async def send(self, address: Address, items: Sequence[str]) -> str:
        self.requests.append((address.host, " ".join(items)))
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]


async def test_items_queued_during_a_batched_request_are_sent_together_in_the_next_request() -> None:
    broker = Broker()
    batches = RequestBatches(broker.send, key=str)
    first = asyncio.ensure_future(batches.ask(ONE, "a"))
    await settle()
    others = [asyncio.ensure_future(batches.ask(ONE, item)) for item in "bc"]
    elsewhere = asyncio.ensure_future(batches.ask(TWO, "d"))
    await settle()
    assert broker.requests == [("one", "a"), ("two", "d")]

    broker.waiting[0].set_result("1")
    broker.waiting[1].set_result("2")
    assert (await first, await elsewhere) == ("1", "2")
    await settle()
    assert broker.requests[2:] == [("one", "b c")]
    broker.waiting[2].set_result("3")
    assert [await other for other in others] == ["3", "3"]


async def test_batching_sends_two_items_with_the_same_key_in_separate_requests() -> None:
    broker = Broker()
    batches = RequestBatches(broker.send, key=lambda item: item[0])
    asked = [asyncio.ensure_future(batches.ask(ONE, item)) for item in ("a1", "b1", "a2")]
    await settle()
    broker.waiting[0].set_result("first")
    await settle()
    broker.waiting[1].set_result("second")
    assert [await one for one in asked] == ["first", "first", "second"]
    assert broker.requests == [("one", "a1 b1"), ("one", "a2")]


async def test_a_lost_connection_fails_only_the_callers_of_its_batched_request() -> None:
    broker = Broker()
    batches = RequestBatches(broker.send, key=str)
    first = asyncio.ensure_future(batches.ask(ONE, "a"))
    await settle()
    second = asyncio.ensure_future(batches.ask(ONE, "b"))
    broker.waiting[0].set_exception(ConnectionLost("gone"))
    with pytest.raises(ConnectionLost):
        await first
    await settle()
    broker.waiting[1].set_result("2")
    assert await second == "2"


async def test_batching_does_not_send_the_item_of_a_cancelled_caller() -> None:
    broker = Broker()
    batches = RequestBatches(broker.send, key=str)
    first = asyncio.ensure_future(batches.ask(ONE, "a"))
    await settle()
    second = asyncio.ensure_future(batches.ask(ONE, "b"))
    await settle()
    second.cancel()
    broker.waiting[0].set_result("1")
    assert await first == "1"
    await settle()
    assert broker.requests == [("one", "a")]


async def test_closing_the_request_batcher_cancels_all_callers() -> None:
    broker = Broker()
    batches = RequestBatches(broker.send, key=str)
    asked = [asyncio.ensure_future(batches.ask(ONE, item)) for item in "ab"]
    await settle()
    batches.close()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2


async def test_an_unexpected_error_fails_all_callers_of_a_batched_request_but_not_later_requests() -> None:
    broker = Broker()
    batches = RequestBatches(broker.send, key=str)
    first = asyncio.ensure_future(batches.ask(ONE, "a"))
    await settle()
    second = asyncio.ensure_future(batches.ask(ONE, "b"))
    await settle()
    sender = batches._senders[ONE]
    broker.waiting[0].set_exception(ZeroDivisionError("a bug"))
    results = await asyncio.gather(first, second, sender, return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 3

    third = asyncio.ensure_future(batches.ask(ONE, "c"))
    await settle()
    broker.waiting[1].set_result("3")
    assert await third == "3"
