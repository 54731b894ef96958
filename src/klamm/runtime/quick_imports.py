"""Imports at the start of a process: they are most of the processor time of its start."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports(*unused: str) -> Iterator[None]:
    """Import without garbage collections, and as if the optional packages `unused` were not installed.

    Modules stay in memory: a collection between two imports frees nothing.
    """
    hidden = [name for name in unused if name not in sys.modules]
    collects = gc.isenabled()
    gc.disable()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: an import raises ImportError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        if collects:
            gc.enable()
