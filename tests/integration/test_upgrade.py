"""Data of every kept format open with this release; within one format also with an earlier one."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import kept_data
import pytest
from earlier_source import earlier_source, first_with
from offloaded_topics import check_read, publish, wait_until
from server import Server

from magnetar.ledger.embedded.segment_header import FORMAT_VERSION as LEDGERS
from magnetar.metadata.sqlite_nodes import FORMAT_VERSION as METADATA
from magnetar.metadata.sqlite_nodes import OFFLOADING_FORMAT as OFFLOADING
from magnetar.server.backup_folder import FORMAT as BACKUPS

FOLDER = Path(__file__).parent / "data_formats"
KEPT = sorted(FOLDER.glob("ledgers-*.tar.gz"))

each_format = pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name.partition(".")[0])


def unpacked(archive: Path, folder: Path) -> Server:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    server = Server(folder, kept_data.SETTINGS)
    server.working_folder = folder
    return server


def check(server: Server) -> None:
    """Starts it, looks for everything, and leaves it running."""
    server.start()
    client = kept_data.connected(server)
    try:
        kept_data.check(server, client)
        if (server.folder / kept_data.TIERED).exists():
            kept_data.check_offloaded(server)
    finally:
        client.shutdown()


def test_the_present_formats_are_kept() -> None:
    names = {f"ledgers-{LEDGERS}-metadata-{each}-backups-{BACKUPS}.tar.gz" for each in (METADATA, OFFLOADING)}
    assert names <= {path.name for path in KEPT}, "run tools/keep_formats.py"
    assert all(path.stat().st_size < 100_000 for path in KEPT)


@each_format
def test_data_of_this_format_open_with_everything_in_them(archive: Path, tmp_path: Path) -> None:
    server = unpacked(archive, tmp_path)
    try:
        check(server)
        server.stop()
        # What was opened and written by this release opens again.
        check(server)
    finally:
        server.close()


@each_format
def test_a_backup_of_this_format_is_restored(archive: Path, tmp_path: Path) -> None:
    server = unpacked(archive, tmp_path)
    (server.folder / "data").rename(server.folder / "lost")
    for command in (["verify-backup"], ["restore", "--data-dir", str(server.folder / "data")]):
        subprocess.run(
            [sys.executable, "-m", "magnetar", *command, str(tmp_path / "backups"), "--quiet"], check=True
        )
    try:
        check(server)
    finally:
        server.close()


def test_within_one_format_an_earlier_release_opens_the_data(tmp_path: Path) -> None:
    """The first commit with the present formats; then this one again."""
    first = first_with(f"FORMAT_VERSION = {METADATA}", "src/magnetar/metadata")
    # Without offloaded ledgers, which raise the format.
    server = unpacked(FOLDER / f"ledgers-{LEDGERS}-metadata-{METADATA}-backups-{BACKUPS}.tar.gz", tmp_path)
    try:
        check(server)
        server.stop()
        server.source = earlier_source(first, tmp_path / "earlier")
        check(server)
        server.stop()
        server.source = None
        check(server)
    finally:
        server.close()


def raise_ledgers(data: Path) -> None:
    path = data / "ledgers" / "VERSION"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "format": LEDGERS + 1, "writer": "magnetar 9.9"}))


def raise_metadata(data: Path) -> None:
    with closing(sqlite3.connect(data / "metadata" / "metadata.sqlite")) as database:
        database.execute(f"PRAGMA user_version = {OFFLOADING + 1}")
        database.commit()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (raise_ledgers, f"'ledgers' has format {LEDGERS + 1}, written by magnetar 9.9; this release"),
        (
            raise_metadata,
            f"'metadata/metadata.sqlite' has format {OFFLOADING + 1}; this release knows formats",
        ),
    ],
)
def test_a_newer_format_is_refused_by_name(change: object, told: str, tmp_path: Path) -> None:
    server = unpacked(KEPT[-1], tmp_path)
    assert callable(change)
    change(server.folder / "data")
    before = contents(server.folder / "data")
    assert told in refused_start(tmp_path)
    if change is raise_ledgers:
        assert contents(server.folder / "data") == before, "a refused start changed the data"


def refused_start(folder: Path, source: Path | None = None) -> str:
    """What a start with the data in a folder says; it must fail.

    :param source: the folder with the package that runs; None: the one of the tests
    """
    ports = ["--binary-port", "0", "--http-port", "0"]
    command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", "data", *ports]
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source)}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    return ended.stderr


def test_a_release_without_tiered_storage_refuses_data_with_offloaded_ledgers(tmp_path: Path) -> None:
    settings: dict[str, int | str] = {
        "managedLedgerMaxEntriesPerLedger": 50,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemURI": f"file://{tmp_path}/tiered",
        "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0,
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
        "brokerDeleteInactiveTopicsEnabled": "false",
    }
    server = Server(tmp_path, settings)
    try:
        server.start()
        publish(server, "persistent://public/default/offloaded", 60, 10)
        wait_until(server, "persistent://public/default/offloaded", 1)
        server.stop()
        first = first_with(f"FORMAT_VERSION = {METADATA}", "src/magnetar/metadata")
        told = refused_start(tmp_path, earlier_source(first, tmp_path / "earlier"))
        assert f"has format {OFFLOADING}; this release knows formats up to {METADATA}" in told
        server.start()
        check_read(server, "persistent://public/default/offloaded", 60, 10)
    finally:
        server.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
