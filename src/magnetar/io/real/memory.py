"""Settings of the C library's allocator."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

MAPPED_BYTES = 4 << 20
"""The allocator maps each block of at least this size individually, and returns it to the system when
freed.
"""

KEPT_BYTES = 16 << 20
"""The free memory at the end of the heap that is kept for later allocations."""


def keep_freed_buffers() -> bool:
    """Lets buffers of reads and commits reuse the memory of earlier buffers; returns False if the C library
    does not support this.

    By default glibc maps every block above 128 KiB separately: the kernel then clears, and the processor
    faults in, every single page of it.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # Another C library.
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
