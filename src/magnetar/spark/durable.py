"""Makes files and folders durable, so that they survive a crash."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Syncs the contents of a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
