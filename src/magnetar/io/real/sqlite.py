"""SQLite from the standard library, with the durability the metadata needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from magnetar.io.interfaces import SqlError, SqlFull

PRAGMAS = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
)
"""What every connection starts with; the simulated one uses them too."""


class SqliteConnection:
    """One connection; transactions are begun and ended by the caller's own statements."""

    def __init__(self, path: str) -> None:
        """:raises SqlError: it cannot be opened"""
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
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            raise (SqlFull if full else SqlError)(str(error)) from error

    def close(self) -> None:
        self._connection.close()
