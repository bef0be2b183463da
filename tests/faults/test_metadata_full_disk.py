"""Metadata on a disk without room: what cannot be written is refused, the process lives, nothing is lost."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from simulated_io import ProcessStopped, SimulatedDisk, Simulation, simulated_io

from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataUnavailable

T = TypeVar("T")
PATH = "metadata/metadata.sqlite"
QUOTA = 64 << 20


class Life:
    def __init__(self, disk: SimulatedDisk, reserve_bytes: int = 0) -> None:
        self.disk = disk
        self.simulation: Simulation = simulated_io(1, disk)
        self.store = self.run(
            EmbeddedMetadataStore.open_store(self.simulation.io, PATH, reserve_bytes=reserve_bytes)
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.simulation.loop.run_until(coroutine)

    def killed(self) -> SimulatedDisk:
        self.simulation.abandon()
        self.disk.power_lost = None
        return self.disk.killed()


def fill_up(disk: SimulatedDisk) -> None:
    """Somebody else takes what is left."""
    disk.quota -= disk.free_bytes()


def put_until_refused(life: Life) -> list[str]:
    """The paths of the nodes that were put."""
    paths: list[str] = []
    for number in range(5000):
        path = f"/node-{number:04}"
        try:
            life.run(life.store.put(path, bytes(3000)))
        except MetadataUnavailable:
            return paths
        paths.append(path)
    pytest.fail("the disk never got full")


def test_what_has_no_room_is_refused_and_the_process_lives() -> None:
    life = Life(SimulatedDisk(1, QUOTA))
    fill_up(life.disk)
    paths = put_until_refused(life)
    assert life.run(life.store.children("/")) == [path[1:] for path in paths]
    with pytest.raises(MetadataUnavailable, match=r"no space for the metadata .*No space left on device"):
        life.run(life.store.put("/large", bytes(100_000)))
    assert not life.simulation.stop_messages
    life.disk.quota = QUOTA
    life.run(life.store.put("/room-again", b""))
    found = Life(life.killed())
    assert found.run(found.store.children("/")) == [*(path[1:] for path in paths), "room-again"]


@pytest.mark.parametrize("power", [False, True])
def test_a_refused_change_does_not_come_back_after_a_crash(power: bool) -> None:
    """SQLite may have written all of it before the device had no room for the end of the sector."""
    accepted = refused = 0
    for room in range(0, 60_000, 256):
        life = Life(SimulatedDisk(room, QUOTA))
        life.run(life.store.put("/before", b""))
        fill_up(life.disk)
        life.disk.quota += room
        path = "/accepted"
        try:
            life.run(life.store.put(path, bytes(5000)))
            accepted += 1
        except MetadataUnavailable:
            path = ""
            refused += 1
        disk = life.killed().power_cut() if power else life.killed()
        disk.quota = QUOTA
        there = Life(disk)
        assert there.run(there.store.children("/")) == [*(["accepted"] if path else []), "before"], room
        there.killed()
    assert accepted
    assert refused


def test_a_refused_pairing_does_not_come_back_after_a_crash() -> None:
    found = set()
    for room in range(0, 20_000, 256):
        life = Life(SimulatedDisk(room, QUOTA))
        fill_up(life.disk)
        life.disk.quota += room
        before, paired = life.store.progress.ledger_store, bytes(range(16))
        try:
            life.run(life.store.pair_with(paired, lambda: 7))
        except MetadataUnavailable:
            paired = before
        disk = life.killed()
        disk.quota = QUOTA
        there = Life(disk)
        assert there.store.progress.ledger_store == paired, room
        there.killed()
        found.add(paired == before)
    assert found == {True, False}


def test_a_reserve_that_cannot_be_opened_is_filled_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    life = Life(SimulatedDisk(1, QUOTA), reserve_bytes=1 << 20)
    reserve = life.store._reserve
    fill_up(life.disk)
    life.run(life.store.put("/full", b""))
    assert not reserve.whole
    life.disk.quota = QUOTA
    with monkeypatch.context() as patched:
        patched.setattr(life.disk, "open", refuse)
        life.run(life.store.put("/without-files", b""))
        assert not reserve.whole
    life.run(life.store.put("/with-files", b""))
    assert reserve.whole
    assert not life.simulation.stop_messages
    found = Life(life.killed())
    assert found.run(found.store.children("/")) == ["full", "with-files", "without-files"]


def test_the_reserve_has_room_for_it_after_a_kill_too() -> None:
    life = Life(SimulatedDisk(1, QUOTA), reserve_bytes=1 << 20)
    fill_up(life.disk)
    for number in range(20):
        life.run(life.store.put(f"/node-{number:02}", bytes(3000)))
    disk = life.killed()
    disk.quota -= disk.free_bytes()
    life = Life(disk, reserve_bytes=1 << 20)
    names = life.run(life.store.children("/"))
    assert names == [f"node-{number:02}" for number in range(20)]
    for name in names:
        life.run(life.store.delete(f"/{name}"))
    assert life.run(life.store.children("/")) == []
    assert not life.simulation.stop_messages


def test_metadata_that_a_quota_refuses_are_written_in_the_reserve() -> None:
    life = Life(SimulatedDisk(1, QUOTA), reserve_bytes=1 << 20)
    reserve = life.store._reserve
    assert reserve.whole
    life.disk.allowance = QUOTA - life.disk.free_bytes()
    for number in range(20):
        life.run(life.store.put(f"/node-{number:02}", bytes(3000)))
    assert not reserve.whole
    large = [life.store.put(f"/large-{number}", bytes(1_000_000)) for number in range(3)]
    for put in large[:-1]:
        with contextlib.suppress(MetadataUnavailable):
            life.run(put)
    with pytest.raises(MetadataUnavailable, match="no space for the metadata"):
        life.run(large[-1])
    assert not life.simulation.stop_messages
    life.disk.allowance = None
    life.run(life.store.put("/room-again", b""))
    assert reserve.whole
    names = life.run(life.store.children("/"))
    found = Life(life.killed(), reserve_bytes=1 << 20)
    assert found.run(found.store.children("/")) == names


def test_a_device_that_fails_still_ends_the_process() -> None:
    life = Life(SimulatedDisk(1, QUOTA), reserve_bytes=1 << 20)
    life.disk.fail("write", PATH, code=errno.EIO)
    with pytest.raises(ProcessStopped, match=r"Input/output error.*the process stops"):
        life.run(life.store.put("/node", b""))
