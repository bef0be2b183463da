"""An export that is cut short: nothing is served twice or in part, and the next run goes on."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from exporting_world import World, contents, populate, served
from simulated_io import PowerLost, SimulatedDisk
from test_export import same

from magnetar.exporting.export import Export, Selection
from magnetar.exporting.stored_topics import OpenStores, Unit
from magnetar.managed_ledger.exports import ROOT, ExportState, notes

POINTS = 16
"""At which an export is cut short, spread over all changes of the disk."""


def base() -> tuple[SimulatedDisk, dict[str, Any]]:
    world = World()
    world.run(populate(world.a))
    world.unload()
    before = world.run(contents(world.a))
    world.unload()
    return world.stop(), before


@pytest.fixture(scope="module")
def full() -> tuple[SimulatedDisk, dict[str, Any], int]:
    """A disk with topics on one side, what they hold, and how many changes of it an export makes."""
    disk, before = base()
    world = World(disk.power_cut())
    operations = world.simulation.disk.operations
    world.export()
    return disk, before, world.simulation.disk.operations - operations


def one_side_each(world: World, before: dict[str, Any]) -> None:
    """Each topic is whole, on one side; one that is just being turned round may be on none."""
    world.scan()
    here, there = world.run(served(world.a)), world.run(served(world.b))
    assert not here.keys() & there.keys()
    for name, found in {**here, **there}.items():
        assert found == before[name], name
    missing = [name for name in before if name.startswith("persistent:")]
    missing = [name for name in missing if name not in here and name not in there]
    assert len({name.partition("-partition-")[0] for name in missing}) <= 1
    world.unload()


def finished(world: World, before: dict[str, Any], *, back: bool = False) -> None:
    """All is there, and nothing else."""
    target, source = (world.a, world.b) if back else (world.b, world.a)
    same(world.run(contents(target)), before)
    world.unload()
    assert world.run(served(source)) == {}
    for side in (world.a, world.b):
        assert world.run(side.metadata.children(ROOT)) == []
        assert world.leftovers(side) == []


@pytest.mark.parametrize("point", range(POINTS))
@pytest.mark.parametrize("served_between", [False, True], ids=["at-once", "served-between"])
def test_power_that_goes_at_any_moment(
    full: tuple[SimulatedDisk, dict[str, Any], int], point: int, served_between: bool
) -> None:
    disk, before, operations = full
    random = Random(point)
    world = World(disk.power_cut())
    for again in (pytest.raises(PowerLost), suppress(PowerLost)):
        world.simulation.disk.cut_power_at(1 + random.randrange(operations * (point + 1) // POINTS))
        # The second time less may be left to do.
        with again:
            world.export()
        world.simulation.abandon()
        world = World(world.simulation.disk.power_cut())
        if served_between:
            one_side_each(world, before)
    world.export()
    finished(world, before)


@pytest.mark.parametrize("seconds", [0.05 * number for number in range(1, 16)])
def test_a_process_that_is_killed_while_it_writes_to_bookies(
    full: tuple[SimulatedDisk, dict[str, Any], int], seconds: float
) -> None:
    disk, before, _ = full
    world = World(disk.power_cut(), bookies=True)
    world.begin_export(world.a, world.b)
    world.simulation.loop.run_for(seconds)
    done = world.exporting.done()
    world.simulation.abandon()
    world = World(world.simulation.disk.killed(), servers=world.servers)
    one_side_each(world, before)
    world.export()
    finished(world, before)
    assert seconds > 0.5 or not done


@pytest.mark.parametrize("seconds", [0.05 * number for number in range(1, 16)])
def test_a_process_that_is_killed_while_it_reads_from_bookies(
    full: tuple[SimulatedDisk, dict[str, Any], int], seconds: float
) -> None:
    disk, before, _ = full
    world = World(disk.power_cut(), bookies=True)
    world.export()
    world.begin_export(world.b, world.a)
    world.simulation.loop.run_for(seconds)
    world.simulation.abandon()
    world = World(world.simulation.disk.power_cut(), servers=world.servers)
    one_side_each(world, before)
    world.export(world.b, world.a)
    finished(world, before, back=True)


def states(world: World, side: OpenStores) -> set[ExportState]:
    """Of the exports that the notes of a side tell of."""
    return {note.state for note in world.run(notes(side.metadata)).values()}


def given_up(world: World) -> tuple[int, list[str]]:
    """How many topics stay, and why others do not."""
    stays: list[Unit] = []
    refused = world.run(Export(world.a, world.b).give_up(Selection(), stays.append))
    return len(stays), refused


@pytest.mark.parametrize("point", range(6))
def test_what_was_cut_short_is_given_up(full: tuple[SimulatedDisk, dict[str, Any], int], point: int) -> None:
    disk, before, operations = full
    for at in range(operations * point // 20, operations):
        world = World(disk.power_cut())
        world.simulation.disk.cut_power_at(at + 1)
        with pytest.raises(PowerLost):
            world.export()
        world.simulation.abandon()
        world = World(world.simulation.disk.power_cut())
        if states(world, world.a) or states(world, world.b) != {ExportState.INCOMING}:
            continue
        gone = set(world.run(served(world.b)))
        world.unload()
        assert given_up(world) == (1, [])
        assert world.run(world.b.metadata.children(ROOT)) == []
        assert set(world.run(served(world.b))) == gone
        here = world.run(served(world.a))
        assert here.keys() | gone == {name for name in before if name.startswith("persistent:")}
        assert world.leftovers(world.b) == []
        world.unload()
        world.export()
        finished(world, before)
        return
    raise AssertionError("no export was cut short before its topic left")


def test_a_topic_that_has_left_is_not_given_up(full: tuple[SimulatedDisk, dict[str, Any], int]) -> None:
    disk, _, operations = full
    for at in range(0, operations, 10):
        world = World(disk.power_cut())
        world.simulation.disk.cut_power_at(operations - at)
        with pytest.raises(PowerLost):
            world.export()
        world.simulation.abandon()
        world = World(world.simulation.disk.power_cut())
        if states(world, world.a) or states(world, world.b):
            count, refused = given_up(world)
            assert count == 0
            assert [sentence.rpartition(": ")[2] for sentence in refused] == [
                "its export can only be finished, not abandoned"
            ]
            return
    raise AssertionError("no export was cut short after its topic left")
