"""Damaged bytes are named, never skipped; torn tails are cut; failing disks stop the process."""

from __future__ import annotations

import errno
import re

import pytest
from ledger_life import Life, append, copy_of
from simulated_io import ProcessStopped, SimulatedDisk

from magnetar.ledger.embedded.reader import SegmentReader
from magnetar.ledger.interface import DataDamaged, LedgerClosed, LedgerWriter, StoreFull


def _entries(name: str, count: int) -> list[bytes]:
    return [f"{name} {number} ".encode() * (number % 7 + 1) for number in range(count)]


def _filled(settle: float) -> tuple[SimulatedDisk, dict[int, list[bytes]], str, int]:
    """A killed store with two ledgers, its segment of the log and where the log ends."""
    life = Life()
    wanted = {}
    writers = [life.create(), life.create()]
    for writer in writers:
        wanted[writer.ledger_id] = _entries(f"ledger {writer.ledger_id}", 12)
    for first in range(0, 12, 3):
        for writer in writers:
            append(writer, *wanted[writer.ledger_id][first : first + 3])
        life.loop.run_for(0.005)
    life.loop.run_for(settle)
    assert all(life.acknowledged(writer) == 11 for writer in writers)
    segment = life.store._log.segment
    return life.killed(), wanted, segment.file.path, segment.end


def _groups(disk: SimulatedDisk, path: str) -> list[tuple[int, int, set[int]]]:
    """Offset, end and ledgers of each group of a segment."""
    file = disk.open(path)
    reader = SegmentReader(file.read, file.size(), int(path[-20:-4], 16))
    found, offset = [], 4096
    while (group := reader.group_at(offset)) is not None:
        found.append((offset, group.end, {run.ledger_id for run in group.runs}))
        offset = group.end
    return found


def test_every_flipped_bit_of_acknowledged_groups_stops_the_start_and_is_named() -> None:
    disk, wanted, path, end = _filled(settle=1.0)
    groups = _groups(disk, path)
    assert groups[-1][2] == set(), "an idle log ends with an empty group"
    assert groups[-1][1] == end
    for number, (offset, after, ledgers) in enumerate(groups[:-1]):
        for position in range(offset, after, 3 if after - offset < 300 else 17):
            damaged = copy_of(disk)
            damaged.bit_flip(path, position, position % 8)
            with pytest.raises(DataDamaged) as raised:
                Life(damaged)
            message = str(raised.value)
            assert message.startswith(f"{path} at offset {offset}: "), (number, position, message)
            named = {int(name) for name in re.findall(r"\d+", message.partition("ledgers: ")[2])}
            assert named & ledgers, (position, message)
            assert named <= wanted.keys() or position < offset + 300


def test_a_flipped_bit_in_the_confirming_group_loses_nothing() -> None:
    disk, wanted, path, end = _filled(settle=1.0)
    disk.bit_flip(path, end - 5)
    life = Life(disk)
    assert {ledger_id: life.entries(ledger_id) for ledger_id in wanted} == wanted


def test_a_flipped_header_of_the_logs_segment_is_damage() -> None:
    disk, _, path, _ = _filled(settle=1.0)
    disk.bit_flip(path, 20)
    with pytest.raises(DataDamaged, match=re.escape(path)):
        Life(disk)


def test_a_missing_sealed_segment_is_damage() -> None:
    disk, wanted, _, _ = _filled(settle=1.0)
    disk = Life(disk).stopped()
    (path,) = [f"ledgers/{name}" for name in disk.names("ledgers") if name.endswith(".log")]
    disk.unlink(path)
    with pytest.raises(DataDamaged) as raised:
        Life(disk)
    ledgers = ", ".join(map(str, sorted(wanted)))
    assert str(raised.value) == (
        f"{path} is missing, with entries of the ledgers {ledgers}; restore the data directory from a backup"
    )


def test_a_torn_tail_is_cut() -> None:
    """Groups that were never acknowledged are damaged: the log ends before them."""
    for position in range(0, 400, 13):
        life = Life()
        writer = life.create()
        append(writer, b"first", b"second")
        life.loop.run_for(0.005)
        assert life.acknowledged(writer) == 1
        end = life.store._log.segment.end
        path = life.store._log.segment.file.path
        append(writer, bytes(200), bytes(200))
        life.loop.run_for(0.005)
        assert life.store._log.segment.end > end
        disk = life.killed()
        disk.bit_flip(path, end + position)
        again = Life(disk)
        assert again.entries(writer.ledger_id) == [b"first", b"second"]


def _message_or_entries(life: Life, ledger_id: int, entries: list[bytes]) -> str:
    """What reading the ledger complains of; if nothing, the entries are right."""
    try:
        found = life.entries(ledger_id)
    except DataDamaged as damage:
        return str(damage)
    assert found == entries
    return ""


def test_damage_in_sealed_segments_is_named_when_it_is_read() -> None:
    disk, wanted, path, _ = _filled(settle=1.0)
    disk = Life(disk).stopped()
    (path,) = [f"ledgers/{name}" for name in disk.names("ledgers") if name.endswith(".log")]
    groups = _groups(disk, path)
    damaged_reads = 0
    for position in range(groups[0][0] + 130, groups[-1][1], 11):
        damaged = copy_of(disk)
        damaged.bit_flip(path, position)
        life = Life(damaged)
        for ledger_id, entries in wanted.items():
            message = _message_or_entries(life, ledger_id, entries)
            if message:
                begin = rf"{re.escape(path)} at offset \d+: entries .* of ledger {ledger_id} "
                assert re.match(begin, message)
                damaged_reads += 1
    assert damaged_reads > 20


