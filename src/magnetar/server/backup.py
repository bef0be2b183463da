"""``magnetar backup``: copies the data of a running or stopped standalone broker into a folder with
backups.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from magnetar.admin_client.client import AdminClient
from magnetar.admin_client.errors import AdminError, NotFound
from magnetar.io.progress_bar import ProgressBar
from magnetar.io.real.disk import RealDisk
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.checkpoint import CHECKPOINT_NAME, decode_checkpoint
from magnetar.ledger.embedded.identity import StoreLocked, lock_store, store_identity
from magnetar.ledger.embedded.log_end import LOG_END_NAME
from magnetar.ledger.embedded.segment_header import (
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    index_name,
    segment_id_of,
    segment_name,
)
from magnetar.server.backup_folder import (
    LIST_NAME,
    Backup,
    BackupFolder,
    BackupRefused,
    Pace,
    StoredFile,
    checksum_of,
    locked,
    make_directory,
    store_copy,
)
from magnetar.server.embedded_stores import LEDGERS, METADATA_FILE, RESTORING

log = logging.getLogger(__name__)

_HELD_SECONDS = 120
"""How long the broker keeps the files of a snapshot after the command's last request, in seconds."""
_PROLONG_SECONDS = 20.0


class SourceFile(NamedTuple):
    """A file to copy."""

    path: str
    """The path of the file in the backup."""
    location: Path
    bytes: int
    """Number of bytes to copy; -1: the whole file."""
    sealed: bool
    """Whether the broker no longer changes the file."""


@dataclass
class Source:
    """The data of a broker at one moment."""

    store: str
    taken_ms: int
    files: Sequence[SourceFile]
    shared: bool
    """Whether a broker is running, so that segments must be locked while they are copied."""
    keep: Callable[[], None] = lambda: None
    """Called often while the files are being read.

    :raises BackupRefused: the broker no longer keeps the files
    """
    confirm: Callable[[], None] = lambda: None
    """Called after all files have been read, to check that the broker kept them until now.

    :raises BackupRefused: the broker did not keep the files
    """


@dataclass(frozen=True)
class BackupRequest:
    """The options on the command line."""

    target: Path
    data_dir: Path | None
    """The data directory; None: the directory that the running broker reports."""
    keep: int
    bytes_per_second: int
    """Maximum number of bytes per second; 0: no limit."""
    dry_run: bool
    quiet: bool


class BackupTaken(NamedTuple):
    """The contents of a new backup, and the work that it took."""

    backup: Backup
    new: Sequence[StoredFile]
    """Files that the folder did not contain before."""
    removed: Sequence[int]
    """The numbers of the backups that were removed."""

    @property
    def new_bytes(self) -> int:
        return sum(file.bytes for file in self.new)


def take_backup(wanted: BackupRequest, broker: Callable[[], AdminClient]) -> BackupTaken:
    """Takes a backup, or only determines the files that it would copy.

    :param broker: returns a client of the running broker; its errors are raised by this function
    :raises BackupRefused: the backup cannot be taken; earlier backups are unchanged
    :raises AdminError: the broker does not answer, or refuses the request
    :raises OSError: a file cannot be read or written; earlier backups are unchanged
    """
    with _source(wanted.data_dir, broker) as source:
        if wanted.dry_run:
            known = BackupFolder(wanted.target) if (wanted.target / LIST_NAME).exists() else None
            return _look(source, known)
        make_directory(wanted.target)
        with locked(wanted.target):
            there = (wanted.target / LIST_NAME).exists()
            folder = BackupFolder(wanted.target) if there else BackupFolder.create(wanted.target)
            return _copy(source, folder, wanted)


@contextmanager
def _source(data_dir: Path | None, broker: Callable[[], AdminClient]) -> Iterator[Source]:
    """Yields the data of a running broker, or of a stopped broker that cannot be started meanwhile."""
    if data_dir is None:
        with _running(None, broker()) as source:
            yield source
        return
    if not (data_dir / LEDGERS).is_dir():
        raise BackupRefused(
            f"{data_dir} is not the data directory of a broker: it has no folder named {LEDGERS}"
        )
    try:
        lock = lock_store(RealDisk(data_dir), LEDGERS)
    except StoreLocked:
        with _running(data_dir, broker()) as source:
            yield source
        return
    try:
        yield _stopped(data_dir)
    finally:
        lock.close()


