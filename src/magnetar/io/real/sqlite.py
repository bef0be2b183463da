"""SQLite from the standard library, with the durability that the metadata needs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from magnetar.io.files import is_without_room
from magnetar.io.interfaces import SqlError, SqlFull

PRAGMAS = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    # A full /tmp must not end the process.
    "PRAGMA temp_store = MEMORY",
)
"""The pragmas of every connection, including connections to simulated databases."""
_PROBE_BYTES = 64 << 10


class SqliteConnection:
    """One connection; the caller's statements begin and end transactions."""

    def __init__(self, path: str, *, unchanged: bool = False) -> None:
        """:param unchanged: whether to only read the file, which no process may write meanwhile; a
            write-ahead log is ignored
        :raises SqlError: the database cannot be opened
        """
        self._path = path
        name = f"{Path(path).absolute().as_uri()}?immutable=1" if unchanged else path
        try:
            self._connection = sqlite3.connect(
                name, isolation_level=None, check_same_thread=False, uri=unchanged
            )
        except sqlite3.Error as error:
            raise SqlError(str(error)) from error

    def start(self) -> None:
        for pragma in PRAGMAS:
            self.execute(pragma)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            if self._is_without_room(error):
                raise SqlFull(f"{error}: no space is left, or a quota is used up") from error
            raise SqlError(str(error)) from error

    def _is_without_room(self, error: sqlite3.Error) -> bool:
        """Whether a statement failed because there was no room.

        SQLite knows ENOSPC, but reports an exhausted quota (EDQUOT) like a failing device. A write to a file
        beside the database distinguishes them.
        """
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_IOERR_WRITE:
            return _refuses_room(f"{self._path}-probe")
        return code == sqlite3.SQLITE_FULL

    def close(self) -> None:
        self._connection.close()


@contextmanager
def reading_unchanged(path: Path) -> Iterator[SqliteConnection]:
    """Opens a database for reading, with its write-ahead log and without a change of its files. No process
    may write to the files meanwhile.

    :raises SqlError: the database cannot be opened
    :raises OSError: the database has a write-ahead log, and there is no room for a copy of the database and
        the log
    """
    if not Path(f"{path}-wal").exists():
        with closing(SqliteConnection(str(path), unchanged=True)) as connection:
            yield connection
        return
    # Imported here: a broker needs neither.
    import shutil
    import tempfile

    # SQLite moves a write-ahead log into the database when it opens them.
    with tempfile.TemporaryDirectory(prefix="magnetar-verify-") as folder:
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{folder}/metadata.sqlite{suffix}")
        with closing(SqliteConnection(f"{folder}/metadata.sqlite")) as connection:
            yield connection


def _refuses_room(path: str) -> bool:
    """Whether there is no room for a file of a few blocks at ``path``; the file is removed again."""
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
