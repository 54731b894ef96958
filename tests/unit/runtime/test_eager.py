"""A coroutine's first step without a task."""

import asyncio

import pytest

from klamm.runtime.eager import Rest, first_step


async def after(*futures: "asyncio.Future[int]") -> int:
    return sum([await future for future in futures])


async def test_a_coroutine_that_does_not_wait_completes_in_its_first_step() -> None:
    assert first_step(after()) == 0


async def test_a_coroutine_that_awaits_a_completed_future_completes_in_its_first_step() -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)

    assert first_step(after(future)) == 3


async def test_awaiting_the_rest_continues_after_the_first_step() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    rest = first_step(after(first, second))
    assert isinstance(rest, Rest)

    loop.call_soon(first.set_result, 1)
    loop.call_later(0, second.set_result, 2)

    assert await rest == 3


async def test_a_future_completed_before_the_rest_is_awaited_gives_its_result() -> None:
    future = asyncio.get_running_loop().create_future()
    rest = first_step(after(future))
    future.set_result(4)

    async def whole() -> int:
        assert isinstance(rest, Rest)
        return await rest

    assert await asyncio.create_task(whole()) == 4


async def test_an_exception_before_or_after_the_first_wait_is_raised() -> None:
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


async def test_cancelling_a_task_that_awaits_the_rest_cancels_the_coroutine() -> None:
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
