"""Files and folders that must outlive a crash."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """What a file holds, or which names a folder has, is on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
