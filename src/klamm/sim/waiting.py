"""Tasks of a simulation as they stand: how old, waiting where; and their burial."""

import warnings
from asyncio import Task
from typing import Any


def age(task: "Task[Any]") -> tuple[str, int]:
    name, _, number = task.get_name().rpartition("#")
    return name.partition("/")[0], int(number)


def where(task: "Task[Any]") -> str:
    """The innermost line of ours at which a task waits."""
    awaited: Any = task.get_coro()
    line = "its first step"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            line = f"{frame.f_code.co_filename.rpartition('/klamm/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return line


def bury(task: "Task[Any]") -> None:
    """End a task that nobody runs any more, so that it is not finalised later, at a moment that nobody chose."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what it was about to await has not begun: so be it
            coroutine.close()
    except (RuntimeError, ValueError):  # it awaits in a `finally`, or is running
        return
