"""Calls in worker processes: results, exceptions, processes that end, and closing."""

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest

from klamm.runtime.workers import InlineWorkers, ProcessWorkers, WorkerFailed, Workers


@pytest.fixture(params=[ProcessWorkers, InlineWorkers])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[Workers]:
    made: Workers = request.param()
    yield made
    await made.close()


@pytest.fixture
async def workers() -> AsyncIterator[ProcessWorkers]:
    made = ProcessWorkers(1)
    yield made
    await made.close()


async def test_a_call_in_a_worker_process_returns_its_result(either: Workers) -> None:
    assert await asyncio.gather(*(either.run(divmod, number, 10) for number in range(20))) == [
        (number // 10, number % 10) for number in range(20)
    ]


async def test_large_arguments_and_results_pass_to_a_worker_and_back(workers: ProcessWorkers) -> None:
    assert await workers.run(bytes.upper, b"a" * 5_000_000) == b"A" * 5_000_000


async def test_one_worker_process_serves_many_calls(workers: ProcessWorkers) -> None:
    pids = {await workers.run(os.getpid) for _ in range(5)}

    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_an_exception_in_a_call_is_named_and_the_worker_stays_usable(workers: ProcessWorkers) -> None:
    pid = await workers.run(os.getpid)

    with pytest.raises(WorkerFailed, match="ZeroDivisionError"):
        await workers.run(divmod, 1, 0)

    assert await workers.run(os.getpid) == pid


async def test_a_worker_that_dies_fails_its_call_and_is_replaced(workers: ProcessWorkers) -> None:
    with pytest.raises(WorkerFailed, match="status 3"):
        await workers.run(os._exit, 3)

    assert await workers.run(divmod, 7, 2) == (3, 1)


async def test_a_call_beyond_the_memory_limit_of_a_worker_fails(workers: ProcessWorkers) -> None:
    with pytest.raises(WorkerFailed, match="MemoryError"):
        await workers.run(bytes, 2 * 1024 * 1024 * 1024)


async def test_close_fails_running_calls_and_leaves_no_worker_process(workers: ProcessWorkers) -> None:
    pid = await workers.run(os.getpid)
    running = asyncio.ensure_future(workers.run(time.sleep, 600))
    waiting = asyncio.ensure_future(workers.run(time.sleep, 600))
    await asyncio.sleep(0)

    await workers.close()

    for call in (running, waiting):
        with pytest.raises(WorkerFailed):
            await call
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
