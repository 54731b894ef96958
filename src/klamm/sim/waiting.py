"""Where simulated tasks wait, and how tasks of killed processes are discarded."""

import contextlib
import warnings
from asyncio import Task
from collections.abc import Iterable
from typing import Any


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
