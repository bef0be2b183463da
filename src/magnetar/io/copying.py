"""Copying a file."""

from __future__ import annotations

from magnetar.io.interfaces import Disk

_STEP_BYTES = 1 << 20


def copy_file(disk: Disk, source: str, target: str) -> None:
    """Copies a file over another one, or to a new name; blocks. The copy is durable when this returns."""
    read = disk.open(source, write=False)
    try:
        written = disk.open(target, create=True)
        try:
            written.truncate(0)
            at = 0
            while data := read.read(_STEP_BYTES, at):
                written.write(data, at)
                at += len(data)
            written.sync()
        finally:
            written.close()
    finally:
        read.close()
