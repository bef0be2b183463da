"""The folder with backups, and the pace of copying."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest

from magnetar.server.backup_folder import (
    Backup,
    BackupFolder,
    BackupRefused,
    Pace,
    StoredFile,
    locked,
    store_copy,
)
from magnetar.server.restore import RestoreRequest, restore_backup


class Clock:
    """Time that passes only while something sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def pace(self, bytes_per_second: int) -> Pace:
        return Pace(bytes_per_second, lambda: self.now, self.sleep)


def stored(folder: BackupFolder, path: str, data: bytes) -> StoredFile:
    source = io.BytesIO(data)
    return store_copy(folder, source, path, len(data), Clock().pace(0), sealed=True)


def added(folder: BackupFolder, number: int, files: list[StoredFile], keep: int = 9) -> list[int]:
    return [row.number for row in folder.add(Backup(number, 1000 * number, "5e", files), keep)]


@pytest.mark.parametrize("limit", [1000, 50_000, 10_000_000])
def test_the_pace_is_even(limit: int) -> None:
    clock = Clock()
    pace = clock.pace(limit)
    begin = clock.now
    while pace.copied < 3 * limit:
        before = clock.now
        pace.took(pace.piece_bytes)
        assert clock.now - before == pytest.approx(pace.piece_bytes / limit)
        assert pace.piece_bytes <= 1 << 20
        assert pace.piece_bytes <= max(4096, limit // 5)
    assert pace.copied / (clock.now - begin) == pytest.approx(limit)


def test_the_time_that_a_piece_takes_counts() -> None:
    clock = Clock()
    pace = clock.pace(50_000)
    begin = clock.now
    for _ in range(100):
        clock.now += 0.5 * pace.piece_bytes / 50_000
        pace.took(pace.piece_bytes)
    assert pace.copied / (clock.now - begin) == pytest.approx(50_000)
    # After a pause the speed is at most for a moment above the limit.
    clock.now += 1000
    begin, before = clock.now, pace.copied
    while clock.now - begin < 1:
        pace.took(pace.piece_bytes)
    assert pace.copied - before <= 1.5 * 50_000


def test_without_a_limit_nothing_waits() -> None:
    clock = Clock()
    pace = clock.pace(0)
    pace.took(1 << 40)
    assert clock.now == 100.0


def test_a_file_of_several_backups_is_stored_once(tmp_path: Path) -> None:
    folder = BackupFolder.create(tmp_path / "b")
    same, other = stored(folder, "ledgers/a", b"same"), stored(folder, "ledgers/b", b"first")
    added(folder, 1, [same, other])
    again, new = stored(folder, "ledgers/a", b"same"), stored(folder, "ledgers/b", b"second")
    assert again == same
    added(folder, 2, [again, new])
    names = sorted(path.name for path in (tmp_path / "b" / "files").iterdir())
    assert names == sorted(file.name for file in (same, other, new))
    read = BackupFolder(tmp_path / "b")
    assert [row.number for row in read.listed] == [1, 2]
    assert [file.bytes for file in read.read(read.listed[1]).files] == [4, 6]
    assert read.store == "5e"


def test_old_backups_go_with_what_only_they_have(tmp_path: Path) -> None:
    folder = BackupFolder.create(tmp_path / "b")
    same = stored(folder, "ledgers/a", b"same")
    for number in range(1, 5):
        own = stored(folder, "ledgers/b", b"%d" % number)
        gone = added(folder, number, [same, own], keep=2)
        folder.remove_unused()
        assert gone == ([number - 2] if number > 2 else [])
    assert [row.number for row in BackupFolder(tmp_path / "b").listed] == [3, 4]
    assert len(list((tmp_path / "b" / "files").iterdir())) == 3
    assert sorted(path.name for path in (tmp_path / "b").glob("backup-*")) == [
        "backup-3.json",
        "backup-4.json",
    ]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    folder = BackupFolder.create(tmp_path)
    added(folder, 1, [stored(folder, "ledgers/a", b"a")])
    for name in ("notes.txt", "files/half.part", "backup-7.json", "backups.json.part"):
        (tmp_path / name).write_bytes(b"x")
    assert len(folder.unused()) == 4
    folder.remove_unused()
    assert folder.unused() == [tmp_path / "notes.txt"]


def test_a_new_file_system_counts_as_empty(tmp_path: Path) -> None:
    for name in ("backups", "data"):
        (tmp_path / name / "lost+found").mkdir(parents=True)
    folder = BackupFolder.create(tmp_path / "backups")
    added(folder, 1, [stored(folder, "ledgers/a", b"a")])
    assert folder.unused() == []
    with pytest.raises(BackupRefused, match="backup 1 cannot be used"):
        restore_backup(
            RestoreRequest(tmp_path / "backups", tmp_path / "data", None, 0, dry_run=False, quiet=True)
        )
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["lost+found"]


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="does not exist; give a folder with backups"):
        BackupFolder(tmp_path / "none")
    (tmp_path / "photo.jpg").write_bytes(b"")
    with pytest.raises(BackupRefused, match=r"it has photo.jpg but no backups.json"):
        BackupFolder.create(tmp_path)
    with pytest.raises(BackupRefused, match=r"backups.json is missing"):
        BackupFolder(tmp_path)


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(BackupRefused, match="is in use by another"), locked(tmp_path):
        raise AssertionError("both had the lock")
    with locked(tmp_path):
        assert (tmp_path / "LOCK").exists()


