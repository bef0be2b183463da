"""``magnetar backup`` and ``magnetar restore``: killed at each step, on a full disk, with damaged files."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
import signal
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_workload import MINIATURE

from magnetar.cli.magnetar import _parser
from magnetar.cli.other_commands import OTHERS
from magnetar.io.real import real_io
from magnetar.ledger.interface import LedgerError, LedgerWriter, Quorums
from magnetar.metadata.interface import Node
from magnetar.metadata.progress import NodeRange
from magnetar.server import backup_folder
from magnetar.server.backup_folder import Pace
from magnetar.server.embedded_stores import EmbeddedStores, StoresDisagree

State = tuple[dict[str, bytes], dict[int, int]]
"""The nodes of the metadata, and the number of entries of each ledger."""


_PARSER = _parser()
_ENTRIES = 20


class _Listener:
    def __init__(self, last: int) -> None:
        self.durable = asyncio.Event()
        self._last = last

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        if last_entry_id == self._last:
            self.durable.set()

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        raise AssertionError(f"not stored: {reason}")


async def _fill(stores: EmbeddedStores, what: str) -> None:
    for number in range(20):
        await stores.metadata.put(f"/kept/{what}-{number}", what.encode() * number)
    for _ in range(2):
        writer: LedgerWriter = await stores.ledgers.create(Quorums(), {"component": b"test"})
        listener = _Listener(_ENTRIES - 1)
        writer.set_listener(listener)
        for _ in range(_ENTRIES):
            entry = what.encode() * 100
            writer.append(entry, array("q", (0,)), array("q", (len(entry),)), 0, 1)
        await listener.durable.wait()


def in_stores(data_dir: Path, work: Callable[[EmbeddedStores], Any], *, kill: bool = False) -> Any:
    """Opens the stores of a data directory; with ``kill``, in a process that ends without closing them."""

    async def run() -> Any:
        io = real_io(asyncio.get_running_loop(), data_dir)
        stores = EmbeddedStores(io, MINIATURE)
        try:
            await stores.open()
            found = await work(stores)
            if kill:
                os._exit(0)
            return found
        finally:
            await stores.close()

    if not kill:
        return asyncio.run(run())
    assert in_child(lambda: asyncio.run(run())) == 0
    return None


def in_child(work: Callable[[], Any]) -> int:
    """Runs it in a copy of this process; returns its exit code, or less than 0 after a signal."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def state_of(data_dir: Path, folder: Path) -> State:
    """Of a copy: to open it changes it."""

    async def read(stores: EmbeddedStores) -> State:
        parts: list[NodeRange] = []
        while not parts or parts[-1].upto:
            await stores.metadata.read_part(parts[-1].upto if parts else "", parts.append)
        nodes = {node.path: node.value for part in parts for node in part.edits if isinstance(node, Node)}
        entries = {}
        for known in stores.ledgers.ledgers_of(b"test"):
            reader = await stores.ledgers.open(known.ledger_id, recover=True)
            found = 0
            while found <= reader.metadata.last_entry_id:
                runs = await reader.read(found, reader.metadata.last_entry_id, 1 << 20)
                found += sum(run.count for run in runs)
            entries[known.ledger_id] = found
        return nodes, entries

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(data_dir, folder)
    found: State = in_stores(folder, read)
    return found


