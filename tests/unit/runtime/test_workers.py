"""Calls in worker processes: results, exceptions, processes that end, and closing."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from klamm.runtime import workers as workers_module
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


async def test_a_worker_process_accepts_large_arguments_and_returns_large_results(workers: ProcessWorkers) -> None:
    assert await workers.run(bytes.upper, b"a" * 5_000_000) == b"A" * 5_000_000


async def test_a_worker_process_serves_many_calls(workers: ProcessWorkers) -> None:
    pids = {await workers.run(os.getpid) for _ in range(5)}

    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_an_exception_in_a_worker_call_is_reported_and_the_worker_stays_usable(workers: ProcessWorkers) -> None:
    pid = await workers.run(os.getpid)

    with pytest.raises(WorkerFailed, match="ZeroDivisionError"):
        await workers.run(divmod, 1, 0)

    assert await workers.run(os.getpid) == pid


async def test_an_answer_that_is_not_read_to_its_end_is_not_taken_for_that_of_the_next_call(
    workers: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_exactly = workers_module._read_exactly
    reads: list[int] = []

    def fail_at_the_content(pipe: IO[bytes], count: int) -> bytearray:
        reads.append(count)
        if len(reads) == 2:
            raise MemoryError
        return read_exactly(pipe, count)

    monkeypatch.setattr(workers_module, "_read_exactly", fail_at_the_content)
    with pytest.raises(MemoryError):
        await workers.run(divmod, 7, 2)

    assert await workers.run(divmod, 9, 2) == (4, 1)


async def test_a_worker_process_that_dies_fails_its_call_and_is_replaced(workers: ProcessWorkers) -> None:
    with pytest.raises(WorkerFailed, match="status 3"):
        await workers.run(os._exit, 3)

    assert await workers.run(divmod, 7, 2) == (3, 1)


def exit_the_first_time(mark: Path) -> str:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


async def test_a_call_whose_worker_process_is_killed_runs_again_in_a_new_worker(
    workers: ProcessWorkers, tmp_path: Path
) -> None:
    assert await workers.run(exit_the_first_time, tmp_path / "mark") == "done"


async def test_killed_idle_worker_processes_fail_no_later_call() -> None:
    workers = ProcessWorkers(2)
    for pid in await asyncio.gather(workers.run(os.getpid), workers.run(os.getpid)):
        with suppress(ProcessLookupError):  # one process may have served both calls
            os.kill(pid, signal.SIGKILL)

    assert await asyncio.gather(*(workers.run(divmod, 7, 2) for _ in range(4))) == [(3, 1)] * 4

    await workers.close()


async def test_a_call_fails_if_no_worker_process_can_be_started(
    workers: ProcessWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(WorkerFailed, match="cannot start a worker process"):
        await workers.run(divmod, 7, 2)


async def test_a_call_above_the_memory_limit_of_a_worker_process_fails(workers: ProcessWorkers) -> None:
    with pytest.raises(WorkerFailed, match="MemoryError"):
        await workers.run(bytes, 2 * 1024 * 1024 * 1024)


async def test_closing_the_worker_pool_fails_running_calls_and_leaves_no_process(workers: ProcessWorkers) -> None:
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
