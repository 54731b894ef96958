"""Settings of malloc for buffers of megabytes that live for a moment."""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1  # M_TRIM_THRESHOLD of glibc's malloc.h
_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD
KEPT_BUFFER_BYTES: Final = 32 * 1024 * 1024
KEPT_FREE_BYTES: Final = 128 * 1024 * 1024


def keep_large_buffers() -> bool:
    """Reuse freed buffers up to 32 MiB instead of giving their pages back at once; False where malloc is not glibc's.

    By default each large buffer is mapped anew and its pages are zeroed by the kernel: for a broker that reads
    segments into memory that is half of all its time. At most 128 MiB of free memory stay with the process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BUFFER_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_FREE_BYTES))
