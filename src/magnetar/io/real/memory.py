"""Settings of the C library's allocator."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

MAPPED_BYTES = 4 << 20
"""The allocator maps each block of at least this size (in bytes) individually, and returns the block to the
system when the block is freed.
"""

KEPT_BYTES = 16 << 20
"""The number of free bytes at the end of the heap that the allocator keeps for later allocations."""


def keep_freed_buffers() -> bool:
    """Lets buffers of reads and commits reuse the memory of earlier buffers; returns False if the C library
    does not support this.

    By default glibc maps every block above 128 KiB separately, so each page of each new block costs a page
    fault, in which the kernel clears the page.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # Another C library.
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
