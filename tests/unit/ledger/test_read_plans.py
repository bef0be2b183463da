"""Read plans of the embedded store, simulated: files stay as they are while a plan holds them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from ledger_stores import MINIATURE, Listener, append
from simulated_io import SimulatedDisk, Simulation, simulated_io

from magnetar.invariants import BrokenInvariant
from magnetar.io.waiting import sleep
from magnetar.ledger.embedded.reader import EntriesDamaged, SegmentReader, entries_of_part
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import (
    LedgerWriter,
    NoSuchReadPlan,
    PlannedRange,
    Quorums,
    ReadPlan,
    TooManyReadPlans,
)

ENTRIES = 1500


def _entry(number: int) -> bytes:
    return b"%06d" % number * 50


async def _open(simulation: Simulation, settings: EmbeddedSettings = MINIATURE) -> EmbeddedLedgerStore:
    return await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", settings)


async def _create(store: EmbeddedLedgerStore) -> tuple[LedgerWriter, Listener]:
    writer = await store.create(Quorums(), {})
    listener = Listener()
    writer.set_listener(listener)
    return writer, listener


async def _filled(store: EmbeddedLedgerStore) -> LedgerWriter:
    """A ledger with ``ENTRIES`` entries, in several segments."""
    writer, listener = await _create(store)
    for number in range(ENTRIES):
        append(writer, _entry(number))
        if number % 20 == 0:
            await listener.reached(number)
    await writer.close()
    return writer


def _read(disk: SimulatedDisk, part: PlannedRange) -> list[bytes]:
    """As a reader in another process reads it."""
    segment, index = disk.open(part.segment_file, write=False), disk.open(part.index_file, write=False)
    assert segment.lock(exclusive=False)
    reader = SegmentReader(segment.read, segment.size(), part.segment_id)
    assert reader.header() is not None
    entries = entries_of_part(reader, index.read, part.ledger_id, part.first_entry_id, part.last_entry_id)
    assert entries is not None
    found = dict(entries)
    assert list(found) == list(range(part.first_entry_id, part.last_entry_id + 1))
    segment.close()
    return list(found.values())


def _check(disk: SimulatedDisk, plan: ReadPlan) -> int:
    """Reads all of a plan; the number of entries."""
    total = 0
    for part in plan.ranges:
        numbers = range(part.first_entry_id, part.last_entry_id + 1)
        assert _read(disk, part) == [_entry(number) for number in numbers]
        total += len(numbers)
    return total


def test_a_plan_names_what_is_sealed_and_nothing_beyond_what_was_asked() -> None:
    simulation = simulated_io(3)

    async def scenario() -> None:
        store = await _open(simulation)
        writer = await _filled(store)
        plan = store.read_plans.make([(writer.ledger_id, 100, 899)], 60)
        spans = [(part.first_entry_id, part.last_entry_id) for part in plan.ranges]
        assert spans[0][0] == 100
        assert spans[-1][1] == 899
        assert all(before[1] + 1 == after[0] for before, after in pairwise(spans))
        assert _check(simulation.disk, plan) == 800
        everything = store.read_plans.make([(writer.ledger_id, 0, ENTRIES - 1)], 60)
        assert 800 < _check(simulation.disk, everything) < ENTRIES
        assert not store.read_plans.make([(writer.ledger_id + 1, 0, 10)], 60).ranges
        await store.close()

    simulation.loop.run_until(scenario())


def test_damage_is_found_by_readers_too() -> None:
    simulation = simulated_io(7)

    async def scenario() -> None:
        store = await _open(simulation)
        writer = await _filled(store)
        part = store.read_plans.make([(writer.ledger_id, 0, ENTRIES - 1)], 60).ranges[0]
        file = simulation.disk.open(part.segment_file)
        file.write(b"x", file.size() // 2)
        with pytest.raises(EntriesDamaged, match=f"of ledger {writer.ledger_id} are damaged"):
            _read(simulation.disk, part)
        file = simulation.disk.open(part.index_file)
        file.write(b"xxxx", 8)
        reader = SegmentReader(file.read, file.size(), part.segment_id)
        assert entries_of_part(reader, file.read, part.ledger_id, 0, part.last_entry_id) is None
        await store.close()

    simulation.loop.run_until(scenario())


def test_files_stay_while_everything_is_deleted_compacted_and_recycled() -> None:
    simulation = simulated_io(4)

    async def scenario() -> None:
        store = await _open(simulation)
        writer = await _filled(store)
        plan = store.read_plans.make([(writer.ledger_id, 0, ENTRIES - 1)], 10_000)
        planned = sum(part.last_entry_id - part.first_entry_id + 1 for part in plan.ranges)
        await store.delete(writer.ledger_id)
        # More ledgers are written and deleted than ten times what the plan holds.
        for _ in range(10):
            await store.delete((await _filled(store)).ledger_id)
            assert _check(simulation.disk, plan) == planned
        await store.close()

    simulation.loop.run_until(scenario())


@pytest.mark.parametrize("how", ["expires", "is released"])
def test_space_comes_back_when_a_plan(how: str) -> None:
    simulation = simulated_io(5)

    async def scenario() -> None:
        store = await _open(simulation)
        writer = await _filled(store)
        plan = store.read_plans.make([(writer.ledger_id, 0, ENTRIES - 1)], 100)
        files = {part.segment_file for part in plan.ranges}
        await store.delete(writer.ledger_id)
        await _sleep(simulation, 50)
        assert all(simulation.disk.exists(name) for name in files)
        if how == "expires":
            store.read_plans.prolong(plan.plan_id, 200)
            await _sleep(simulation, 150)
            assert all(simulation.disk.exists(name) for name in files)
            await _sleep(simulation, 60)
        else:
            store.read_plans.release(plan.plan_id)
            store.read_plans.release(plan.plan_id)
            await _sleep(simulation, 10)
        assert not any(simulation.disk.exists(name) for name in files)
        with pytest.raises(NoSuchReadPlan):
            store.read_plans.prolong(plan.plan_id, 10)
        await store.close()

    simulation.loop.run_until(scenario())


def test_plans_have_a_bound_and_end_with_the_store() -> None:
    simulation = simulated_io(6)

    async def scenario() -> None:
        store = await _open(simulation, replace(MINIATURE, read_plans=2))
        writer = await _filled(store)
        plans = [store.read_plans.make([(writer.ledger_id, 0, 99)], 100) for _ in range(2)]
        with pytest.raises(TooManyReadPlans, match="2 read plans"):
            store.read_plans.make([(writer.ledger_id, 0, 99)], 100)
        store.read_plans.release(plans[0].plan_id)
        store.read_plans.make([(writer.ledger_id, 0, 99)], 100)
        await store.delete(writer.ledger_id)
        await store.close()
        # Nobody holds anything in the next life.
        store = await _open(simulation, MINIATURE)
        await _sleep(simulation, 5)
        assert not any(simulation.disk.exists(part.segment_file) for part in plans[1].ranges)
        await store.close()

    simulation.loop.run_until(scenario())


async def _sleep(simulation: Simulation, seconds: float) -> None:
    passed = simulation.loop.create_future()
    simulation.loop.call_later(seconds, passed.set_result, None)
    await passed


@pytest.mark.plants
def test_the_release_of_a_plan_whose_segments_were_not_kept_fails() -> None:
    simulation = simulated_io(8)

    async def scenario() -> None:
        store = await _open(simulation)
        writer = await _filled(store)
        plan = store.read_plans.make([(writer.ledger_id, 0, ENTRIES - 1)], 60)
        await sleep(simulation.io.loop, 10.0)
        for segment_id in {part.segment_id for part in plan.ranges}:
            store._reads.unpin(segment_id)
        with pytest.raises(BrokenInvariant, match=r"pins of segment .*: expected at least 0, found -1"):
            store.read_plans.release(plan.plan_id)
        await store.close()

    simulation.loop.run_until(scenario())
