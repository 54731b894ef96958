"""An asyncio event loop whose time is a number and whose order is a seed's.

It jumps to the next timer whenever nothing is ready; a run of two virtual minutes takes as long as its callbacks do.
Nothing real is waited for: there are no sockets, files, threads or signals. Everything that happened goes into a
digest: two runs of one seed have the same, in any process, under any hash seed.
"""

import asyncio
import contextlib
import contextvars
import heapq
import struct
from asyncio import AbstractEventLoop, Handle, Task, TimerHandle, events
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from itertools import count
from typing import Any, Final, TypeVar

from klamm.runtime.randomness import Dice
from klamm.sim.hosts import CURRENT, Host
from klamm.sim.schedules import Policy, schedule

T = TypeVar("T")

_EVENT: Final = struct.Struct(">dI")
_ENDING_S: Final = 60.0
_ENDING_STEPS: Final = 1_000_000


class Deadlock(Exception):
    """Nothing is ready, no timer is set, and what is run is not done; lists who waits where."""


class OutOfTime(Exception):
    """What is run took more virtual time, or more callbacks, than it was given."""


class SimulatedLoop(AbstractEventLoop):
    def __init__(self, seed: int = 0, policy: Policy = Policy.FIFO) -> None:
        self.seed = seed
        self._now = 0.0
        self._ready = schedule(policy, Dice(f"{seed}/schedule"))
        self._timers: list[tuple[float, int, Host, TimerHandle]] = []
        self._sequence = count()
        self._is_running = False
        self._closed = False
        self._digest = blake2b(digest_size=16)
        self._labels: dict[str, int] = {}
        self.errors: list[dict[str, Any]] = []
        """What callbacks and unawaited tasks raised."""
        self.steps = 0
        """Callbacks run so far."""
        self.main_host = Host("main")
        self.hosts: list[Host] = [self.main_host]

    # ---- running

    def run(self, main: Coroutine[Any, Any, T], limit_s: float = float("inf"), most_steps: int = 1 << 62) -> T:
        """Run to the end of `main`, then cancel what it left behind on hosts that live.

        Raises what `main` raises, AssertionError with what other callbacks raised, Deadlock, and OutOfTime beyond
        `limit_s` virtual seconds or `most_steps` callbacks.
        """
        outer = events._get_running_loop()
        events._set_running_loop(None)
        events._set_running_loop(self)
        self._is_running = True
        try:
            task = self.spawn(self.main_host, main, "main")
            try:
                self._run_until(task, limit_s, most_steps)
            finally:
                self._cancel_the_rest()
        finally:
            self._is_running = False
            self._closed = True
            events._set_running_loop(outer)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        if self.errors:
            raise AssertionError(self.errors)
        return task.result()

    def _run_until(self, future: "asyncio.Future[Any]", limit_s: float, most_steps: int) -> None:
        ready = self._ready
        while not future.done():
            if not len(ready):
                self._jump(limit_s)
            host, handle = ready.take()
            if not host.is_alive or handle._cancelled:
                continue
            if host.is_paused:
                host.parked.append(handle)
                continue
            self._account(host, handle)
            handle._run()
            if host.step_s:
                self._let_rest(host)
            if self.steps > most_steps:
                raise OutOfTime(f"{most_steps} callbacks at {self._now:.3f} s")

    def _jump(self, limit_s: float) -> None:
        timers, ready = self._timers, self._ready
        while timers:
            due, _, host, timer = heapq.heappop(timers)
            if timer._cancelled or not host.is_alive:
                continue
            if due > limit_s:
                heapq.heappush(timers, (due, -1, host, timer))
                raise OutOfTime(f"{limit_s} virtual seconds; waiting:\n{self.who_waits()}")
            self._now = max(self._now, due)
            ready.add(host, timer)
            while timers and timers[0][0] <= self._now:
                _, _, host, timer = heapq.heappop(timers)
                if not timer._cancelled and host.is_alive:
                    ready.add(host, timer)
            return
        raise Deadlock(f"at {self._now:.3f} s, nothing will happen any more; waiting:\n{self.who_waits()}")

    def _account(self, host: Host, handle: Handle) -> None:
        self.steps += 1
        self.note(f"{host!r} {_label(handle)}")

    def note(self, what: str) -> None:
        """Have something that happened go into the digest."""
        number = self._labels.get(what)
        if number is None:
            number = self._labels[what] = len(self._labels)
            self._digest.update(what.encode())
        self._digest.update(_EVENT.pack(self._now, number))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def _cancel_the_rest(self) -> None:
        """Tasks of the living end as in a real loop, if they do so within a minute; others are closed as they are."""
        for host in self.hosts:
            host.step_s = 0.0
            self._wake(host)
        left = sorted((t for t in asyncio.all_tasks(self) if self._host_of(t).is_alive), key=_age)
        for task in left:
            task.cancel()
        if left:
            with contextlib.suppress(Deadlock, OutOfTime):
                self._run_until(
                    asyncio.gather(*left, return_exceptions=True), self._now + _ENDING_S, self.steps + _ENDING_STEPS
                )
        for task in sorted(asyncio.all_tasks(self), key=_age):
            _bury(task)

    def _host_of(self, task: "Task[Any]") -> Host:
        name = task.get_name().partition("/")[0]
        return next((h for h in self.hosts if repr(h) == name), self.main_host)

    def who_waits(self) -> str:
        """Each task that has not ended, and the line at which it waits."""
        tasks = sorted(asyncio.all_tasks(self), key=_age)
        return "\n".join(f"  {t.get_name()} at {_where(t)}" for t in tasks if self._host_of(t).is_alive)

    # ---- hosts

    def add_host(self, name: str) -> Host:
        """A process that starts now; an earlier one of that name must be dead."""
        earlier = [h for h in self.hosts if h.name == name]
        assert not any(h.is_alive for h in earlier), f"{name} runs already"
        host = Host(name, len(earlier) + 1)
        self.hosts.append(host)
        return host

    def spawn(self, host: Host, coroutine: Coroutine[Any, Any, T], name: str = "") -> "Task[T]":
        """Run a coroutine on a host."""
        return self._task(host, coroutine, name, host.context.copy())

    def kill(self, host: Host) -> None:
        """As SIGKILL does: nothing of it runs any more, no `finally` either."""
        if not host.is_alive:
            return
        host.is_alive = False
        host.parked.clear()
        mine = [t for t in asyncio.all_tasks(self) if t.get_name().startswith(f"{host!r}/")]
        host.graveyard += sorted(mine, key=_age)
        for drop in host.on_kill:
            drop()
        self.note(f"kill {host!r}")

    def pause(self, host: Host) -> None:
        """As SIGSTOP does: what becomes ready waits, bytes that arrive too."""
        host.is_paused = True
        self.note(f"pause {host!r}")

    def resume(self, host: Host) -> None:
        self.note(f"resume {host!r}")
        self._wake(host)

    def slow(self, host: Host, step_s: float) -> None:
        """Each callback takes that long from now on; 0 for as fast as ever."""
        host.step_s = step_s

    def _let_rest(self, host: Host) -> None:
        if not host.is_paused:
            host.is_paused = True
            self._push(self._now + host.step_s, self.main_host, self._wake, (host,))

    def _wake(self, host: Host) -> None:
        if host.is_paused and host.is_alive:
            host.is_paused = False
            while host.parked:
                self._ready.add(host, host.parked.popleft())

    # ---- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.add(handle._context.get(CURRENT) or self.main_host, handle)  # type: ignore[attr-defined]
        return handle

    def call_on(self, host: Host, when: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        """`call_at` on another host: for what reaches it from outside."""
        return self._push(when, host, callback, args)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self, context)
        host = timer._context.get(CURRENT) or self.main_host  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (when, next(self._sequence), host, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _push(self, when: float, host: Host, callback: Callable[..., object], args: Any) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self, host.context)
        heapq.heappush(self._timers, (when, next(self._sequence), host, timer))
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> "Task[Any]":
        current = CURRENT.get() if context is None else context.get(CURRENT)
        label = name or str(getattr(coro, "__qualname__", "task"))
        return self._task(current or self.main_host, coro, label, context)

    def _task(self, host: Host, coro: Any, name: str, context: Any) -> "Task[Any]":
        host.tasks += 1
        return Task(coro, loop=self, name=f"{host!r}/{name}#{host.tasks}", context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        task = context.get("task")
        if isinstance(task, Task) and not self._host_of(task).is_alive:
            return  # it will never end: its process was killed
        self.errors.append(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._closed

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Cancelled timers stay in the heap and are passed over."""


def _label(handle: Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, Task):
        return owner.get_name()
    return getattr(callback, "__qualname__", None) or type(callback).__name__


def _age(task: "Task[Any]") -> tuple[str, int]:
    name, _, number = task.get_name().rpartition("#")
    return name.partition("/")[0], int(number)


def _where(task: "Task[Any]") -> str:
    """The innermost line of ours at which a task waits."""
    awaited: Any = task.get_coro()
    line = "its first step"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            line = f"{frame.f_code.co_filename.rpartition('/klamm/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return line


def _bury(task: "Task[Any]") -> None:
    """End a task that nobody runs any more, so that it is not finalised later, at a moment that nobody chose."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro()
    try:
        coroutine.close()
    except (RuntimeError, ValueError):  # it awaits in a `finally`, or is running
        return
