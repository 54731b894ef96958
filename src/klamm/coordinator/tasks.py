"""Work of a coordinator that may have to wait for the log."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from klamm.runtime.eager import Rest, first_step

log = structlog.get_logger("coordinator")


class Tasks:
    def __init__(self, coordinator: str) -> None:
        self._coordinator = coordinator
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In order: a set of tasks would give them in that of their addresses."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
        """Run the coroutine up to its first wait at once, and the rest in a task; None where nothing is left.

        So records reach the log in the order in which the coordinator decided.
        """
        rest = first_step(work)
        return self.start(_finish(rest)) if isinstance(rest, Rest) else None

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run the whole coroutine in a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        """Forget the finished task, and log an error that it raised."""
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "unexpected error in a task of a coordinator; its other tasks continue",
                coordinator=self._coordinator,
                action="Report this as a bug in klamm, with the stack trace.",
                exc_info=error,
            )

    async def close(self) -> None:
        """Cancel all running tasks and wait until they have ended."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _finish(rest: Rest[None]) -> None:
    """Await the rest of a coroutine that has already run up to its first wait."""
    await rest
