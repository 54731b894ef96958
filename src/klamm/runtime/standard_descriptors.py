"""Standard streams that the caller closed. This module imports only what loads fast: it is used before all others."""

import os
import sys


def open_closed_standard_streams() -> None:
    """Open the null device in place of a standard stream that is closed.

    Else a socket or a log would get its number, and what is written to the stream would go there; uvloop aborts.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
