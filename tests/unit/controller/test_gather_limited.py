"""Concurrent steps of one event: bounded, with results in order, and none running after a failure was raised."""

import asyncio

import pytest

from klamm.controller.steps import gather_limited


async def test_the_function_gather_limited_returns_results_in_order_and_limits_concurrency() -> None:
    under_way = most = 0

    async def step(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(10 - number):
            await asyncio.sleep(0)
        under_way -= 1
        return number

    assert await gather_limited((step(n) for n in range(8)), limit=3) == list(range(8))
    assert most == 3


async def test_gather_limited_starts_no_call_after_a_failure_and_waits_for_running_calls() -> None:
    begun, ended = [], []

    async def step(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 1:
            raise ValueError("no")
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append(number)

    with pytest.raises(ValueError, match="no"):
        await gather_limited((step(n) for n in range(9)), limit=2)

    assert begun == [0, 1, 2]
    assert ended == [0, 2]


async def test_cancelling_gather_limited_cancels_its_running_calls() -> None:
    cancelled = []

    async def step(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    task = asyncio.ensure_future(gather_limited((step(n) for n in range(9)), limit=3))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert sorted(cancelled) == [0, 1, 2]
