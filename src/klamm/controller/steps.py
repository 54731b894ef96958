"""How the work of one event is divided: the size of its steps, and steps that run concurrently.

While ZooKeeper works on one step, the next one is decided. How long a step may hold the event loop is decided
elsewhere, by `TimeSlices`.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

REQUEST_PARTITIONS: Final = 2_500
"""Partitions in one UpdateMetadata or StopReplica, or in one encoded piece of a LeaderAndIsr: encoding it takes a few
ms."""
SHUTDOWN_PARTITIONS: Final = 100
"""Partitions in one LeaderAndIsr of a controlled shutdown. Leader and followers change the leader epoch at about the
same time then: until both have, the partition's producers wait."""
WRITE_PARTITIONS: Final = 500
"""Partitions decided and written in one step. While ZooKeeper works on one step, the next one is decided."""
READ_PARTITIONS: Final = 1_000
"""Partition states in one read."""
READ_TOPICS: Final = 20
"""Topic znodes in one read."""
DELETED_TOPICS: Final = 50
"""Topics whose znodes are deleted together."""


T = TypeVar("T")

MAX_CONCURRENT_STEPS: Final = 3
"""Steps under way at the same time."""


async def gather_limited(steps: Iterable[Coroutine[Any, Any, T]], limit: int = MAX_CONCURRENT_STEPS) -> list[T]:
    """Run the steps, at most `limit` at a time, and return their results in order.

    The steps must not touch the same partitions. After a failure no further step begins. The first failure is raised
    when the steps under way have ended, so that no step of this event runs beside the next event.
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
    """Wait for the oldest step and append its result; return the exception if the step failed."""
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
