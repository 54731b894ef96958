"""Errors of the operating system that end a command: one sentence instead of a stack."""

import errno
from typing import Final

from klamm.model.errors import KlammError

_CANNOT_WRITE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def command_error(error: OSError) -> KlammError | None:
    """The error to print for one of the operating system; None where it is neither about a file nor about the output.

    Files are named; an error without a name is that of standard output.
    """
    reason = error.strerror or error
    if error.filename is not None:
        return KlammError(f"Cannot use {error.filename}: {reason}. Check the path, its permissions and the free space.")
    if error.errno in _CANNOT_WRITE:
        return KlammError(f"Cannot write the output: {reason}. Free space, or send the output elsewhere.")
    return None
