"""SQLite from the standard library, with the durability the metadata needs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from magnetar.io.interfaces import SqlError, SqlFull
from magnetar.io.space_reserve import is_without_room

PRAGMAS = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    # A full /tmp is no reason to end the process.
    "PRAGMA temp_store = MEMORY",
)
"""What every connection starts with; the simulated one uses them too."""
_PROBE_BYTES = 64 << 10


class SqliteConnection:
    """One connection; transactions are begun and ended by the caller's own statements."""

    def __init__(self, path: str) -> None:
        """:raises SqlError: it cannot be opened"""
        self._path = path
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise SqlError(str(error)) from error

    def start(self) -> None:
        for pragma in PRAGMAS:
            self.execute(pragma)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            if self._is_without_room(error):
                raise SqlFull(f"{error}: no space is left, or a quota is used up") from error
            raise SqlError(str(error)) from error

    def _is_without_room(self, error: sqlite3.Error) -> bool:
        """Whether a statement failed for want of room.

        SQLite knows ENOSPC, but reports a quota that is used up (EDQUOT) as it reports a failing device.
        What the device says to a write beside the database tells one from the other.
        """
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_IOERR_WRITE:
            return _refuses_room(f"{self._path}-probe")
        return code == sqlite3.SQLITE_FULL

    def close(self) -> None:
        self._connection.close()


def _refuses_room(path: str) -> bool:
    """Whether a file at ``path`` of a few blocks has no room; nothing of it stays."""
    try:
        with open(path, "wb", buffering=0) as probe:
            try:
                view = memoryview(bytes(_PROBE_BYTES))
                while view:
                    view = view[probe.write(view) :]
                os.fsync(probe.fileno())
            finally:
                os.unlink(path)
    except OSError as error:
        return is_without_room(error)
    return False
