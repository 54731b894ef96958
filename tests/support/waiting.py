"""Waiting in tests that run in an event loop. Those with real nodes wait by `runtime.processes` or `Cluster`."""

import asyncio
from collections.abc import Callable


async def settle(passes: int = 50) -> None:
    """Let everything run that needs no time."""
    for _ in range(passes):
        await asyncio.sleep(0)


async def eventually(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait until the condition holds. Raises TimeoutError, late: a busy machine is no failure."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - what it waits for has no event of its own
            await asyncio.sleep(0.01)
