"""A folder with backups: their files, their manifests, and the list of the backups.

| file | holds |
| --- | --- |
| ``backups.json`` | the list of the backups, each with the checksum of its manifest; it is replaced last |
| ``backup-N.json`` | the manifest of a backup: the path, size and checksum of each file |
| ``files/`` | the files of all backups; a name ends with the beginning of the file's checksum |
| ``LOCK`` | nothing; the process that uses the folder holds a lock on it |

A file that several backups contain is stored once. Files that the listed manifests do not name belong to no
backup.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from magnetar import __version__

FORMAT = 1
LIST_NAME = "backups.json"
LOCK_NAME = "LOCK"
_FILES = "files"
_PART = ".part"
_CHUNK_BYTES = 1 << 20
_MOST_CREDIT_SECONDS = 0.2
_SHOWN = 16
"""Number of checksum digits in a file name."""


class BackupRefused(Exception):
    """A backup cannot be taken, read or restored; the message names the file and the reason."""


class StoredFile(NamedTuple):
    """A file of a backup."""

    path: str
    """The path of the file in the data directory."""
    bytes: int
    sha256: str
    sealed: bool
    """Whether the broker no longer changes the file."""

    @property
    def name(self) -> str:
        """The name of the file's copy in the folder."""
        return f"{self.path.rpartition('/')[2]}.{self.sha256[:_SHOWN]}"


class Backup(NamedTuple):
    """The manifest of a backup."""

    number: int
    taken_ms: int
    """The time of the state that the backup contains, in milliseconds since 1970."""
    store: str
    """The id of the ledger store."""
    files: Sequence[StoredFile]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class BackupRow(NamedTuple):
    """A row of the list of backups."""

    number: int
    taken_ms: int
    sha256: str
    """The checksum of the manifest."""

    @property
    def manifest(self) -> str:
        """The file name of the manifest."""
        return f"backup-{self.number}.json"


