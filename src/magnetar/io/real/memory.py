"""How the C library's allocator is to behave."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

MAPPED_BYTES = 4 << 20
"""Blocks of this size and above are mapped, and given back, one by one."""

KEPT_BYTES = 16 << 20
"""Free memory at the end of the heap that is kept for what comes next."""


def keep_freed_buffers() -> bool:
    """Lets buffers of reads and commits use the memory of earlier ones; False where that cannot be asked for.

    By default glibc maps every block above 128 KiB anew: the kernel then clears, and the processor faults in,
    every single page of it.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # Another C library.
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
