"""A coroutine's first step without a task."""

import asyncio

import pytest

from klamm.runtime.eager import Rest, first_step


async def after(*futures: "asyncio.Future[int]") -> int:
    return sum([await future for future in futures])


async def test_an_eagerly_started_coroutine_that_does_not_wait_completes_at_once() -> None:
    assert first_step(after()) == 0


async def test_an_eagerly_started_coroutine_that_awaits_a_completed_future_completes_at_once() -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)

    assert first_step(after(future)) == 3


async def test_awaiting_an_eagerly_started_coroutine_continues_after_its_first_wait() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    rest = first_step(after(first, second))
    assert isinstance(rest, Rest)

    loop.call_soon(first.set_result, 1)
    loop.call_later(0, second.set_result, 2)

    assert await rest == 3


async def test_an_eagerly_started_coroutine_gets_the_result_of_a_future_completed_meanwhile() -> None:
    future = asyncio.get_running_loop().create_future()
    rest = first_step(after(future))
    future.set_result(4)

    async def whole() -> int:
        assert isinstance(rest, Rest)
        return await rest

    assert await asyncio.create_task(whole()) == 4


async def test_an_eagerly_started_coroutine_raises_exceptions_from_before_or_after_its_first_wait() -> None:
    async def fails(wait: bool) -> None:
        if wait:
            await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        first_step(fails(wait=False))
    rest = first_step(fails(wait=True))
    assert isinstance(rest, Rest)
    with pytest.raises(ZeroDivisionError):
        await rest


async def test_cancelling_the_task_that_awaits_an_eagerly_started_coroutine_cancels_the_coroutine() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cleaned up")

    rest = first_step(waits())

    async def whole() -> None:
        assert isinstance(rest, Rest)
        await rest

    task = asyncio.create_task(whole())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended == ["cleaned up"]
