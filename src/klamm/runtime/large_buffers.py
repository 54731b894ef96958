"""malloc settings for short-lived buffers of several megabytes."""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1  # M_TRIM_THRESHOLD of glibc's malloc.h
_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD
KEPT_BUFFER_BYTES: Final = 32 * 1024 * 1024
KEPT_FREE_BYTES: Final = 128 * 1024 * 1024


def keep_large_buffers() -> bool:
    """Let malloc keep freed buffers up to 32 MiB for reuse; false if malloc is not glibc's.

    By default, each large buffer is mapped anew, and the kernel zeroes its pages: that is half of the time of a broker
    that reads segments into memory. At most 128 MiB of free memory stay with the process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BUFFER_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_FREE_BYTES))
