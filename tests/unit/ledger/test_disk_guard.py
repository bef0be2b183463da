"""The guard tells of a device that fills, in both directions, and when it will be full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from simulated_io import Simulation, simulated_io

from magnetar.ledger.embedded.disk_guard import DiskGuard, DiskGuardSettings, DiskState, DiskUse

SETTINGS = DiskGuardSettings(
    warn_share=0.8, full_share=0.9, resume_share=0.85, reserve_bytes=100, interval_seconds=10
)


def run(scenario: Callable[[Simulation, DiskGuard, list[DiskState]], Awaitable[None]], quota: int) -> None:
    simulation = simulated_io(1)
    simulation.disk.quota = quota
    worker = simulation.io.start_worker("guard")
    guard = DiskGuard(simulation.io, worker, SETTINGS)
    states: list[DiskState] = []

    def note() -> None:
        if guard.state is not (states[-1] if states else DiskState.ROOM):
            states.append(guard.state)

    guard.looked = note
    guard.start()
    simulation.loop.run_until(scenario(simulation, guard, states))
    guard.stop()


def fill(simulation: Simulation, used: int) -> None:
    file = simulation.disk.open("filler", create=True)
    file.truncate(0)
    file.write(bytes(used), 0)
    file.close()


def test_states_follow_the_use_and_full_lasts_until_the_low_mark() -> None:
    async def scenario(simulation: Simulation, guard: DiskGuard, states: list[DiskState]) -> None:
        for used in (7_900, 8_100, 8_999, 9_001, 8_600, 8_499, 100):
            fill(simulation, used)
            await asyncio.sleep(11)
        assert states == [DiskState.WARNING, DiskState.FULL, DiskState.WARNING, DiskState.ROOM]

    run(scenario, 10_000)


def test_the_reserve_counts_whatever_the_share() -> None:
    async def scenario(simulation: Simulation, guard: DiskGuard, states: list[DiskState]) -> None:
        fill(simulation, 110)
        await asyncio.sleep(11)
        assert states == [DiskState.FULL]
        assert "reserve" in guard.reason

    run(scenario, 200)


def test_the_reserve_too_must_be_clearly_free_before_it_is_over() -> None:
    async def scenario(simulation: Simulation, guard: DiskGuard, states: list[DiskState]) -> None:
        for used in (501, 497, 505, 490):
            fill(simulation, used)
            await asyncio.sleep(11)
        assert states == [DiskState.FULL]
        fill(simulation, 400)
        await asyncio.sleep(11)
        assert states == [DiskState.FULL, DiskState.ROOM]

    run(scenario, 600)


def test_a_shortage_is_told_between_two_looks_and_lasts_until_it_is_over() -> None:
    async def scenario(simulation: Simulation, guard: DiskGuard, states: list[DiskState]) -> None:
        guard.tell_shortage("no segment")
        assert states == [DiskState.FULL]
        assert guard.reason == "no segment"
        await asyncio.sleep(21)
        assert states == [DiskState.FULL]
        guard.tell_shortage("")
        assert guard.state is DiskState.ROOM

    run(scenario, 10_000)


def test_the_reason_names_the_bounds() -> None:
    async def scenario(simulation: Simulation, guard: DiskGuard, states: list[DiskState]) -> None:
        fill(simulation, 9_500)
        await asyncio.sleep(11)
        assert guard.reason == (
            "the disk of the ledgers is 95.0% full: above 90.0% (diskUsageThreshold), publishing is refused "
            "until it is below 85.0%"
        )

    run(scenario, 10_000)


def test_the_forecast_is_the_trend_of_the_last_day() -> None:
    async def scenario(simulation: Simulation, guard: DiskGuard, states: list[DiskState]) -> None:
        assert guard.seconds_until_full() is None
        for minute in range(11):
            fill(simulation, 10 * minute)
            await asyncio.sleep(60)
        # Minutes say nothing of days.
        assert guard.seconds_until_full() is None
        for minute in range(11, 66):
            fill(simulation, 10 * minute)
            await asyncio.sleep(60)
        left = guard.seconds_until_full()
        # 650 of 10,000 bytes in 66 minutes; full is 9,000.
        assert left is not None
        assert left == pytest.approx(8_350 / (650 / 3_960), rel=0.05)
        for _ in range(24 * 60):
            await asyncio.sleep(60)
        assert guard.seconds_until_full() is None

    run(scenario, 10_000)


def test_bounds_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="diskUsageWarnThreshold"):
        DiskGuardSettings(warn_share=0.96)
    with pytest.raises(ValueError, match="diskUsageLwmThreshold"):
        DiskGuardSettings(resume_share=0.99)
    assert DiskUse(0, 0).share == 1.0
