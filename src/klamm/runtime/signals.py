"""Signals that ask us to stop: Ctrl-C, SIGTERM, a closed terminal."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def call_when_asked_to_stop(callback: Callable[[], None]) -> None:
    """In the running loop: call back on each of these signals."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, callback)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Without a loop: each of these signals raises KeyboardInterrupt in the block."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deaf_to_signals() -> Iterator[None]:
    """Cleaning up is not cut short by a second Ctrl-C."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
