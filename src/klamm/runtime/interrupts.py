"""Ctrl-C while modules are imported. Imports nothing that takes time: nothing can be interrupted before it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def exiting_at_once_on_interrupt(status: int) -> Iterator[None]:
    """End the process on Ctrl-C in the block, with no exception that an import could catch or turn into another."""

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(status)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
