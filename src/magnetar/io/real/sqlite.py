"""SQLite from the standard library, with the durability the metadata needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

PRAGMAS = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
)
"""What every connection starts with; the simulated one uses them too."""


class SqliteConnection:
    """One connection; transactions are begun and ended by the caller's own statements."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in PRAGMAS:
            self._connection.execute(pragma).fetchall()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()

    def close(self) -> None:
        self._connection.close()
