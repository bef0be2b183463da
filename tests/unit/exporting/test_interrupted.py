"""An export that is cut short: nothing is served twice or in part, and the next run goes on."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from exporting_world import World, contents, populate, served
from test_export import same

from magnetar.io.simulated import PowerLost, SimulatedDisk
from magnetar.managed_ledger.exports import ROOT

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
