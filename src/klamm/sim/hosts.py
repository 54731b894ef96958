"""A host owns the tasks and timers that were started on it; it can be killed, paused and slowed."""

import contextvars
from asyncio import Handle, Task
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, Final


class Host:
    """One run of one process. A restarted process is another Host of the same name."""

    __slots__ = (
        "context", "graveyard", "incarnation", "is_alive", "is_paused", "name", "on_kill", "parked", "step_s", "tasks",
    )  # fmt: skip

    def __init__(self, name: str, incarnation: int = 1) -> None:
        self.name = name
        self.incarnation = incarnation
        self.is_alive = True
        self.is_paused = False
        self.step_s = 0.0
        """Virtual seconds that each callback takes here; 0 for none."""
        self.parked: deque[Handle] = deque()
        """What became ready while the host was paused."""
        self.tasks = 0
        """How many tasks it ever started."""
        self.graveyard: list[Task[Any]] = []
        """Tasks that will never go on: they must not be finalised at a moment that nobody chose."""
        self.on_kill: list[Callable[[], None]] = []
        """Called when it is killed, to drop its connections."""
        self.context: Context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"{self.name}.{self.incarnation}"


CURRENT: Final[ContextVar[Host | None]] = ContextVar("host", default=None)
"""The host on which the running callback is; tasks and timers inherit it with their context."""
