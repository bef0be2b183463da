"""A disk with room for so much: entries are refused, what makes room is written, and nothing is lost."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

import pytest
from ledger_life import Life, append, copy_of
from ledger_workload import MINIATURE
from simulated_io import PowerLost, SimulatedDisk

from magnetar.ledger.interface import LedgerWriter, Quorums, StoreFull
from magnetar.managed_ledger.single_entry import CursorLedger

KIB = 1 << 10
SETTINGS = replace(MINIATURE, reserve_bytes=64 * KIB, entry_free_bytes=64 * KIB)
QUOTAS = range(1100 * KIB, 1500 * KIB, 83 * KIB)
"""At least sixteen times the reserve: more of a disk it does not take."""


def life_on(disk: SimulatedDisk) -> Life:
    return Life(disk, settings=SETTINGS)


def entry(number: int) -> bytes:
    return (b"%d-" % number) * 60


def cursor_writer(life: Life) -> LedgerWriter:
    """Of a ledger whose entries may use the reserve."""
    writer = life.run(life.store.create(Quorums(), {}, high_priority=True))
    life.listeners[writer.ledger_id] = listener = type(life.listeners[1])()
    writer.set_listener(listener)
    return writer


def fill(life: Life, writer: LedgerWriter) -> int:
    """Appends until entries are refused; how many were appended."""
    listener = life.listeners[writer.ledger_id]
    for number in range(20_000):
        append(writer, entry(number))
        life.loop.run_until(_pause(life, 0.002))
        if listener.failed is not None:
            assert isinstance(listener.failed[1], StoreFull), listener.failed
            return number + 1
    pytest.fail("the disk never got full")


async def _pause(life: Life, seconds: float) -> None:
    waiter = life.loop.create_future()
    life.loop.call_later(seconds, waiter.set_result, None)
    await waiter


def fill_up(life: Life) -> None:
    """Somebody else takes what is left."""
    life.disk.quota -= life.disk.free_bytes()


def full(quota: int) -> tuple[Life, LedgerWriter]:
    """A store without room for entries, on a disk without a free byte."""
    life = life_on(SimulatedDisk(quota, quota=quota))
    writer = life.create()
    fill(life, writer)
    life.run(_pause(life, 1.0))
    fill_up(life)
    return life, writer


@pytest.mark.parametrize("quota", QUOTAS)
def test_entries_are_refused_and_ledgers_change_all_the_same(quota: int) -> None:
    life, writer = full(quota)
    told: list[str] = []
    life.store.listen_for_shortage(told.append)
    assert "are free on the disk" in life.store.shortage
    cursor = cursor_writer(life)
    for number in range(60):
        append(cursor, entry(number))
        life.run(_pause(life, 0.002))
    assert life.acknowledged(cursor) == 59
    assert life.entries(writer.ledger_id) == [entry(n) for n in range(life.acknowledged(writer) + 1)]
    other = life.create()
    append(other, entry(0))
    life.run(_pause(life, 1.0))
    life.run(life.store.delete(writer.ledger_id))
    life.run(_pause(life, 5.0))
    assert told[-1] == ""
    again = life.create()
    for number in range(300):
        append(again, entry(number))
        life.run(_pause(life, 0.002))
    assert life.acknowledged(again) == 299
    assert life.entries(cursor.ledger_id) == [entry(n) for n in range(60)]
    assert not life.simulation.stop_messages
    life.stopped()


@pytest.mark.parametrize("quota", QUOTAS)
def test_a_kill_on_a_full_disk_loses_nothing(quota: int) -> None:
    life, writer = full(quota)
    acknowledged = life.acknowledged(writer)
    for _ in range(4):
        life = life_on(life.killed())
        fill_up(life)
        found = life.entries(writer.ledger_id)
        assert len(found) > acknowledged
        assert found == [entry(n) for n in range(len(found))]
    life = life_on(life.stopped())
    assert life.entries(writer.ledger_id) == found
    life.run(life.store.delete(writer.ledger_id))
    life.run(_pause(life, 5.0))
    again = life.create()
    append(again, entry(0))
    life.run(_pause(life, 1.0))
    assert life.acknowledged(again) == 0


def test_power_cuts_while_a_full_disk_is_opened() -> None:
    life, writer = full(1200 * KIB)
    acknowledged = life.acknowledged(writer)
    found = life.killed()
    operation = 0
    while True:
        operation += 1
        disk = copy_of(found)
        disk.cut_power_at(operation)
        try:
            opened = life_on(disk)
        except PowerLost:
            entries = life_on(disk.power_cut()).entries(writer.ledger_id)
        else:
            disk.cut_power_at(1 << 40)
            break
        assert len(entries) > acknowledged
        assert entries == [entry(n) for n in range(len(entries))]
    assert operation > 10
    assert len(opened.entries(writer.ledger_id)) > acknowledged


def test_what_was_accepted_is_stored_or_refused() -> None:
    for quota in QUOTAS:
        life = life_on(SimulatedDisk(quota, quota=quota))
        writer = life.create()
        listener = life.listeners[writer.ledger_id]
        for number in range(0, 20_000, 40):
            append(writer, *(entry(number + n) for n in range(40)))
            life.run(_pause(life, 0.0005))
            if number == 800:
                fill_up(life)
            if listener.failed is not None:
                break
        life.run(_pause(life, 5.0))
        assert listener.failed is not None
        assert listener.failed[0] == listener.last + 1
        assert not life.simulation.stop_messages
        found = life_on(life.killed()).entries(writer.ledger_id)
        assert len(found) >= listener.last + 1


def test_a_reserve_that_is_used_up_fails_what_is_written_and_not_the_process() -> None:
    for quota in QUOTAS:
        life, writer = full(quota)
        cursor = cursor_writer(life)
        listener = life.listeners[cursor.ledger_id]
        for number in range(5_000):
            if listener.failed is not None:
                break
            append(cursor, entry(number))
            life.run(_pause(life, 0.002))
        assert listener.failed is not None
        assert isinstance(listener.failed[1], StoreFull)
        assert listener.failed[0] == listener.last + 1
        with pytest.raises(StoreFull):
            cursor_writer(life)
        life.store.check()
        # Whatever is asked, what is there is read, and goes when it is deleted.
        for _ in range(300):
            with contextlib.suppress(StoreFull):
                life.run(life.store.open(writer.ledger_id, recover=True))
        assert life.entries_there(cursor.ledger_id)[: listener.last + 1] == [
            entry(n) for n in range(listener.last + 1)
        ]
        life.run(life.store.delete(cursor.ledger_id))
        life.run(life.store.delete(writer.ledger_id))
        life.run(_pause(life, 5.0))
        life.store.hurry(True)
        life.run(_pause(life, 120.0))
        again = cursor_writer(life)
        append(again, entry(0))
        life.run(_pause(life, 1.0))
        assert life.acknowledged(again) == 0
        assert not life.simulation.stop_messages
        life.store.check()
        life = life_on(life.killed())
        assert life.entries(again.ledger_id) == [entry(0)]


def test_states_of_a_cursor_before_the_newest_take_no_room() -> None:
    life, _writer = full(1200 * KIB)
    failed: list[CursorLedger] = []
    made = life.run(life.store.create(Quorums(), {}, high_priority=True))
    cursor = CursorLedger(life.loop, made, 0, failed.append)
    for number in range(3_000):
        life.run(cursor.append_durably(entry(number)))
    assert not failed
    assert not life.simulation.stop_messages
    life.store.check()
    life = life_on(life.killed())
    reader = life.run(life.store.open(made.ledger_id, recover=True))
    assert life.run(reader.last_add_confirmed()) == 2_999
    runs = life.run(reader.read(2_999, 2_999, 1))
    assert runs[0].entry(0) == entry(2_999)


@pytest.mark.parametrize("name", [".index", "checkpoint"])
def test_files_of_the_store_that_have_no_room_are_written_later(name: str) -> None:
    life = life_on(SimulatedDisk(1, quota=QUOTAS[-1]))
    writer = life.create()
    life.disk.fail("write", name, code=errno.ENOSPC)
    for number in range(600):
        append(writer, entry(number))
        life.run(_pause(life, 0.002))
    life.run(life.store.delete(life.create().ledger_id))
    life.store.check()
    life.run(_pause(life, 20.0))
    life.store.check()
    assert life.store.space().segments > 0
    assert not life.simulation.stop_messages
    life = life_on(life.killed())
    assert life.entries(writer.ledger_id) == [entry(n) for n in range(600)]


def test_another_failure_still_stops_the_process() -> None:
    life, _writer = full(1200 * KIB)
    cursor = cursor_writer(life)
    life.disk.fail("write", "ledgers/")
    append(cursor, entry(0))
    with pytest.raises(BaseException, match="the process stops"):
        life.run(_pause(life, 5.0))
    assert life.simulation.stop_messages


@pytest.mark.parametrize("allowance", range(1000 * KIB, 1400 * KIB, 83 * KIB))
def test_the_reserve_serves_when_a_quota_is_used_up_that_the_device_does_not_show(allowance: int) -> None:
    disk = SimulatedDisk(allowance, quota=64 << 20)
    disk.allowance = allowance
    life = life_on(disk)
    writer = life.create()
    fill(life, writer)
    life.run(_pause(life, 1.0))
    disk.allowance = disk.quota - disk.free_bytes()
    cursor = cursor_writer(life)
    for number in range(60):
        append(cursor, entry(number))
        life.run(_pause(life, 0.002))
    assert life.acknowledged(cursor) == 59
    assert disk.size_of("ledgers/reserve") < SETTINGS.reserve_bytes
    life.run(life.store.delete(writer.ledger_id))
    life.run(_pause(life, 5.0))
    assert not life.store.shortage
    again = life.create()
    append(again, entry(0))
    life.run(_pause(life, 1.0))
    assert life.acknowledged(again) == 0
    assert not life.simulation.stop_messages
    life.stopped()


@pytest.mark.parametrize("file", [".index", "checkpoint"])
def test_an_index_and_a_checkpoint_over_a_quota_are_written_in_the_reserve(file: str) -> None:
    disk = SimulatedDisk(1, quota=64 << 20)
    life = life_on(disk)
    writer = life.create()
    append(writer, entry(0))
    life.run(_pause(life, 0.1))
    held = disk.size_of("ledgers/reserve")
    disk.fail("write", file, code=errno.EDQUOT)
    for number in range(1, 2000):
        append(writer, entry(number))
        life.run(_pause(life, 0.002))
        if disk.size_of("ledgers/reserve") < held:
            break
    else:
        pytest.fail(f"the reserve gave nothing to {file}")
    life.run(_pause(life, 1.0))
    assert not life.simulation.stop_messages
    life.stopped()