class BackupFolder:
    """A folder with backups of one ledger store, the oldest backup first.

    :ivar path: the path of the folder
    """

    def __init__(self, path: Path) -> None:
        """Reads the list of backups.

        :raises BackupRefused: the list is missing, damaged, or written by a newer release
        """
        self.path = path
        self.store = ""
        """The id of the ledger store; empty while there is no backup."""
        self.listed: list[BackupRow] = []
        if not path.is_dir():
            raise BackupRefused(f"{path} does not exist; give a folder with backups")
        found = json.loads(_read_checked(path / LIST_NAME, "the list of the backups"))
        _check_format(path, found)
        try:
            self.store = str(found["store"])
            self.listed = [
                BackupRow(int(row["number"]), int(row["takenMs"]), str(row["sha256"]))
                for row in found["backups"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise BackupRefused(f"{path / LIST_NAME} is not a list of backups: {error!r}") from error

    @classmethod
    def create(cls, path: Path) -> BackupFolder:
        """Creates a folder for backups, or uses an existing empty folder.

        :raises BackupRefused: the folder contains other files
        """
        make_directory(path)
        others = others_in(path, (LOCK_NAME, f"{LIST_NAME}{_PART}"))
        if others:
            raise BackupRefused(
                f"{path} is not a folder with backups: it has {others[0]} but no {LIST_NAME}. Use "
                "an empty folder, or a folder that magnetar backup created"
            )
        _replace(
            path / LIST_NAME, _checked({"format": FORMAT, "writer": _writer(), "store": "", "backups": []})
        )
        return cls(path)

    def chosen(self, number: int | None) -> list[BackupRow]:
        """Returns the row of the backup with this number as the only item; None: the rows of all backups.

        :raises BackupRefused: no backup has this number
        """
        found = [row for row in self.listed if number is None or row.number == number]
        if not found:
            known = ", ".join(str(row.number) for row in self.listed) or "none"
            which = "a backup" if number is None else f"backup {number}"
            raise BackupRefused(f"{self.path} does not contain {which}; its backups are: {known}")
        return found

    def read(self, row: BackupRow) -> Backup:
        """Reads the manifest of a backup.

        :raises BackupRefused: the manifest is missing or damaged
        """
        path = self.path / row.manifest
        data = _read(path, f"the manifest of backup {row.number}")
        if hashlib.sha256(data).hexdigest() != row.sha256:
            raise BackupRefused(
                f"{path} is damaged: its checksum differs from the checksum in "
                f"{LIST_NAME}; use another backup"
            )
        found = json.loads(data)
        _check_format(path, found)
        files = [
            StoredFile(each["path"], each["bytes"], each["sha256"], each["sealed"]) for each in found["files"]
        ]
        return Backup(found["number"], found["takenMs"], found["store"], files)

    def place_of(self, file: StoredFile) -> Path:
        return self.path / _FILES / file.name

    def has(self, file: StoredFile) -> bool:
        """Whether the folder contains a copy of the file with the right size."""
        try:
            return self.place_of(file).stat().st_size == file.bytes
        except FileNotFoundError:
            return False

    def add(self, backup: Backup, keep: int) -> list[BackupRow]:
        """Adds a backup whose files are all durable, and removes the oldest backups from the list; returns
        the removed backups.

        The backup exists as soon as the list is replaced.

        :param keep: number of backups to keep, including the new one, at least 1
        """
        sync_directory(self.path / _FILES)
        manifest = json.dumps(
            {
                "format": FORMAT,
                "writer": _writer(),
                "number": backup.number,
                "takenMs": backup.taken_ms,
                "store": backup.store,
                "files": [file._asdict() for file in backup.files],
            }
        ).encode()
        row = BackupRow(backup.number, backup.taken_ms, hashlib.sha256(manifest).hexdigest())
        _replace(self.path / row.manifest, manifest)
        all_listed = [*self.listed, row]
        gone, kept = all_listed[:-keep], all_listed[-keep:]
        rows = [{"number": each.number, "takenMs": each.taken_ms, "sha256": each.sha256} for each in kept]
        content = {"format": FORMAT, "writer": _writer(), "store": backup.store, "backups": rows}
        _replace(self.path / LIST_NAME, _checked(content))
        self.store, self.listed = backup.store, kept
        return gone

    def unused(self) -> list[Path]:
        """Returns the files that belong to no backup, which interrupted commands leave behind.

        :raises BackupRefused: a manifest is missing or damaged
        """
        used = {LIST_NAME, LOCK_NAME, _FILES, *(row.manifest for row in self.listed)}
        names = {file.name for row in self.listed for file in self.read(row).files}
        found = [self.path / name for name in others_in(self.path, used)]
        files = self.path / _FILES
        if files.is_dir():
            found += [files / name for name in others_in(files, names)]
        return found

    def remove_unused(self) -> None:
        """Removes the files in ``files/``, and the manifests and lists, that belong to no backup; other files
        stay."""
        for path in self.unused():
            ours = path.parent.name == _FILES or path.name.startswith(("backup-", LIST_NAME))
            if ours and path.is_file():
                path.unlink()


class Pace:
    """Limits the speed of copying, and reports the progress.

    :ivar copied: number of bytes copied so far
    """

    def __init__(
        self,
        bytes_per_second: int,
        now: Callable[[], float],
        sleep: Callable[[float], None],
        told: Callable[[int], None] = lambda _copied: None,
    ) -> None:
        """:param bytes_per_second: maximum number of bytes per second; 0: no limit
        :param told: called after each piece with the total number of bytes copied so far
        """
        self.copied = 0
        self._limit = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._told = told
        self._free_at = now()
        """The time, by ``now``, at which the rate limit allows the next piece."""

    def took(self, count: int) -> None:
        """Counts ``count`` copied bytes, and waits until the next piece can be copied within the limit."""
        self.copied += count
        self._told(self.copied)
        if self._limit:
            now = self._now()
            # The time that the piece took counts, but a long pause allows no long burst.
            self._free_at = max(self._free_at, now - _MOST_CREDIT_SECONDS) + count / self._limit
            if self._free_at > now:
                self._sleep(self._free_at - now)

    @property
    def piece_bytes(self) -> int:
        """The size of a piece in bytes: the amount that the limit allows in 0.2 s, from 4 KiB to 1 MiB."""
        return min(_CHUNK_BYTES, max(4096, self._limit // 5)) if self._limit else _CHUNK_BYTES


def copy_checked(source: BinaryIO, size: int, target: Path, pace: Pace) -> StoredFile:
    """Copies the first ``size`` bytes (-1: all) to ``target``, durably; returns the size and the checksum.

    :raises BackupRefused: the source has fewer than ``size`` bytes
    :raises OSError: a file cannot be read or written; the target is removed
    """
    digest, copied = hashlib.sha256(), 0
    try:
        with _new(target) as file:
            while size < 0 or copied < size:
                piece = source.read(min(pace.piece_bytes, size - copied) if size >= 0 else pace.piece_bytes)
                if not piece:
                    break
                file.write(piece)
                digest.update(piece)
                copied += len(piece)
                pace.took(len(piece))
            file.flush()
            os.fsync(file.fileno())
        if copied < size:
            raise BackupRefused(f"{source.name} has {copied} bytes, fewer than the expected {size}")
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return StoredFile("", copied, digest.hexdigest(), False)


def checksum_of(path: Path, pace: Pace) -> tuple[int, str]:
    """Returns the size and the checksum of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(pace.piece_bytes):
            digest.update(piece)
            size += len(piece)
            pace.took(len(piece))
    return size, digest.hexdigest()


def store_copy(
    folder: BackupFolder, source: BinaryIO, path: str, size: int, pace: Pace, *, sealed: bool
) -> StoredFile:
    """Copies a file into the folder, unless the folder already contains the same bytes; returns the copy.

    :param path: the path of the file in the data directory
    :param size: the number of bytes to copy; -1: the whole file
    :param sealed: whether the broker no longer changes the file
    """
    files = folder.path / _FILES
    make_directory(files)
    part = files / f"{path.rpartition('/')[2]}{_PART}"
    found = copy_checked(source, size, part, pace)._replace(path=path, sealed=sealed)
    if folder.has(found):
        part.unlink()
    else:
        part.replace(folder.place_of(found))
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Excludes other processes from a folder within the ``with`` statement.

    :raises BackupRefused: another process uses the folder
    """
    file = (path / LOCK_NAME).open("ab")
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupRefused(
                f"{path} is in use by another backup or restore; wait until it has ended"
            ) from None
        yield
    finally:
        file.close()


def sync_tree(top: Path) -> None:
    """Makes the file names in a folder and its subfolders durable."""
    for folder, _, _ in os.walk(top):
        sync_directory(Path(folder))


def make_directory(path: Path) -> None:
    """Creates a directory and its missing parents, durably."""
    if not path.exists():
        make_directory(path.parent)
        path.mkdir(0o750, exist_ok=True)
        sync_directory(path.parent)


def others_in(path: Path, known: Collection[str]) -> list[str]:
    """Returns the names in a directory, except ``known`` names and names that file systems create."""
    return sorted(set(os.listdir(path)) - {*known, "lost+found"})


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes) -> None:
    """Replaces a file; the change is durable on return."""
    part = path.with_name(path.name + _PART)
    try:
        with _new(part) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _new(path: Path) -> BinaryIO:
    """Creates a file, or truncates an existing file, with the permissions of a broker's files."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640), "wb")


def _writer() -> str:
    return f"magnetar {__version__}"


def _checked(content: Mapping[str, object]) -> bytes:
    """Returns the bytes of a file: a line of JSON, and a line with its checksum."""
    line = json.dumps(content).encode() + b"\n"
    return line + f"sha256 {hashlib.sha256(line).hexdigest()}\n".encode()


def _read_checked(path: Path, what: str) -> bytes:
    """Returns the JSON line of a file that :func:`_checked` wrote.

    :raises BackupRefused: the file is missing or damaged
    """
    data = _read(path, what)
    line, _, rest = data.partition(b"\n")
    line += b"\n"
    if rest != f"sha256 {hashlib.sha256(line).hexdigest()}\n".encode():
        raise BackupRefused(f"{path} is damaged: its content does not match its checksum; use another backup")
    return line


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BackupRefused(f"{path} is missing; it should contain {what}") from None


def _check_format(path: Path, found: Mapping[str, object]) -> None:
    """Checks the version of a file's format.

    :raises BackupRefused: a newer release wrote the file
    """
    written = found.get("format")
    if not isinstance(written, int) or written < 1:
        raise BackupRefused(f"{path} has the unknown format {written!r}; the file is damaged")
    if written > FORMAT:
        raise BackupRefused(
            f"{path} has format {written}, written by {found.get('writer')}; "
            f"this release ({__version__}) knows formats up to {FORMAT}"
        )
