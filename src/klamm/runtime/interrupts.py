"""Ctrl-C while modules are imported. This module imports only what loads fast, since nothing before it is covered."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def exiting_at_once_on_interrupt(status: int) -> Iterator[None]:
    """A context in which Ctrl-C ends the process at once, without an exception that an import could catch."""

    def end(_number: int, _frame: FrameType | None) -> None:
        """Handle the signal: end the process at once with the exit status, without cleanup."""
        os._exit(status)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
