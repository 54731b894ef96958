"""An asyncio event loop whose time is a number: it jumps to the next timer whenever nothing is ready.

Callbacks run in the order they were scheduled, timers by due time and then by the order they were set; so a run
repeats exactly. Nothing real is waited for: there are no sockets, files, threads or signals.
"""

import asyncio
import contextvars
import heapq
from asyncio import AbstractEventLoop, events
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(Exception):
    """Nothing is ready, no timer is set, and the main task is not done."""


class SimulatedLoop(AbstractEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._sequence = count()
        self._closed = False
        self.errors: list[dict[str, Any]] = []
        """What callbacks and unawaited tasks raised."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of `main`; then cancel what it left behind. Raises Deadlock, and what a callback raised."""
        events._set_running_loop(self)
        try:
            task = self.create_task(main)
            self._run_until(task)
            for left in sorted(asyncio.all_tasks(self), key=lambda t: t.get_name()):
                left.cancel()
                with_end = asyncio.gather(left, return_exceptions=True)
                self._run_until(with_end)
        finally:
            events._set_running_loop(None)
            self._closed = True
        if self.errors:
            raise AssertionError(self.errors)
        return task.result()

    def _run_until(self, future: "asyncio.Future[Any]") -> None:
        while not future.done():
            if not self._ready:
                self._jump()
            self._ready.popleft()._run()

    def _jump(self) -> None:
        while self._timers:
            due, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._now = max(self._now, due)
                self._ready.append(timer)
                return
        raise Deadlock([repr(t) for t in asyncio.all_tasks(self)])

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> "asyncio.Task[Any]":  # type: ignore[override]
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay in the heap and are passed over."""
