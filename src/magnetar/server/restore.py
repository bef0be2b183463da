"""``magnetar restore`` and ``magnetar verify-backup``: write a backup to a data directory, and check
backups.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from magnetar.io.interfaces import SqlError
from magnetar.io.progress_bar import ProgressBar
from magnetar.io.real.disk import RealDisk
from magnetar.io.real.sqlite import reading_unchanged
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.checkpoint import CHECKPOINT_NAME, decode_checkpoint
from magnetar.ledger.embedded.identity import store_identity
from magnetar.ledger.embedded.segment_header import segment_id_of, segment_name
from magnetar.ledger.interface import LedgerError
from magnetar.metadata.interface import NodeDamaged
from magnetar.metadata.sqlite_nodes import FORMAT_VERSION, OFFLOADING_FORMAT, SqliteNodes
from magnetar.server.backup_folder import (
    LOCK_NAME,
    Backup,
    BackupFolder,
    BackupRefused,
    Pace,
    StoredFile,
    checksum_of,
    copy_checked,
    locked,
    make_directory,
    others_in,
    sync_directory,
    sync_tree,
)
from magnetar.server.embedded_stores import LEDGERS, METADATA, METADATA_FILE, RESTORING


@dataclass(frozen=True)
class RestoreRequest:
    """The options on the command line."""

    source: Path
    data_dir: Path
    number: int | None
    """The number of the backup; None: the newest backup."""
    bytes_per_second: int
    """Maximum number of bytes to copy per second; 0: no limit."""
    dry_run: bool
    quiet: bool


class Verified(NamedTuple):
    """The result of checking a folder with backups."""

    backups: Sequence[Backup]
    bytes: int
    unused: Sequence[Path]
    """Files that belong to no backup."""


def restore_backup(wanted: RestoreRequest) -> Backup:
    """Writes a backup to an empty data directory, or only checks whether that is possible.

    :raises BackupRefused: the backup cannot be restored; the data directory is then unchanged, empty, or
        marked as an interrupted restore
    :raises OSError: a file cannot be read or written; the data directory is then unchanged, empty, or marked
        as an interrupted restore
    """
    folder = BackupFolder(wanted.source)
    backup = folder.read(folder.chosen(wanted.number)[-1])
    for file in backup.files:
        _check_there(folder, file)
    _refuse_others(wanted.data_dir)
    existing = next(path for path in (wanted.data_dir, *wanted.data_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < backup.bytes:
        raise BackupRefused(
            f"{wanted.data_dir} has {free} free bytes, but backup {backup.number} requires "
            f"{backup.bytes}; free space, or restore to another disk"
        )
    if not wanted.dry_run:
        _restore(folder, backup, wanted)
    return backup


def _refuse_others(data_dir: Path) -> None:
    """Checks that the data directory is missing or empty, or contains only an interrupted restore.

    :raises BackupRefused: the path is not a directory, or the directory contains a file that this command has
        not written
    """
    if not data_dir.exists():
        return
    if not data_dir.is_dir():
        raise BackupRefused(f"{data_dir} is not a folder; give a new or empty folder")
    interrupted = (data_dir / RESTORING).exists()
    others = others_in(data_dir, (RESTORING, METADATA, LEDGERS) if interrupted else ())
    if others:
        raise BackupRefused(
            f"{data_dir} is not empty: it contains {others[0]}. Restore into a new or empty folder"
        )


def _restore(folder: BackupFolder, backup: Backup, wanted: RestoreRequest) -> None:
    data_dir = wanted.data_dir
    staging = data_dir / RESTORING
    make_directory(staging)
    with locked(staging):
        if (data_dir / LEDGERS).exists():
            if not (data_dir / METADATA).exists():
                raise BackupRefused(
                    f"{data_dir} contains {LEDGERS} but no {METADATA}, so it is not an interrupted "
                    "restore; use a new or empty folder"
                )
            # The interrupted restore had come to its last step: everything is in place, and was checked.
            _finish(data_dir)
            return
        _clear(data_dir)
        try:
            _fill(folder, backup, staging, wanted)
        except BaseException:
            _clear(data_dir)
            shutil.rmtree(staging)
            raise
        # A start is refused until the last step.
        (staging / METADATA).rename(data_dir / METADATA)
        sync_directory(data_dir)
        (staging / LEDGERS).rename(data_dir / LEDGERS)
        _finish(data_dir)


def _clear(data_dir: Path) -> None:
    """Removes the files that an interrupted restore wrote."""
    for path in (data_dir / METADATA, data_dir / RESTORING / METADATA, data_dir / RESTORING / LEDGERS):
        if path.exists():
            shutil.rmtree(path)


def _finish(data_dir: Path) -> None:
    sync_directory(data_dir)
    staging = data_dir / RESTORING
    (staging / LOCK_NAME).unlink(missing_ok=True)
    staging.rmdir()
    sync_directory(data_dir)


def _fill(folder: BackupFolder, backup: Backup, staging: Path, wanted: RestoreRequest) -> None:
    for name in (LEDGERS, METADATA):
        (staging / name).mkdir(0o750)
    with ProgressBar("restore", quiet=wanted.quiet) as bar:
        bar.step(f"copying backup {backup.number}")
        pace = _pace(wanted.bytes_per_second, bar, backup.bytes)
        for file in backup.files:
            with folder.place_of(file).open("rb") as source:
                found = copy_checked(source, -1, staging / file.path, pace)
            _compare(folder.place_of(file), file, found.bytes, found.sha256)
    sync_tree(staging)
    check_contents(backup, staging)


def verify_backups(source: Path, number: int | None, bytes_per_second: int, *, quiet: bool) -> Verified:
    """Reads every byte of one or all backups, and checks that ledgers and metadata belong together.

    :param number: the number of the backup to check; None: all backups
    :raises BackupRefused: a file is damaged or missing; the message contains its name
    :raises OSError: a file cannot be read
    """
    folder = BackupFolder(source)
    backups = [folder.read(row) for row in folder.chosen(number)]
    files = {file.name: file for backup in backups for file in backup.files}
    with ProgressBar("verify-backup", quiet=quiet) as bar:
        bar.step(f"reading {source}")
        pace = _pace(bytes_per_second, bar, sum(file.bytes for file in files.values()))
        for file in files.values():
            _check_there(folder, file)
            _compare(folder.place_of(file), file, *checksum_of(folder.place_of(file), pace))
    for backup in backups:
        with _laid_out(folder, backup) as data_dir:
            check_contents(backup, data_dir)
    return Verified(backups, pace.copied, folder.unused())


def _pace(bytes_per_second: int, bar: ProgressBar, total: int) -> Pace:
    def told(copied: int) -> None:
        bar.update(copied, total, unit="bytes")

    return Pace(bytes_per_second, time.monotonic, time.sleep, told)


@contextmanager
def _laid_out(folder: BackupFolder, backup: Backup) -> Iterator[Path]:
    """Yields a directory with links to the files of a backup that :func:`check_contents` reads, laid out as a
    data directory.
    """
    with tempfile.TemporaryDirectory(prefix="magnetar-verify-") as name:
        data_dir = Path(name)
        for directory in (LEDGERS, METADATA):
            (data_dir / directory).mkdir()
        for file in backup.files:
            if segment_id_of(file.path.rpartition("/")[2]) is None and not file.path.endswith(".index"):
                (data_dir / file.path).symlink_to(folder.place_of(file).absolute())
        yield data_dir


def _check_there(folder: BackupFolder, file: StoredFile) -> None:
    """Checks that the folder contains the copy of a file.

    :raises BackupRefused: the copy is missing, or has another size
    """
    place = folder.place_of(file)
    try:
        size = place.stat().st_size
    except FileNotFoundError:
        raise BackupRefused(f"{place} is missing, the copy of {file.path}; use another backup") from None
    if size != file.bytes:
        raise BackupRefused(f"{place} has {size} bytes instead of {file.bytes}; use another backup")


def _compare(place: Path, file: StoredFile, size: int, sha256: str) -> None:
    """Compares the size and the checksum of a copy with the size and the checksum in the manifest.

    :param place: the path of the copy
    :param size: the actual size of the copy, in bytes
    :param sha256: the actual checksum of the copy
    :raises BackupRefused: the copy is damaged
    """
    if (size, sha256) != (file.bytes, file.sha256):
        raise BackupRefused(
            f"{place} is damaged: its content does not match its checksum; use another backup"
        )


def check_contents(backup: Backup, data_dir: Path) -> None:
    """Checks that ledgers and metadata of a backup belong together; changes nothing.

    :raises BackupRefused: ledgers and metadata do not belong together, or cannot be read
    """
    name = f"backup {backup.number}"
    path = data_dir / LEDGERS / CHECKPOINT_NAME
    try:
        store = store_identity(RealDisk(data_dir), LEDGERS, lambda: b"").hex()
        checkpoint = decode_checkpoint(path.read_bytes(), f"{LEDGERS}/{CHECKPOINT_NAME}")
    except (LedgerError, FileNotFoundError) as error:
        raise BackupRefused(f"{name} cannot be used: {error}") from error
    there = {file.path for file in backup.files}
    for segment in checkpoint.segments:
        wanted = f"{LEDGERS}/{segment_name(segment.segment_id)}"
        if wanted not in there:
            raise BackupRefused(f"{name} cannot be used: it contains no {wanted}")
    belongs_to = _ledger_store_of(data_dir / METADATA_FILE, name)
    if not store == belongs_to == backup.store:
        raise BackupRefused(
            f"{name} cannot be used: its ledgers are those of store {store}, its metadata belongs to store "
            f"{belongs_to}, and its manifest names store {backup.store}"
        )


def _ledger_store_of(path: Path, name: str) -> str:
    """Reads all nodes of a metadata database; returns the id of its ledger store.

    :raises BackupRefused: the database is damaged
    """
    try:
        with reading_unchanged(path) as connection:
            nodes = SqliteNodes(connection)
            found = nodes.format()
            if not FORMAT_VERSION <= found <= OFFLOADING_FORMAT:
                raise BackupRefused(
                    f"{name} cannot be used: its metadata has format {found}, this release reads formats "
                    f"{FORMAT_VERSION} to {OFFLOADING_FORMAT}"
                )
            progress, tally = nodes.read_progress(), nodes.count_all()
    except (SqlError, NodeDamaged) as error:
        raise BackupRefused(f"{name} cannot be used: its {METADATA_FILE} is damaged: {error}") from error
    if progress.tally != tally:
        raise BackupRefused(
            f"{name} cannot be used: its {METADATA_FILE} has {tally.nodes} nodes, which differ from "
            f"the {progress.tally.nodes} nodes that were written"
        )
    return progress.ledger_store.hex()