@contextmanager
def _running(data_dir: Path | None, admin: AdminClient) -> Iterator[Source]:
    snapshot = admin.take_snapshot(_HELD_SECONDS)
    snapshot_id, store = snapshot.snapshot_id, snapshot.store
    try:
        if data_dir is None:
            data_dir = Path(snapshot.data_directory)
        _check_store(data_dir, store)
        files = [
            SourceFile(each.path, data_dir / each.source, each.bytes, each.sealed) for each in snapshot.files
        ]
        lease = _Lease(admin, snapshot_id)
        yield Source(store, snapshot.taken_ms, files, True, lease.keep, lease.prolong)
    finally:
        try:
            admin.release_snapshot(snapshot_id)
        except AdminError as error:
            log.warning("the snapshot was not released, and expires by itself", extra={"error": str(error)})


def _check_store(data_dir: Path, store: str) -> None:
    """Checks that the directory contains the ledger store of the running broker.

    :param store: the id of that ledger store
    :raises BackupRefused: the directory belongs to another broker, or does not exist
    """
    where = f"the data directory of the running broker is {data_dir}"
    if not (data_dir / LEDGERS / "VERSION").exists():
        raise BackupRefused(
            f"{where}, which does not exist on this machine; run the command on the broker's "
            "machine, or give the path where the directory is mounted with --data-dir"
        )
    found = store_identity(RealDisk(data_dir), LEDGERS, lambda: b"").hex()
    if found != store:
        raise BackupRefused(
            f"{data_dir} contains the ledger store {found}, but the running broker uses "
            f"{store}; use the data directory of that broker"
        )


class _Lease:
    """Keeps a snapshot of the running broker from expiring while it is copied."""

    def __init__(self, admin: AdminClient, snapshot_id: str) -> None:
        self._admin = admin
        self._snapshot_id = snapshot_id
        self._next = time.monotonic() + _PROLONG_SECONDS

    def keep(self) -> None:
        """Extends the snapshot if that is due, so that it does not expire.

        :raises BackupRefused: the broker has stopped, or the snapshot has expired
        """
        if time.monotonic() >= self._next:
            self.prolong()

    def prolong(self) -> None:
        """Extends the snapshot that the backup reads.

        :raises BackupRefused: the broker has stopped, or the snapshot has expired
        """
        try:
            self._admin.prolong_snapshot(self._snapshot_id, _HELD_SECONDS)
        except (AdminError, OSError) as error:
            why = (
                "it was restarted, or could not be reached for a while"
                if isinstance(error, NotFound)
                else error
            )
            raise BackupRefused(
                f"the broker no longer keeps the files of this backup ({why}); run the command again"
            ) from error
        self._next = time.monotonic() + _PROLONG_SECONDS


def _stopped(data_dir: Path) -> Source:
    """Returns the data of a stopped broker; the caller holds the broker's lock."""
    if (data_dir / RESTORING).exists():
        raise BackupRefused(
            f"{data_dir / RESTORING} exists: a restore into this directory was "
            "interrupted; run magnetar restore again first"
        )
    ledgers, metadata = data_dir / LEDGERS, data_dir / METADATA_FILE
    for path in (ledgers / "VERSION", ledgers / CHECKPOINT_NAME, metadata):
        if not path.exists():
            raise BackupRefused(
                f"{path} is missing, so the data directory is incomplete and cannot be backed up"
            )
    store = store_identity(RealDisk(data_dir), LEDGERS, lambda: b"").hex()
    path = ledgers / CHECKPOINT_NAME
    checkpoint = decode_checkpoint(path.read_bytes(), str(path))
    sealed = {segment.segment_id for segment in checkpoint.segments}
    names = [("VERSION", False), (CHECKPOINT_NAME, False)]
    if (ledgers / LOG_END_NAME).exists():
        names.append((LOG_END_NAME, False))
    for name in sorted(found.name for found in ledgers.iterdir()):
        segment_id = segment_id_of(name)
        if segment_id is not None and (segment_id in sealed or segment_id >= checkpoint.log_segment_id):
            names.append((name, segment_id in sealed))
            if segment_id in sealed and (ledgers / index_name(segment_id)).exists():
                names.append((index_name(segment_id), True))
    files = [SourceFile(f"{LEDGERS}/{name}", ledgers / name, -1, never) for name, never in names]
    files += [
        SourceFile(f"{METADATA_FILE}{suffix}", data_dir / f"{METADATA_FILE}{suffix}", -1, False)
        for suffix in ("", "-wal")
        if (data_dir / f"{METADATA_FILE}{suffix}").exists()
    ]
    return Source(store, int(time.time() * 1000), files, False)


