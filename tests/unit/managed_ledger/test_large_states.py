"""Cursors with many holes: all of them are kept, over restarts and crashes, bit by bit."""

from __future__ import annotations

from array import array
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_io import simulated_io
from world import SMALL, World, append

from magnetar.managed_ledger import records, records_pb2
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import MetadataDamaged
from magnetar.managed_ledger.hot_ranges import EntryRanges
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import LedgerSizes, decode_newest, encode_large

MANY = replace(SMALL, max_entries_per_ledger=500, read_max_entries=0, max_unacked_ranges_to_persist=20)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 1500)), max_size=12), st.integers(0, 6000))
def test_bits_say_what_ranges_say(spans: list[tuple[int, int]], below: int) -> None:
    ranges = EntryRanges()
    for start, length in spans:
        ranges.add(start, start + length)
    words = ranges.words()
    bits = b"".join(word.to_bytes(8, "little", signed=True) for word in words)
    wanted = {entry for start, end in ranges.in_order() for entry in range(start, end)}
    assert {i for i in range(8 * len(bits)) if bits[i >> 3] >> (i & 7) & 1} == wanted
    again = EntryRanges()
    again.add_words(words)
    assert list(again.in_order()) == list(ranges.in_order())
    assert again.count() == ranges.count()
    marks = bytearray([1]) * below
    ranges.clear_in(marks)
    assert {i for i in range(below) if marks[i]} == set(range(below)) - wanted


def test_bits_are_written_as_pulsar_does() -> None:
    """``BitSet.toLongArray`` by ledger: bit i of word n is entry 64 n + i."""
    state = AcknowledgedState((3, 1))
    state.add_range(3, 4, 6)
    state.add_range(3, 63, 65)
    state.add_range(7, 0, 1)
    (entry,) = entries_of(state)
    info = records_pb2.PositionInfo.FromString(entry)
    assert not info.individualDeletedMessages
    found = {each.key: list(each.values) for each in info.individualDeletedMessageRanges}
    assert found == {3: [(1 << 4 | 1 << 5 | 1 << 63) - (1 << 64), 1], 7: [1]}
    assert (info.ledgerId, info.entryId) == (3, 1)


def entries_of(state: AcknowledgedState, properties: dict[str, int] | None = None) -> list[bytes]:
    simulation = simulated_io(1)
    work = encode_large(simulation.io, state, lambda: properties or {}, 100)
    return simulation.loop.run_until(work)[0]


def newest_of(entries: list[bytes]) -> tuple[AcknowledgedState, dict[str, int]]:
    simulation = simulated_io(1)

    async def read(number: int) -> bytes:
        return entries[number]

    return simulation.loop.run_until(
        decode_newest(simulation.io, read, len(entries) - 1, "here", LedgerSizes())
    )


def scattered(seed: int) -> AcknowledgedState:
    random = Random(seed)
    state = AcknowledgedState((1, 10))
    for ledger_id in (1, 2, 5, 9):
        ids = array("q", random.sample(range(11, 2000), 900))
        state.add_each(ledger_id, ids, 0, len(ids), 2000)
    state.batches[(20, 3)] = 0b101
    return state


def same(one: AcknowledgedState, other: AcknowledgedState) -> bool:
    ranges = list(one.ranges_in_order(10**9)) == list(other.ranges_in_order(10**9))
    return ranges and one.mark_delete == other.mark_delete and one.batches == other.batches


@pytest.mark.parametrize("part_words", [1, 40, 70, 10_000])
def test_a_state_is_the_same_in_however_many_parts(part_words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_PART_WORDS", part_words)
    state = scattered(1)
    entries = entries_of(state, {"a": 7})
    assert len(entries) == {1: 4, 40: 4, 70: 2, 10_000: 1}[part_words]
    found, properties = newest_of(entries)
    assert same(found, state)
    assert properties == {"a": 7}
    found.check()


def test_of_a_state_that_was_cut_off_the_one_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_PART_WORDS", 1)
    older, newer = scattered(1), scattered(2)
    whole = entries_of(older) + entries_of(newer)
    for missing in (1, 2, 3):
        assert same(newest_of(whole[:-missing])[0], older)
    assert same(newest_of(whole)[0], newer)
    with pytest.raises(MetadataDamaged):
        newest_of(entries_of(older)[:-1])


def opened(world: World) -> tuple[ManagedLedger, Cursor]:
    ledger, _listener = world.open()
    return ledger, world.run(world.managed.open_cursor(ledger, "c", EARLIEST, {}))


def acknowledge_half(world: World, ledger: ManagedLedger, cursor: Cursor) -> set[tuple[int, int]]:
    """Every other entry, in random order, written again and again meanwhile."""
    positions = [
        (summary.ledger_id, entry_id)
        for summary in ledger.ledgers
        for entry_id in range(1, summary.entries, 2)
    ]
    Random(3).shuffle(positions)
    for start in range(0, len(positions), 100):
        part = positions[start : start + 100]
        cursor.delete_run(array("q", [p[0] for p in part]), array("q", [p[1] for p in part]), len(part))
        world.wait(0.2)
    world.run(cursor.flush())
    return set(positions)


@pytest.mark.parametrize("part_words", [1, 10_000])
@pytest.mark.parametrize("clean", [False, True])
def test_half_acknowledged_in_random_order_is_kept(
    part_words: int, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_PART_WORDS", part_words)
    world = World(settings=MANY)
    ledger, cursor = opened(world)
    for _ in range(30):
        append(ledger, 100)
    world.wait(1)
    consumed = acknowledge_half(world, ledger, cursor)
    assert cursor.state.range_count() == len(consumed) == 1500
    disk = world.stop() if clean else world.crash()
    again = World(disk, settings=MANY)
    ledger, cursor = opened(again)
    left = again.drain(cursor)
    assert len(left) == 1500
    assert not consumed & set(left)


def test_a_seek_back_while_it_is_written_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(settings=MANY)
    ledger, cursor = opened(world)
    for _ in range(10):
        append(ledger, 100)
    world.wait(1)
    acknowledge_half(world, ledger, cursor)
    assert cursor.storage is not None
    monkeypatch.setattr(records.Slice, "is_over", lambda _slice: True)
    writing = world.simulation.loop.create_task(cursor.storage._encode_all())
    passed = world.simulation.loop.create_future()
    world.simulation.loop.call_soon(passed.set_result, None)
    world.run(passed)
    assert not writing.done()
    cursor.reset(ledger.ledgers.first_at_or_after((0, 0)))
    entries: list[bytes] = world.run(_result(writing))
    state, _properties = newest_of(entries)
    assert not state.ranges


async def _result(task: Any) -> Any:
    return await task
