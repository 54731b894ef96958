"""Signals that ask the process to stop: Ctrl-C, SIGTERM, a closed terminal."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that stop the process."""


def on_stop_signals(callback: Callable[[], None]) -> None:
    """Call `callback` in the running loop on each SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, callback)


@contextmanager
def interrupted_by_stop_signals() -> Iterator[None]:
    """A context in which SIGTERM and SIGINT raise KeyboardInterrupt; for code without an event loop."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        """Handle the stop signal: raise KeyboardInterrupt in the main thread."""
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ignoring_stop_signals() -> Iterator[None]:
    """A context in which SIGTERM and SIGINT are ignored, so that a second Ctrl-C does not interrupt cleaning up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
