"""A simulated process: it owns the tasks and timers started on it, and can be killed, paused and slowed."""

import contextvars
from asyncio import Task, TimerHandle
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, Final

_LABELS_PER_HOST: Final = float(1 << 32)
_TASKS_BETWEEN_CLEANUPS: Final = 128
"""New tasks, and those that have ended are forgotten."""


class ScheduledCallback(TimerHandle):
    """A callback that is ready or waits for its time; asyncio's TimerHandle without the checks of a real loop.

    The fields have asyncio's names, because timers and futures access them.
    """

    __slots__ = ("host",)
    _args: Any
    _callback: Any
    _context: Context
    _cancelled: bool

    def __init__(self, host: "Host", callback: Callable[..., object], args: Any, context: Context, when: float) -> None:
        self.host = host
        self._callback = callback
        self._args = args
        self._context = context
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        """Mark the callback as cancelled and release its arguments; it stays in its queue and is skipped."""
        self._cancelled = True
        self._args = ()


class Host:
    """One simulated process. A restarted process is another Host with the same name and a higher incarnation."""

    __slots__ = (
        "context",
        "incarnation",
        "is_alive",
        "is_paused",
        "killed_tasks",
        "label",
        "name",
        "on_kill",
        "parked",
        "priority",
        "ready",
        "started",
        "step_s",
        "tasks",
    )  # fmt: skip

    def __init__(self, name: str, incarnation: int = 1, number: int = 0) -> None:
        self.name = name
        self.label = number * _LABELS_PER_HOST
        """Stands for it in the digest, with room for what happens on it: of all hosts of a loop, in the order of their
        starts."""
        self.incarnation = incarnation
        self.is_alive = True
        self.is_paused = False
        self.step_s = 0.0
        """Virtual seconds that each callback takes here; 0 for none."""
        self.ready: deque[ScheduledCallback] = deque()
        """What may run, for schedules that choose among hosts."""
        self.priority: float | None = None
        self.parked: deque[ScheduledCallback] = deque()
        """What became ready while the host was paused."""
        self.tasks = 0
        """How many tasks it ever started."""
        self.started: list[Task[Any]] = []
        """The tasks that may not have ended yet, oldest first."""
        self.killed_tasks: list[Task[Any]] = []
        """Tasks that will never continue: they must not be finalised at a moment that nobody chose."""
        self.on_kill: list[Callable[[], None]] = []
        """Called when it is killed, to drop its connections."""
        self.context: Context = contextvars.copy_context()
        self.context.run(CURRENT_HOST.set, self)

    def add(self, task: "Task[Any]") -> None:
        """Record a task that was started in this host's process."""
        self.started.append(task)
        if len(self.started) % _TASKS_BETWEEN_CLEANUPS == 0:
            self.started = self.unfinished()

    def unfinished(self) -> list["Task[Any]"]:
        """The tasks of this host that have not ended."""
        return [t for t in self.started if not t.done()]

    def take_unfinished(self) -> list["Task[Any]"]:
        """The tasks of this host that have not ended, killed ones included; they are recorded no more."""
        tasks = [*self.killed_tasks, *self.unfinished()]
        self.killed_tasks, self.started = [], []
        return tasks

    def __repr__(self) -> str:
        return f"{self.name}.{self.incarnation}"


CURRENT_HOST: Final[ContextVar[Host]] = ContextVar("host")
"""The host of a context: tasks and timers inherit it with their context."""