def _look(source: Source, folder: BackupFolder | None) -> BackupTaken:
    """Returns what a backup would contain and which files it would copy, without computing checksums."""
    reuse = _Reuse(source, folder)
    files = [reuse.find(file) or _sized(file) for file in source.files]
    number = folder.listed[-1].number + 1 if folder is not None and folder.listed else 1
    backup = Backup(number, source.taken_ms, source.store, files)
    return BackupTaken(backup, [file for file in files if not file.sha256], [])


def _sized(file: SourceFile) -> StoredFile:
    size = file.bytes if file.bytes >= 0 else file.location.stat().st_size
    return StoredFile(file.path, size, "", file.sealed)


class _Reuse:
    """Finds files that the last backup already contains, without reading them.

    A sealed segment never changes, but a restored broker reuses the ids of segments that were created after
    the backup. The index of a segment contains checksums of its content, so segments with the same size and
    the same index are equal.
    """

    def __init__(self, source: Source, folder: BackupFolder | None) -> None:
        self._has: Callable[[StoredFile], bool] = lambda _file: False
        self._known: Mapping[str, StoredFile] = {}
        self._sources = {file.path: file for file in source.files}
        if folder is None or not folder.listed:
            return
        if folder.store != source.store:
            raise BackupRefused(
                f"{folder.path} contains backups of the ledger store {folder.store}, but this "
                f"broker uses {source.store}; use another folder for this broker"
            )
        self._has = folder.has
        self._known = {file.path: file for file in folder.read(folder.listed[-1]).files}

    def find(self, file: SourceFile) -> StoredFile | None:
        """Returns the copy of a file that the folder already contains; None: the file must be read."""
        segment_id = segment_id_of(file.path.rpartition("/")[2])
        known = self._known.get(file.path)
        if segment_id is None or known is None or not (file.sealed and known.sealed):
            return None
        index = f"{LEDGERS}/{index_name(segment_id)}"
        ours, theirs = self._sources.get(index), self._known.get(index)
        if ours is None or theirs is None or not self._has(known):
            return None
        if file.location.stat().st_size != known.bytes or not ours.location.exists():
            return None
        unlimited = Pace(0, time.monotonic, time.sleep)
        return known if checksum_of(ours.location, unlimited)[1] == theirs.sha256 else None


def _copy(source: Source, folder: BackupFolder, wanted: BackupRequest) -> BackupTaken:
    reuse = _Reuse(source, folder)
    folder.remove_unused()
    known = []
    for file in source.files:
        known.append((file, reuse.find(file)))
        source.keep()
    total = sum(_sized(file).bytes for file, found in known if found is None and file.location.exists())
    before = {file.sha256 for row in folder.listed for file in folder.read(row).files}
    files: list[StoredFile] = []
    with ProgressBar("backup", quiet=wanted.quiet) as bar:
        bar.step(f"copying to {folder.path}")

        def told(copied: int) -> None:
            bar.update(copied, total, unit="bytes")
            source.keep()

        pace = Pace(wanted.bytes_per_second, time.monotonic, time.sleep, told)
        for file, found in known:
            copied = found or _copy_one(file, source, folder, pace)
            if copied is not None:
                files.append(copied)
    number = folder.listed[-1].number + 1 if folder.listed else 1
    backup = Backup(number, source.taken_ms, source.store, files)
    # Had the broker stopped meanwhile, its next start might have changed the files.
    source.confirm()
    removed = folder.add(backup, wanted.keep)
    folder.remove_unused()
    new = [file for file in files if file.sha256 not in before]
    return BackupTaken(backup, new, [row.number for row in removed])


def _copy_one(file: SourceFile, source: Source, folder: BackupFolder, pace: Pace) -> StoredFile | None:
    """Copies one file into the folder and returns the copy; None for a missing index, which the broker
    rebuilds at its next start.
    """
    segment_id = segment_id_of(file.path.rpartition("/")[2])
    try:
        opened = file.location.open("rb")
    except FileNotFoundError:
        if file.path.endswith(".index"):
            return None
        raise
    with opened:
        if segment_id is not None and source.shared:
            _hold(opened, segment_id, source.store)
        return store_copy(folder, opened, file.path, file.bytes, pace, sealed=file.sealed)


def _hold(file: BinaryIO, segment_id: int, store: str) -> None:
    """Takes a shared lock on a segment's file, which prevents the broker from reusing it for another segment.

    :raises BackupRefused: the broker has already reused the file
    """
    name = segment_name(segment_id)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BackupRefused(f"{name} is being reused for another segment; run the command again") from None
    header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES))
    file.seek(0)
    if header is None or header.segment_id != segment_id or header.store_id.hex() != store:
        raise BackupRefused(f"{name} no longer contains the segment of the snapshot; run the command again")
