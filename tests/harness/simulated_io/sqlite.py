"""Real SQLite on a simulated disk, through a VFS. Needs apsw, which only development installs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from magnetar.io.interfaces import SqlError, SqlFull
from magnetar.io.real.sqlite import PRAGMAS
from simulated_io.disk import PowerLost, SimulatedDisk, SimulatedFile

T = TypeVar("T")

_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_names = iter(range(1 << 62))


class _VfsFile:
    """A file with the behaviour of SQLite's own Unix VFS."""

    def __init__(self, vfs: _Vfs, file: SimulatedFile, delete: str | None, sync_directory: bool) -> None:
        self._vfs = vfs
        self._file = file
        self._delete_on_close = delete
        self._sync_directory = sync_directory

    def xRead(self, amount: int, offset: int) -> bytes:
        if self._vfs.abandoned:
            return bytes(amount)
        return self._vfs.guard(lambda: self._file.read(amount, offset))

    def xWrite(self, data: bytes, offset: int) -> None:
        if not self._vfs.abandoned:
            self._vfs.guard(lambda: self._file.write(data, offset), writing=True)

    def xTruncate(self, size: int) -> None:
        if not self._vfs.abandoned:
            self._vfs.guard(lambda: self._file.truncate(size))

    def xSync(self, flags: int) -> None:
        if not self._vfs.abandoned:
            self._vfs.guard(self._sync)

    def _sync(self) -> None:
        self._file.sync()
        if self._sync_directory:
            # A new journal is of no use before its name is durable.
            self._vfs.disk.sync_directory(self._vfs.directory)
            self._sync_directory = False

    def xFileSize(self) -> int:
        return 0 if self._vfs.abandoned else self._vfs.guard(self._file.size)

    def xClose(self) -> None:
        self._file.close()
        if self._delete_on_close is not None and not self._vfs.abandoned:
            path = self._delete_on_close
            self._vfs.guard(lambda: self._vfs.disk.unlink(path))
        # SQLite's side of this object may outlive the connection, and must not keep a whole disk in memory.
        del self._file, self._vfs

    def xLock(self, level: int) -> None:
        """Does nothing: one connection has the database for itself."""

    def xUnlock(self, level: int) -> None:
        """See :meth:`xLock`."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 512

    def xDeviceCharacteristics(self) -> int:
        return 0


class _Vfs(apsw.VFS):
    def __init__(self, name: str, disk: SimulatedDisk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.lost: PowerLost | None = None
        self.over_quota = False
        """Whether the last error was a write that a quota refused: SQLite takes it for a failing device."""
        self.abandoned = False
        """The process has ended: SQLite's clean-up has no effect."""
        super().__init__(name, base="")

    def release(self) -> None:
        """Releases the disk: SQLite keeps registered objects forever, out of the garbage
        collector's reach."""
        self.unregister()
        self.lost = None
        self.disk = SimulatedDisk(0)

    def guard(self, operation: Callable[[], T], *, writing: bool = False) -> T:
        """Keeps a power cut for the caller of SQLite, because SQLite would take it for an I/O error."""
        try:
            return operation()
        except PowerLost as lost:
            self.lost = lost
            raise apsw.IOError("the power is gone") from lost
        except OSError as error:
            self.over_quota = writing and error.errno == errno.EDQUOT
            kind = apsw.FullError if error.errno == errno.ENOSPC else apsw.IOError
            raise kind(str(error)) from error

    def xOpen(self, name: object, flags: list[int]) -> Any:
        temporary = name is None
        path = f"{self.directory}/sqlite-temporary-{next(_names)}" if temporary else _text(name)
        create = bool(flags[0] & apsw.SQLITE_OPEN_CREATE)
        is_new = not self.guard(lambda: self.disk.exists(path))
        if is_new and not create:
            raise apsw.CantOpenError(path)
        file = self.guard(lambda: self.disk.open(path, create=create))
        flags[1] = flags[0]
        delete = path if temporary or flags[0] & apsw.SQLITE_OPEN_DELETEONCLOSE else None
        # A process that was killed may have left a file whose name is not durable yet, so SQLite does not ask
        # whether it is new (isNewJrnl in os_unix.c).
        return _VfsFile(self, file, delete, create and bool(flags[0] & _JOURNALS))

    def xDelete(self, name: str, sync_directory: bool) -> None:
        if self.abandoned:
            return
        self.guard(lambda: self.disk.unlink(name))
        if sync_directory:
            self.guard(lambda: self.disk.sync_directory(self.directory))

    def xAccess(self, name: str, flags: int) -> bool:
        return not self.abandoned and bool(self.guard(lambda: self.disk.exists(name)))

    def xFullPathname(self, name: str) -> str:
        return name


def _text(name: object) -> str:
    return name.filename() if isinstance(name, apsw.URIFilename) else str(name)


class SimulatedSqlite:
    """A connection like the real one, with the same settings."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        directory = path.rpartition("/")[0] or "."
        disk.make_directory(directory)
        name = f"simulated-{next(_names)}"
        self._vfs = _Vfs(name, disk, directory)
        self._connection = self._call(lambda: apsw.Connection(path, vfs=name))

    def start(self) -> None:
        for pragma in PRAGMAS:
            self.execute(pragma)

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self._call(lambda: list(self._connection.cursor().execute(statement, tuple(parameters))))

    def close(self) -> None:
        self._call(self._connection.close)

    def abandon(self) -> None:
        """Ends the connection without a change on the disk, like the end of its process."""
        self._vfs.abandoned = True
        if hasattr(self, "_connection"):
            self._connection.close(True)
        self._vfs.release()

    def _call(self, operation: Callable[[], T]) -> T:
        try:
            return operation()
        except UnicodeDecodeError as error:
            raise SqlError(str(error)) from error
        except apsw.Error as error:
            if self._vfs.lost is not None:
                raise self._vfs.lost from error
            over_quota = isinstance(error, apsw.IOError) and self._vfs.over_quota
            if over_quota or isinstance(error, apsw.FullError):
                raise SqlFull(str(error)) from error
            if isinstance(error, apsw.IOError):
                raise OSError(str(error)) from error
            if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.SQLError):
                raise SqlError(str(error)) from error
            raise
