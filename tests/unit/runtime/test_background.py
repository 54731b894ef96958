"""The loop in a thread: results, errors, and its end."""

import asyncio
import threading

import pytest

from klamm.runtime.background import BackgroundLoop


@pytest.fixture
def background() -> BackgroundLoop:
    return BackgroundLoop("test")


async def test_background_work_runs_on_another_thread_even_inside_a_running_event_loop(
    background: BackgroundLoop,
) -> None:
    async def thread_name() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert background.run(thread_name()) == background.call(lambda: threading.current_thread().name) == "test"
    background.close()


def test_errors_of_background_work_are_raised_to_the_caller(background: BackgroundLoop) -> None:
    with pytest.raises(ZeroDivisionError):
        background.call(lambda: 1 // 0)
    background.close()


def test_closing_the_background_loop_cancels_its_work_and_ends_the_thread(background: BackgroundLoop) -> None:
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    tasks: list[asyncio.Task[None]] = []
    background.call(lambda: tasks.append(asyncio.ensure_future(endless())))
    background.run(asyncio.sleep(0))

    background.close()
    background.close()

    assert ended == ["cancelled"]
    assert "test" not in {t.name for t in threading.enumerate()}
