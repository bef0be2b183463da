"""The VERSION file and the lock of a store's directory, and the replacement of whole files."""

from __future__ import annotations

import json
from collections.abc import Callable

from magnetar import __version__
from magnetar.io.interfaces import Disk, File
from magnetar.ledger.embedded.segment_header import FORMAT_VERSION, segment_id_of
from magnetar.ledger.interface import DataDamaged, LedgerError

_VERSION_NAME = "VERSION"
_LOCK_NAME = "LOCK"
STORE_ID_BYTES = 16


class StoreLocked(LedgerError):
    """Another process, or another store in this process, uses the directory."""


class UnknownFormat(LedgerError):
    """A newer release wrote the directory in a format that this release does not know."""


def lock_store(disk: Disk, directory: str) -> File:
    """Takes the lock of a directory, which is created if missing; closing the returned file releases the
    lock.

    :raises StoreLocked: the directory is in use
    """
    disk.make_directory(directory)
    file = disk.open(f"{directory}/{_LOCK_NAME}", create=True)
    if not file.lock(exclusive=True):
        file.close()
        raise StoreLocked(
            f"the ledger store in {directory!r} is in use by another process: stop that process"
        )
    return file


def store_identity(disk: Disk, directory: str, new_id: Callable[[], bytes]) -> bytes:
    """Returns the store's id from its VERSION file; writes one with ``new_id()`` into an empty directory.

    :raises UnknownFormat: a newer release wrote the file
    :raises DataDamaged: the file is missing although the directory has segments, or is not in the form that
        releases write
    """
    path = f"{directory}/{_VERSION_NAME}"
    if not disk.exists(path):
        segments = [name for name in disk.names(directory) if segment_id_of(name) is not None]
        if segments:
            raise DataDamaged(f"{path} is missing, but {directory}/{segments[0]} exists")
        store_id = new_id()
        _write(disk, directory, store_id)
        return store_id
    file = disk.open(path, write=False)
    try:
        text = file.read(file.size(), 0)
    finally:
        file.close()
    try:
        fields = json.loads(text)
        found, writer, store_id = int(fields["format"]), str(fields["writer"]), bytes.fromhex(fields["store"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataDamaged(
            f"{path} is damaged: it must contain the format and id of a ledger store: {error}"
        ) from error
    if found > FORMAT_VERSION:
        raise UnknownFormat(
            f"{directory!r} has format {found}, written by {writer}; "
            f"this release ({__version__}) knows formats up to {FORMAT_VERSION}"
        )
    if found < 1 or len(store_id) != STORE_ID_BYTES:
        raise DataDamaged(
            f"{path} is damaged: it has format {found} and a store id of {len(store_id)} bytes; valid are "
            f"formats from 1 to {FORMAT_VERSION} and ids of {STORE_ID_BYTES} bytes"
        )
    return store_id


def _write(disk: Disk, directory: str, store_id: bytes) -> None:
    fields = {"format": FORMAT_VERSION, "writer": f"magnetar {__version__}", "store": store_id.hex()}
    replace_file(disk, directory, _VERSION_NAME, json.dumps(fields).encode() + b"\n")


def replace_file(disk: Disk, directory: str, name: str, *pieces: bytes) -> None:
    """Replaces ``directory/name`` with the concatenated ``pieces``; durable when this returns.

    The bytes are never written to an existing file. If a power cut left half of the last rename, the
    temporary name may be a second name of the very file that must stay intact until it is replaced.
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
