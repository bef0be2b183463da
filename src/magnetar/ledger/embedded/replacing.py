"""Replaces a whole file, so that a power cut leaves either the old or the new one."""

from __future__ import annotations

from magnetar.io.interfaces import Disk


def replace_file(disk: Disk, directory: str, name: str, *pieces: bytes) -> None:
    """Replaces ``directory/name`` with ``pieces``, one after the other; durable when this returns.

    The bytes are never written to an existing file. If a power cut kept half of the last rename, the leftover
    temporary name is a second name of the very file that must stay intact until it is replaced.
    """
    temporary = f"{directory}/{name}.tmp"
    if disk.exists(temporary):
        disk.unlink(temporary)
    file = disk.open(temporary, create=True, exclusive=True)
    try:
        end = 0
        for piece in pieces:
            file.write(piece, end)
            end += len(piece)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, f"{directory}/{name}")
    disk.sync_directory(directory)
