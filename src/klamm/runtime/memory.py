"""The garbage collector, which looks at the whole process and holds it while it looks."""

import gc


def settle() -> None:
    """What is in memory now stays for long: full collections pass it over from here on.

    A hundred thousand partitions would hold the event loop for a tenth of a second, again and again. Objects without
    cycles are still freed by their reference counts; garbage in cycles that waits just now stays until `unsettle`, so
    call it for large loads alone.
    """
    gc.freeze()


def unsettle() -> None:
    """What was settled may go: the next full collection looks at everything."""
    gc.unfreeze()
