"""Steps of one event side by side: while ZooKeeper works on one, the next is decided."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

MAX_CONCURRENT_STEPS: Final = 3


async def gather_limited(steps: Iterable[Coroutine[Any, Any, T]], limit: int = MAX_CONCURRENT_STEPS) -> list[T]:
    """Results in order, at most `limit` steps under way; they must not touch the same partitions.

    After a failure no further step begins; those under way end before the first failure is raised, so that nothing of
    this event goes on behind the next.
    """
    results: list[T] = []
    running: list[asyncio.Task[T]] = []
    failure: BaseException | None = None
    pending = iter(steps)
    while failure is None and (step := next(pending, None)) is not None:
        running.append(asyncio.ensure_future(step))
        if len(running) >= limit:
            failure = await _finish(running, results)
    while running:
        failure = await _finish(running, results) or failure
    if failure is not None:
        for left in pending:
            left.close()
        raise failure
    return results


async def _finish(running: list[asyncio.Task[T]], results: list[T]) -> BaseException | None:
    """Wait for the oldest step and keep its result; returns the exception if it failed."""
    oldest = running.pop(0)
    try:
        results.append(await oldest)
    except asyncio.CancelledError:
        for task in (oldest, *running):
            task.cancel()
        raise
    except Exception as error:
        return error
    return None
