"""The garbage collector, which looks at the whole process and holds it while it looks."""

import gc
from typing import Final

YOUNG: Final = 2_000
"""Objects made since the collector looked last: less than it waits for in a node, more than little work makes."""


def settle() -> None:
    """What is in memory now stays for long: full collections pass it over from here on.

    A hundred thousand partitions would hold the event loop for a tenth of a second, again and again. Objects without
    cycles are still freed by their reference counts; garbage in cycles that waits just now stays until `unsettle`, so
    call it for large loads alone.
    """
    gc.freeze()


def settle_young() -> None:
    """The same, where much was made just now: large work goes on, and would be looked at again and again.

    A young dict of a hundred thousand partitions costs the next collection tens of milliseconds, however little is new
    beside it. The price is that of `settle`, each time: what is alive now and ends in a cycle later, as a connection
    does (a kilobyte), is not freed before `unsettle`.
    """
    if gc.get_count()[0] > YOUNG:
        gc.freeze()


def unsettle() -> None:
    """What was settled may go: the next full collection looks at everything."""
    gc.unfreeze()


def freeze_objects() -> None:
    """Exclude all objects that exist now from garbage collection."""
    gc.collect()
    gc.freeze()
