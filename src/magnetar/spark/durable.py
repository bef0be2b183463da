"""Makes files and folders durable, so that they survive a crash."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Syncs a file, or the list of files in a folder, to the disk (``fsync``)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