class World:
    """The data of a broker, a folder with one backup of what it had before, and one of all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.target = folder / "data", folder / "target"
        in_stores(self.data, lambda stores: _fill(stores, "first"))
        assert self.run("backup", self.target, "--data-dir", self.data) == 0
        self.first = state_of(self.data, folder / "copy")
        in_stores(self.data, lambda stores: _fill(stores, "second"), kill=True)
        assert list((self.data / "metadata").glob("*-wal")), "nothing is left for a start to do"
        self.second = state_of(self.data, folder / "copy")
        assert self.first != self.second

    def run(self, command: str, *arguments: str | Path) -> int:
        parsed = _PARSER.parse_args([command, *map(str, arguments), "--quiet", "--bytes-per-second", "0"])
        return OTHERS[command](parsed)

    def copied(self) -> Path:
        """A copy of the folder with one backup."""
        copy = self.folder / "target-copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.target, copy)
        return copy

    def state_of_backup(self, target: Path, number: int) -> State:
        restored = self.folder / "restored"
        shutil.rmtree(restored, ignore_errors=True)
        assert self.run("restore", target, "--data-dir", restored, "--backup", str(number)) == 0
        return state_of(restored, self.folder / "copy")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("backup"))


def steps(work: Callable[[], int], folder: Path, act: Callable[[], object]) -> Iterator[int]:
    """Runs the work in a child again and again, and acts at its n-th step in a folder, until it has no more.

    A step is a file that is opened to be written, renamed, removed, or longer by a piece. Yields how the
    child ended.
    """
    events = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")

    def run(step: int) -> int:
        left = step

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                act()

        def look(event: str, given: tuple[Any, ...]) -> None:
            reads = event == "open" and not given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if event in events and not reads and str(given[0]).startswith(str(folder)):
                count()

        took = Pace.took

        def counted(pace: Pace, bytes_: int) -> None:
            count()
            took(pace, bytes_)

        Pace.took = counted  # type: ignore[method-assign]
        sys.addaudithook(look)
        code = work()
        return 77 if left > 0 else code

    step = 0
    while True:
        step += 1
        ended = in_child(lambda step=step: run(step))  # type: ignore[misc]
        if ended == 77:
            assert step > 15, f"there were only {step} steps"
            return
        yield ended


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_backup_is_killed_at_each_step(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    target, complete = world.copied(), 0
    for number, ended in enumerate(
        steps(lambda: world.run("backup", target, "--data-dir", world.data, "--keep", "1"), target, kill)
    ):
        assert ended == -signal.SIGKILL
        listed = [
            row["number"]
            for row in json.loads((target / "backups.json").read_text().split("\n")[0])["backups"]
        ]
        assert listed in ([1], [2]), "neither backup is there"
        assert world.run("verify-backup", target) == 0, capsys.readouterr().err
        if listed == [2]:
            complete += 1
            assert world.state_of_backup(target, 2) == world.second
        if number % 3:
            world.copied()
            continue
        # What it left does not hinder the next one.
        assert world.run("backup", target, "--data-dir", world.data, "--keep", "9") == 0
        if number % 9 == 0:
            assert listed == [2] or world.state_of_backup(target, 1) == world.first
            assert world.state_of_backup(target, listed[-1] + 1) == world.second
        capsys.readouterr()
        assert world.run("verify-backup", target) == 0
        assert "belongs to no backup" not in capsys.readouterr().out
        world.copied()
    assert complete, "it was never killed after its last step"


def test_the_first_backup_is_killed_at_each_step(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    target = world.folder / "new-target"
    for number, ended in enumerate(
        steps(lambda: world.run("backup", target, "--data-dir", world.data), target, kill)
    ):
        assert ended == -signal.SIGKILL
        capsys.readouterr()
        if world.run("verify-backup", target) != 0:
            told = capsys.readouterr().err
            assert (
                "its backups are: none" in told
                or "does not exist; give a folder" in told
                or "backups.json is missing" in told
            )
        if number % 3 == 0:
            assert world.run("backup", target, "--data-dir", world.data) == 0, capsys.readouterr().err
            assert world.run("verify-backup", target) == 0
        shutil.rmtree(target, ignore_errors=True)


def test_a_restore_is_killed_at_each_step(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    target, data = world.copied(), world.folder / "restore" / "data"
    assert world.run("backup", target, "--data-dir", world.data) == 0
    refused = 0
    for number, ended in enumerate(
        steps(lambda: world.run("restore", target, "--data-dir", data), data, kill)
    ):
        assert ended == -signal.SIGKILL
        if (data / "restoring").exists():
            refused += 1
            with pytest.raises(StoresDisagree, match="restoring exists: a restore into this directory"):
                in_stores(data, lambda stores: _fill(stores, "new"))
            assert world.run("backup", target, "--data-dir", data) == 1
            assert world.run("restore", target, "--data-dir", data) == 0, capsys.readouterr().err
        elif not (data / "ledgers").exists():
            assert not data.exists() or not list(data.iterdir())
            assert world.run("restore", target, "--data-dir", data) == 0
        if number % 5 == 0 or not refused:
            assert state_of(data, world.folder / "copy") == world.second
        assert sorted(path.name for path in data.iterdir()) == ["ledgers", "metadata"]
        capsys.readouterr()
        assert world.run("restore", target, "--data-dir", data) == 1
        assert (
            "is not empty: it contains ledgers. Restore into a new or empty folder" in capsys.readouterr().err
        )
        shutil.rmtree(data)
    assert refused > 10


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_disk_that_is_full_at_any_step(
    world: World, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, data = world.copied(), world.folder / "full" / "data"
    written = 0

    class Full:
        """A file on a disk that has room for a number of writes."""

        def __init__(self, path: Path) -> None:
            self._file = opened(path)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_error: object) -> None:
            self._file.close()

        def write(self, data: bytes) -> None:
            nonlocal written
            written += 1
            if written > room:
                full()
            self._file.write(data)

        def flush(self) -> None:
            self._file.flush()

        def fileno(self) -> int:
            return self._file.fileno()

    opened = backup_folder._new
    monkeypatch.setattr(backup_folder, "_new", Full)
    room = 0
    while True:
        written = 0
        if command == "backup":
            ended = world.run("backup", target, "--data-dir", world.data)
        else:
            ended = world.run("restore", target, "--data-dir", data)
        if ended == 0:
            break
        assert "No space left on device" in capsys.readouterr().err
        assert world.run("verify-backup", target) == 0
        assert "belongs to no backup" not in capsys.readouterr().out or command == "backup"
        assert not list(target.rglob("*.part"))
        assert not data.exists() or not list(data.iterdir())
        room += 1
    assert room > 5
    assert world.run("verify-backup", target) == 0


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
}


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_to_each_file_is_refused_by_name(
    world: World, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target, data = world.copied(), world.folder / "damaged" / "data"
    assert world.run("backup", target, "--data-dir", world.data) == 0
    used = {
        file["path"].rpartition("/")[2] + "." + file["sha256"][:16]
        for file in json.loads((target / "backup-2.json").read_text())["files"]
    }
    paths = [path for path in sorted(target.rglob("*")) if path.is_file() and path.name != "LOCK"]
    assert len(paths) > 8
    for path in paths:
        whole = path.read_bytes()
        DAMAGE[what](path)
        capsys.readouterr()
        assert world.run("verify-backup", target) == 1
        assert str(path) in capsys.readouterr().err
        if path.name in used or path.name in ("backups.json", "backup-2.json"):
            assert world.run("restore", target, "--data-dir", data) == 1
            assert str(path) in capsys.readouterr().err
            assert not data.exists() or not list(data.iterdir())
        path.write_bytes(whole)
    assert world.run("verify-backup", target) == 0


def test_a_file_that_was_removed_is_copied_again(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    target = world.copied()
    assert world.run("backup", target, "--data-dir", world.data) == 0
    sealed = [
        file["path"].rpartition("/")[2] + "." + file["sha256"][:16]
        for file in json.loads((target / "backup-2.json").read_text())["files"]
        if file["sealed"] and file["path"].endswith(".log")
    ]
    for name in sealed:
        (target / "files" / name).unlink()
    assert sealed
    assert world.run("verify-backup", target) == 1
    assert f"{target}/files/{sealed[0]} is missing" in capsys.readouterr().err
    assert world.run("backup", target, "--data-dir", world.data) == 0
    assert world.run("verify-backup", target) == 0
    assert world.state_of_backup(target, 2) == world.second


def test_a_restored_broker_goes_on_with_the_same_folder(world: World) -> None:
    """Its segments have ids that other segments had in a later backup."""
    target, data = world.copied(), world.folder / "goes-on"
    other = world.folder / "other"
    for folder in (data, other):
        assert world.run("restore", target, "--data-dir", folder, "--backup", "1") == 0
    in_stores(other, lambda stores: _fill(stores, "other"))
    in_stores(data, lambda stores: _fill(stores, "third"))
    states = {2: state_of(other, world.folder / "copy"), 3: state_of(data, world.folder / "copy")}
    assert states[2] != states[3]
    assert world.run("backup", target, "--data-dir", other) == 0
    assert world.run("backup", target, "--data-dir", data) == 0
    manifests = {number: json.loads((target / f"backup-{number}.json").read_text()) for number in (2, 3)}
    second, third = (
        {file["path"]: file["sha256"] for file in manifests[number]["files"] if file["sealed"]}
        for number in (2, 3)
    )
    assert any(second[path] != third[path] for path in second.keys() & third.keys()), "no id came twice"
    assert world.run("verify-backup", target) == 0
    for number, state in states.items():
        assert world.state_of_backup(target, number) == state
    for folder in (data, other):
        shutil.rmtree(folder)


def test_a_newer_format_is_refused_by_name(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    target = world.copied()
    content = json.loads((target / "backups.json").read_text().split("\n")[0])
    line = json.dumps({**content, "format": 2, "writer": "magnetar 9.9"}).encode() + b"\n"
    (target / "backups.json").write_bytes(line + f"sha256 {hashlib.sha256(line).hexdigest()}\n".encode())
    for command in (
        ("backup", target, "--data-dir", world.data),
        ("verify-backup", target),
        ("restore", target, "--data-dir", world.folder / "newer"),
    ):
        assert world.run(*command) == 1
        told = capsys.readouterr().err
        assert f"{target} has format 2, written by magnetar 9.9; this release" in told
        assert "knows formats up to 1" in told
