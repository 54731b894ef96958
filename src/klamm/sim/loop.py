"""An asyncio event loop with virtual time, in which a seed decides the order of callbacks.

Time jumps to the next timer when no callback is ready, so two virtual minutes take only as long as their callbacks.
There are no real sockets, files, threads or signals. A digest of everything that ran shows that two runs of one seed
are equal, in any process and with any hash seed.
"""

import asyncio
import contextlib
import contextvars
import heapq
import warnings
from array import array
from asyncio import AbstractEventLoop, Task, events
from collections.abc import Callable, Coroutine, Iterable
from hashlib import blake2b
from itertools import count
from typing import Any, Final, TypeVar

from klamm.runtime.randomness import Rng
from klamm.sim.hosts import CURRENT_HOST, Host, ScheduledCallback
from klamm.sim.schedules import Policy, new_schedule


def waiting_line(task: "Task[Any]") -> str:
    """The innermost source line of klamm at which a task waits."""
    awaited: Any = task.get_coro()
    line = "its first step"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            line = f"{frame.f_code.co_filename.rpartition('/klamm/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return line


def discard_tasks(tasks: "Iterable[Task[Any]]") -> None:
    """Close tasks that will never run again, so the garbage collector does not finalize them at a random moment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what they were about to await has not begun: so be it
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            with contextlib.suppress(RuntimeError, ValueError):  # it awaits in a `finally`, or is running
                coroutine.close()


T = TypeVar("T")

_STEPS_HASHED_AT_ONCE: Final = 1024
_CANCELLATION_LIMIT_S: Final = 60.0
_CANCELLATION_MAX_STEPS: Final = 1_000_000


class Deadlock(Exception):
    """No callback is ready and no timer is set, but the main coroutine has not ended; lists the waiting tasks."""


class OutOfTime(Exception):
    """The run exceeded its limit of virtual time or of callbacks."""


_Base: Any = AbstractEventLoop  # methods that a simulation never calls are missing: to mypy the class were abstract


class SimulatedLoop(_Base):  # type: ignore[misc]
    """The event loop of a simulation; `run` runs a coroutine to its end."""

    def __init__(self, seed: int = 0, policy: Policy = Policy.FIFO) -> None:
        self.seed = seed
        self.now = 0.0
        """Virtual seconds since the beginning."""
        self._ready = new_schedule(policy, Rng(f"{seed}/schedule"))
        self._add = self._ready.add
        self._timers: list[tuple[float, int, ScheduledCallback]] = []
        self._sequence = count()
        self._is_running = False
        self._closed = False
        self._digest = blake2b(digest_size=16)
        self._trace: list[float] = []
        """What is still to go into the digest: the time where it changes, and the name and host of each callback."""
        self._note = self._trace.extend
        self._labels: dict[str, int] = {}
        self.errors: list[dict[str, Any]] = []
        """What callbacks and unawaited tasks raised."""
        self.steps = 0
        """Callbacks run so far."""
        self.main_host = Host("main")
        self.hosts: list[Host] = [self.main_host]
        self._current = self.main_host
        """The host on which the running callback is."""

    # ---- running

    def run(self, main: Coroutine[Any, Any, T], limit_s: float = float("inf"), max_steps: int = 1 << 62) -> T:
        """Run to the end of `main`, then cancel the tasks it left on hosts that are alive.

        Raises what `main` raises, AssertionError with what other callbacks raised, Deadlock, and OutOfTime beyond
        `limit_s` simulated seconds or `max_steps` callbacks.
        """
        outer = events._get_running_loop()
        events._set_running_loop(None)
        events._set_running_loop(self)
        self._is_running = True
        try:
            task = self.spawn(self.main_host, main, "main")
            try:
                self._run_until(task, limit_s, max_steps)
            finally:
                self._cancel_remaining_tasks()
        finally:
            self._is_running = False
            self._closed = True
            events._set_running_loop(outer)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        if self.errors:
            raise AssertionError(self.errors)
        return task.result()

    def _run_until(self, future: "asyncio.Future[Any]", limit_s: float, max_steps: int) -> None:
        """Run callbacks until the future is done; when none is ready, time jumps to the next timer."""
        pop_next, next_due, is_done = self._ready.pop_next, self._next_due_timer, future.done
        label_of, note = self._labels.get, self._trace.append
        try:
            while not is_done():
                entry = pop_next() or next_due(limit_s)
                host = entry.host
                if entry._cancelled or not host.is_alive:
                    continue
                if host.is_paused:
                    host.parked.append(entry)
                    continue
                self._current = host
                callback = entry._callback
                owner = getattr(callback, "__self__", None)
                label = owner.get_name() if type(owner) is Task else _name_of(callback)
                number = label_of(label)
                note(host.label + (self._label_number(label) if number is None else number))
                self.steps += 1
                try:
                    entry._context.run(callback, *entry._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.errors.append({"message": f"in {callback}", "exception": error})
                if host.step_s:
                    self._pause_ready_callbacks(host)
                if not self.steps % _STEPS_HASHED_AT_ONCE:
                    self._update_digest()
                if self.steps > max_steps:
                    raise OutOfTime(
                        f"the simulation is not finished after {max_steps} callbacks, at {self.now:.3f} s of "
                        "simulated time"
                    )
        finally:
            self._current = self.main_host

    def _next_due_timer(self, limit_s: float) -> ScheduledCallback:
        """Advance time to the next timer and return its callback; the schedule chooses among several."""
        timers, pop = self._timers, heapq.heappop
        while timers:
            due, _, entry = pop(timers)
            if entry._cancelled or not entry.host.is_alive:
                continue
            if due > limit_s:
                heapq.heappush(timers, (due, -1, entry))
                raise OutOfTime(
                    f"the simulation is not finished after {limit_s} s of simulated time; waiting "
                    f"tasks:\n{self.describe_waiting_tasks()}"
                )
            if due > self.now:
                self.now = due
                self._trace.append(due)
            if not timers or timers[0][0] > self.now:
                return entry
            self._ready.add(entry)
            while timers and timers[0][0] <= self.now:
                _, _, entry = pop(timers)
                if not entry._cancelled and entry.host.is_alive:
                    self._ready.add(entry)
            taken = self._ready.pop_next()
            assert taken is not None
            return taken
        raise Deadlock(
            f"deadlock at {self.now:.3f} s of simulated time: no timer and no callback is left; waiting tasks:\n"
            f"{self.describe_waiting_tasks()}"
        )

    # ---- the digest

    def add_to_digest(self, what: str) -> None:
        """Add a text to the digest, the hash by which two runs are compared."""
        self._trace.append(self._label_number(what))

    def add_bytes_to_digest(self, host: Host, port: int, size: int) -> None:
        """Add to the digest that a connection of a host received this many bytes."""
        self._note((-(host.label + port), size))

    def _label_number(self, label: str) -> int:
        """Return the number that represents this text in the digest; a new text is added to the digest."""
        number = self._labels.get(label)
        if number is None:
            self._update_digest()
            number = self._labels[label] = len(self._labels)
            self._digest.update(label.encode())
        return number

    def _update_digest(self) -> None:
        """Hash the callbacks that ran since the last call into the digest, by which two runs are compared."""
        self._digest.update(array("d", self._trace))
        self._trace.clear()

    @property
    def digest(self) -> str:
        """A hash of everything that ran so far."""
        self._update_digest()
        return self._digest.hexdigest()

    def _cancel_remaining_tasks(self) -> None:
        """Cancel the tasks of live hosts and let them end within a simulated minute; close all others."""
        for host in self.hosts:
            host.step_s = 0.0
            self._resume_callbacks(host)
        left = [t for h in self.hosts if h.is_alive for t in h.unfinished()]
        for task in left:
            task.cancel()
        if left:
            with contextlib.suppress(Deadlock, OutOfTime):
                self._run_until(
                    asyncio.gather(*left, return_exceptions=True),
                    self.now + _CANCELLATION_LIMIT_S,
                    self.steps + _CANCELLATION_MAX_STEPS,
                )
        while never_ending := [t for h in self.hosts for t in h.take_unfinished()]:
            discard_tasks(never_ending)  # their `finally` blocks may start others

    def _host_of(self, task: "Task[Any]") -> Host:
        """The host on which this task was started."""
        name = task.get_name().partition("/")[0]
        return next((h for h in self.hosts if repr(h) == name), self.main_host)

    def describe_waiting_tasks(self) -> str:
        """Text with each unfinished task and the source line at which it waits."""
        tasks = [t for h in self.hosts if h.is_alive for t in h.unfinished()]
        return "\n".join(f"  {t.get_name()} at {waiting_line(t)}" for t in tasks)

    # ---- hosts

    def add_host(self, name: str) -> Host:
        """Create a host for a new process; an earlier process with this name must be dead."""
        earlier = [h for h in self.hosts if h.name == name]
        assert not any(h.is_alive for h in earlier), f"host {name} is already running"
        host = Host(name, len(earlier) + 1, len(self.hosts))
        self.hosts.append(host)
        return host

    def spawn(self, host: Host, coroutine: Coroutine[Any, Any, T], name: str = "") -> "Task[T]":
        """Run a coroutine on a host."""
        return self._task(host, coroutine, name, host.context.copy())

    def kill(self, host: Host) -> None:
        """Kill a process as SIGKILL does: none of its callbacks or `finally` blocks run any more."""
        if not host.is_alive:
            return
        host.is_alive = False
        host.parked.clear()
        host.killed_tasks, host.started = host.unfinished(), []
        for drop in host.on_kill:
            drop()
        self.add_to_digest(f"kill {host!r}")

    def pause(self, host: Host) -> None:
        """Stop a process as SIGSTOP does: its ready callbacks and received bytes wait."""
        host.is_paused = True
        self.add_to_digest(f"pause {host!r}")

    def resume(self, host: Host) -> None:
        """Continue a paused process, as SIGCONT does."""
        self.add_to_digest(f"resume {host!r}")
        self._resume_callbacks(host)

    def slow(self, host: Host, step_s: float) -> None:
        """Make each callback of a host take this long; 0 ends that."""
        host.step_s = step_s

    def _pause_ready_callbacks(self, host: Host) -> None:
        """Hold back a slow host's callbacks until the time of its current callback is over."""
        if not host.is_paused:
            host.is_paused = True
            self.call_on(self.main_host, self.now + host.step_s, self._resume_callbacks, host)

    def _resume_callbacks(self, host: Host) -> None:
        """Make a host's held-back callbacks ready again."""
        if host.is_paused and host.is_alive:
            host.is_paused = False
            while host.parked:
                self._ready.add(host.parked.popleft())

    # ---- what asyncio asks of a loop

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self.now

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> ScheduledCallback:
        """Schedule the callback for the current time; the schedule of the run chooses its place."""
        entry = self._entry(callback, args, context)
        self._add(entry)
        return entry

    def call_on(self, host: Host, when: float, callback: Callable[..., object], *args: object) -> ScheduledCallback:
        """Call a function on another host at this time, as events from outside reach a host."""
        entry = ScheduledCallback(host, callback, args, host.context, when)
        heapq.heappush(self._timers, (when, next(self._sequence), entry))
        return entry

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> ScheduledCallback:
        """Schedule the callback for this simulated time in seconds."""
        entry = self._entry(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._sequence), entry))
        return entry

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> ScheduledCallback:
        """Schedule the callback for `delay` simulated seconds from now."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _entry(
        self, callback: Callable[..., object], args: Any, context: contextvars.Context | None, when: float = 0.0
    ) -> ScheduledCallback:
        """A callback of the host that its context belongs to; without a context, of the current host."""
        if context is None:
            return ScheduledCallback(self._current, callback, args, self._current.context, when)
        return ScheduledCallback(context.get(CURRENT_HOST) or self.main_host, callback, args, context, when)

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a new future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> "Task[Any]":
        """Start a task on the current simulated host, or on that of `context`."""
        current = self._current if context is None else context.get(CURRENT_HOST)
        label = name or str(getattr(coro, "__qualname__", "task"))
        return self._task(current or self.main_host, coro, label, context)

    def _task(self, host: Host, coro: Any, name: str, context: Any) -> "Task[Any]":
        """Create a task on a host."""
        host.tasks += 1
        task = Task(coro, loop=self, name=f"{host!r}/{name}#{host.tasks}", context=context)
        host.add(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error for the report of the run; errors of tasks on dead hosts are ignored."""
        task = context.get("task") or context.get("future")
        if isinstance(task, Task) and not self._host_of(task).is_alive:
            return  # it will never end: its process was killed
        self.errors.append(context)

    get_debug = staticmethod(bool)
    """Return false: asyncio's debug mode is off. It asks at each new task and future."""

    def is_running(self) -> bool:
        """Whether the loop runs callbacks now."""
        return self._is_running

    def is_closed(self) -> bool:
        """Whether the loop was closed."""
        return self._closed


def _name_of(callback: Any) -> str:
    """The name of a callback that does not belong to a task."""
    return getattr(callback, "__qualname__", None) or type(callback).__name__
