"""What lives long is set aside, and what was left in cycles goes in the end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from simulated_io import simulated_io

from magnetar.io.wheel import TimerWheel
from magnetar.server.serving import Collector


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def make(broker: Any) -> tuple[Collector, Any]:
    simulation = simulated_io(1)
    wheel = TimerWheel(simulation.io.loop)
    return Collector(simulation.io, wheel, broker), simulation


def test_what_came_is_set_aside_and_what_went_is_found() -> None:
    connections = SimpleNamespace(created=0, closed_count=0)
    topics = SimpleNamespace(topic_loads=SimpleNamespace(count=0), loaded={})
    broker = SimpleNamespace(topics=topics, connections=connections)
    collector, simulation = make(broker)
    collector.start()
    lives = Cycle()
    known = weakref.ref(lives)
    connections.created = 10
    simulation.loop.run_for(2)
    frozen = gc.get_freeze_count()
    connections.created = 600
    simulation.loop.run_for(2)
    assert gc.get_freeze_count() > frozen
    del lives
    gc.collect()
    assert known() is not None, "it was set aside"
    connections.closed_count = 10_000
    simulation.loop.run_for(2)
    assert known() is None
    assert "collector" in simulation.io.slices.longest()
    collector.stop()
    frozen = gc.get_freeze_count()
    connections.created = 10_000
    simulation.loop.run_for(5)
    assert gc.get_freeze_count() == frozen


def test_topics_that_were_unloaded_lead_to_no_long_look() -> None:
    connections = SimpleNamespace(created=0, closed_count=0)
    loads = SimpleNamespace(count=0)
    topics = SimpleNamespace(topic_loads=loads, loaded={})
    broker = SimpleNamespace(topics=topics, connections=connections)
    collector, simulation = make(broker)
    collector.start()
    loads.count = 90_000
    simulation.loop.run_for(2)
    assert "collector" not in simulation.io.slices.longest()
    loads.count = 100_000
    simulation.loop.run_for(2)
    assert "collector" in simulation.io.slices.longest()
    collector.stop()
