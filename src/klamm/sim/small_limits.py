"""Small limits of a controller's batches, so that a few partitions are many, and a few waiting requests too many.

In production most of these limits are reached with thousands of partitions.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Final

_CONTROLLER: Final = "klamm.controller."
LIMITS: Final = {
    "REQUEST_PARTITIONS": 5,
    "SHUTDOWN_PARTITIONS": 2,
    "WRITE_PARTITIONS": 2,
    "READ_PARTITIONS": 3,
    "READ_TOPICS": 1,
    "DELETED_TOPICS": 1,
    "MAX_SENT_BY_PARTITION": 0,
    "MAX_UNMERGED_REQUESTS": 2,
    "MERGE_STEP_PARTITIONS": 3,
}


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """Within the block the modules of the controller have these limits."""
    changed = [(module, name, vars(module)[name]) for module in _modules() for name in LIMITS if name in vars(module)]
    for module, name, _ in changed:
        setattr(module, name, LIMITS[name])
    try:
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)


def _modules() -> list[ModuleType]:
    """The modules of the controller that are imported."""
    return [module for name, module in sys.modules.items() if name.startswith(_CONTROLLER)]
