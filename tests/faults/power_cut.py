"""Lives of a process on one simulated disk, each ended by a power cut, a kill or a clean stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from simulated_io import PowerLost, SimulatedDisk, Simulation, simulated_io

DEFAULT_SEEDS = 200


class Workload(Protocol):
    """What runs in the lives and remembers, outside the simulated world, what was acknowledged."""

    async def begin(self, simulation: Simulation) -> None:
        """Opens what is tested and checks that nothing acknowledged in earlier lives is missing."""
        ...

    async def work(self) -> None:
        """Does things until it is interrupted."""
        ...

    async def end(self) -> None:
        """Stops cleanly."""
        ...


@dataclass(frozen=True)
class Plan:
    lives: int = 4
    most_operations: int = 1500
    """A life that loses power does so at a random change of the disk up to this one."""
    longest_life: float = 1.0
    """Virtual seconds of a life that is killed or stopped."""
    ignore_sync: str | None = None
    """Files whose syncs do nothing: part of their paths."""
    ignore_sync_directory: bool = False


def seeds() -> Iterable[int]:
    """The seeds to run: ``MAGNETAR_SEEDS`` of them from ``MAGNETAR_FIRST_SEED`` on."""
    first = int(os.environ.get("MAGNETAR_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("MAGNETAR_SEEDS", str(DEFAULT_SEEDS))))


def run_lives(seed: int, workload: Workload, plan: Plan) -> SimulatedDisk:
    """Runs all lives, and a last one that only opens and checks; returns the disk it leaves."""
    random = Random(seed)
    disk = SimulatedDisk(random.getrandbits(64))
    disk.ignore_sync = plan.ignore_sync
    disk.ignore_sync_directory = plan.ignore_sync_directory
    for _ in range(plan.lives):
        disk = _live(random, disk, workload, plan)
    simulation = simulated_io(random.getrandbits(64), disk)
    simulation.loop.run_until(workload.begin(simulation))
    simulation.loop.run_until(workload.end())
    return disk


def _live(random: Random, disk: SimulatedDisk, workload: Workload, plan: Plan) -> SimulatedDisk:
    simulation = simulated_io(random.getrandbits(64), disk)
    loop = simulation.loop
    fate = random.choice(("cut", "cut", "cut", "kill", "stop"))
    if fate == "cut":
        disk.cut_power_at(1 + int(plan.most_operations * random.random() ** 2))
    try:
        loop.run_until(workload.begin(simulation))
        working = loop.create_task(workload.work())
        if fate == "cut":
            loop.run_until(working)
        else:
            loop.run_for(random.random() * plan.longest_life)
        if fate == "stop":
            working.cancel()
            loop.run_until(workload.end())
    except PowerLost:
        return disk.power_cut()
    finally:
        simulation.abandon()
    # A kill leaves what was written to the operating system; a later cut may still take it.
    return disk.killed() if fate == "kill" else disk.power_cut()


def each_seed(run: Callable[[int], None]) -> None:
    """Runs every seed; the first that fails is named."""
    for seed in seeds():
        try:
            run(seed)
        except BaseException as error:
            raise AssertionError(
                f"seed {seed} (MAGNETAR_FIRST_SEED={seed} MAGNETAR_SEEDS=1): {error!r}"
            ) from error
