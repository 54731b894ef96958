"""The event loop of a process: uvloop if installed, with the highest allowed number of open files."""

import asyncio
import contextlib
import gc
import os
import resource
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from klamm.runtime.memory import freeze_objects

T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a new event loop."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def end_process(status: int) -> NoReturn:
    """End this process at once with this exit status, after its event loop has ended and nothing is left to write.

    Python would first free every object one by one, which takes a third of a second with three thousand logs.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(status)


def allow_many_open_files() -> int:
    """Raise this process's limit of open files to the system's maximum; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def freeze_startup_objects(young_objects: int = 10_000) -> None:
    """Exclude the objects that exist after startup from garbage collection.

    From then on a collection runs after `young_objects` new objects.
    """
    freeze_objects()
    gc.set_threshold(young_objects, 10, 100)  # the second generation then has 100,000 objects, which takes a few ms


def say(text: str) -> None:
    """Print one line on standard error."""
    print(text, file=sys.stderr, flush=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A factory of uvloop's loops, or None without uvloop."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