@pytest.mark.parametrize("written", [0, -1, "1", None])
def test_a_format_that_no_release_writes_is_refused(tmp_path: Path, written: object) -> None:
    BackupFolder.create(tmp_path)
    content = json.loads((tmp_path / "backups.json").read_text().split("\n")[0])
    line = json.dumps({**content, "format": written}).encode() + b"\n"
    (tmp_path / "backups.json").write_bytes(line + f"sha256 {hashlib.sha256(line).hexdigest()}\n".encode())
    with pytest.raises(BackupRefused, match=f"has the unknown format {written!r}"):
        BackupFolder(tmp_path)


def test_a_manifest_of_another_backup_is_refused(tmp_path: Path) -> None:
    folder = BackupFolder.create(tmp_path)
    added(folder, 1, [stored(folder, "ledgers/a", b"a")])
    added(folder, 2, [stored(folder, "ledgers/a", b"b")])
    (tmp_path / "backup-2.json").write_bytes((tmp_path / "backup-1.json").read_bytes())
    with pytest.raises(BackupRefused, match=r"its checksum differs from the checksum in backups\.json"):
        folder.read(folder.listed[1])


def test_a_source_that_is_too_short_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    folder = BackupFolder.create(tmp_path / "b")
    (tmp_path / "short").write_bytes(b"12345")
    with (
        (tmp_path / "short").open("rb") as source,
        pytest.raises(BackupRefused, match="has 5 bytes, fewer than the expected 9"),
    ):
        store_copy(folder, source, "ledgers/short", 9, Clock().pace(0), sealed=False)
    assert list((tmp_path / "b" / "files").iterdir()) == []


def test_a_restore_into_something_else_is_refused(tmp_path: Path) -> None:
    folder = BackupFolder.create(tmp_path / "b")

    def restore(data_dir: Path, number: int | None = None) -> None:
        restore_backup(RestoreRequest(tmp_path / "b", data_dir, number, 0, dry_run=False, quiet=True))

    with pytest.raises(BackupRefused, match="does not contain a backup; its backups are: none"):
        restore(tmp_path / "new")
    added(folder, 1, [stored(folder, "ledgers/a", b"a")])
    with pytest.raises(BackupRefused, match="does not contain backup 4; its backups are: 1"):
        restore(tmp_path / "new", 4)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BackupRefused, match="file is not a folder"):
        restore(tmp_path / "file")
    (tmp_path / "used" / "ledgers").mkdir(parents=True)
    with pytest.raises(BackupRefused, match="is not empty: it contains ledgers"):
        restore(tmp_path / "used")
    # It has neither checkpoint nor metadata.
    with pytest.raises(BackupRefused, match="backup 1 cannot be used"):
        restore(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
