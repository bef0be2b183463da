"""Putting a whole file in the place of another, so that a power cut leaves one of the two."""

from __future__ import annotations

from magnetar.io.interfaces import Disk


def replace_file(disk: Disk, directory: str, name: str, *pieces: bytes) -> None:
    """Writes ``directory/name`` anew, ``pieces`` one after the other; durable when this returns.

    The bytes never go to a file that was there before: when a power cut kept half of the last rename, the
    temporary name that was left is a second name of the very file that is to stay whole until it is replaced.
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