def test_a_damaged_or_missing_index_is_made_again_from_the_segment() -> None:
    disk, wanted, _, _ = _filled(settle=1.0)
    disk = Life(disk).stopped()
    (path,) = [f"ledgers/{name}" for name in disk.names("ledgers") if name.endswith(".index")]
    file = disk.open(path)
    size = file.size()
    for position in [*range(0, size, 5), None]:
        damaged = copy_of(disk)
        if position is None:
            damaged.unlink(path)
        else:
            damaged.bit_flip(path, position)
        life = Life(damaged)
        assert {ledger_id: life.entries(ledger_id) for ledger_id in wanted} == wanted


@pytest.mark.parametrize("kind", ["create", "write"])
def test_a_missing_index_is_read_from_the_segment_on_a_full_disk_too(kind: str) -> None:
    disk, wanted, _, _ = _filled(settle=1.0)
    disk = Life(disk).stopped()
    (path,) = [f"ledgers/{name}" for name in disk.names("ledgers") if name.endswith(".index")]
    disk.unlink(path)
    life = Life(disk)
    for _ in wanted:
        life.disk.fail(kind, path, code=errno.ENOSPC)
    assert {ledger_id: life.entries(ledger_id) for ledger_id in wanted} == wanted
    life = Life(life.killed())
    assert {ledger_id: life.entries(ledger_id) for ledger_id in wanted} == wanted


def test_a_damaged_checkpoint_stops_the_start() -> None:
    disk, _, _, _ = _filled(settle=1.0)
    disk = Life(disk).stopped()
    for position in range(0, disk.open("ledgers/checkpoint").size(), 3):
        damaged = copy_of(disk)
        damaged.bit_flip("ledgers/checkpoint", position)
        with pytest.raises(DataDamaged, match="ledgers/checkpoint"):
            Life(damaged)


def _numbered(number: int) -> bytes:
    return b"%d" % number * 200


def _fill(life: Life, writers: list[LedgerWriter]) -> None:
    """Appends until something happens."""
    for number in range(1000):
        for writer in writers:
            append(writer, _numbered(number))
            life.loop.run_for(0.002)


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("part", ["segment-", ".log", ".index", "checkpoint"])
def test_a_failing_disk_stops_the_process_and_loses_nothing(kind: str, part: str) -> None:
    for after in range(0, 30, 3):
        life = Life(seed=after)
        writers = [life.create() for _ in range(2)]
        life.disk.fail(kind, part, after)
        with pytest.raises(ProcessStopped, match="Input/output error"):
            _fill(life, writers)
        for disk in (copy_of_dead(life), life.disk.power_cut()):
            again = Life(disk, seed=after)
            for writer in writers:
                found = again.entries(writer.ledger_id)
                assert len(found) > life.acknowledged(writer)
                assert found == [_numbered(number) for number in range(len(found))]


def copy_of_dead(life: Life) -> SimulatedDisk:
    """The disk of a process that has stopped itself."""
    life.simulation.abandon()
    life.disk.power_lost = None
    return copy_of(life.disk).killed()


def test_a_full_disk_without_a_reserve_refuses_and_loses_nothing() -> None:
    for quota in range(70_000, 200_000, 10_000):
        life = Life(SimulatedDisk(quota, quota=quota))
        writer = life.create()
        with pytest.raises(LedgerClosed, match="are free on the disk of the ledgers"):
            _fill(life, [writer])
        failed = life.listeners[writer.ledger_id].failed
        assert failed is not None
        assert isinstance(failed[1], StoreFull)
        assert failed[0] == life.acknowledged(writer) + 1
        life.loop.run_for(60.0)
        assert not life.simulation.stop_messages
        life.store.check()
        disk = life.killed()
        disk.quota = 1 << 30
        found = Life(disk).entries(writer.ledger_id)
        assert len(found) > life.acknowledged(writer)
        assert found == [_numbered(number) for number in range(len(found))]


def test_too_little_room_at_the_start_is_said() -> None:
    with pytest.raises(OSError, match=r"reserve|No space") as raised:
        Life(SimulatedDisk(1, quota=2000))
    assert raised.value.errno in (None, errno.ENOSPC)


@pytest.mark.parametrize("settle", [0.0, 1.0])
@pytest.mark.parametrize("what", ["removed", "emptied", "cut short", "an earlier copy"])
def test_the_end_of_the_log_does_not_go_missing_unnoticed(what: str, settle: float) -> None:
    """The log ends in one file, and no later group says how far it had come."""
    life = Life()
    writer = life.create()
    append(writer, b"first", b"second")
    life.loop.run_for(2.0)
    path = life.store._log.segment.file.path
    file = life.disk.open(path)
    early = file.read(file.size(), 0)
    for _ in range(20):
        append(writer, b"later")
        life.loop.run_for(0.2)
    life.loop.run_for(settle)
    assert life.acknowledged(writer) == 21
    assert life.store._log.segment.file.path == path
    disk = life.killed()
    if what == "removed":
        disk.unlink(path)
    else:
        file = disk.open(path)
        file.truncate({"emptied": 0, "cut short": 5000}.get(what, file.size()))
        if what == "an earlier copy":
            file.write(early, 0)
        file.sync()
    with pytest.raises(DataDamaged, match=re.escape(path)):
        Life(disk)
