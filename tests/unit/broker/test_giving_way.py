"""Compaction rests while somebody publishes."""

from __future__ import annotations

import pytest
from simulated_io import simulated_io

from magnetar.broker.compaction.elsewhere import GivingWay


class World:
    def __init__(self) -> None:
        self.simulation = simulated_io(1)
        self.published = 7
        io = self.simulation.io
        self.way = GivingWay(io.loop, io.clock, lambda: self.published)

    def step(self, seconds: float, published: int = 0) -> float:
        """Works for so long, while so much is published; how long it rests then."""
        loop = self.simulation.loop
        loop.run_for(seconds)
        self.published += published
        began = self.simulation.io.clock.monotonic()
        loop.run_until(self.way.rest())
        return self.simulation.io.clock.monotonic() - began


def test_there_is_no_rest_while_nobody_publishes() -> None:
    world = World()
    assert [world.step(0.05) for _ in range(10)] == [0.0] * 10


def test_it_rests_three_times_as_long_as_it_worked() -> None:
    world = World()
    assert [world.step(0.01, 1) for _ in range(5)] == pytest.approx([0.03] * 5)
    # Not after a long step, though: somebody waits for the compaction, too.
    assert world.step(3, 1) == pytest.approx(0.25)


def test_it_goes_on_without_rest_soon_after_the_last_publish() -> None:
    world = World()
    assert world.step(0.01, 1) == pytest.approx(0.03)
    rests = [world.step(0.01) for _ in range(20)]
    assert rests[0] == pytest.approx(0.03)
    assert rests[5:] == [0.0] * 15
