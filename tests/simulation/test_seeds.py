"""Many seeds of the whole broker, its clients and everything that can go wrong."""

from __future__ import annotations

import gc
import os

import pytest

from simulation.scenario import Scenario

DEFAULT_SEEDS = 300
_GROUPS = 12


def seeds() -> range:
    """``MAGNETAR_SIMULATED_SEEDS`` of them, from ``MAGNETAR_FIRST_SEED`` on."""
    first = int(os.environ.get("MAGNETAR_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("MAGNETAR_SIMULATED_SEEDS", str(DEFAULT_SEEDS))))


@pytest.mark.parametrize("group", range(_GROUPS))
def test_nothing_that_was_promised_is_broken(group: int) -> None:
    deliveries = looks = lives = 0
    for seed in seeds()[group::_GROUPS]:
        scenario = Scenario(seed)
        try:
            world = scenario.run()
        except BaseException as error:
            told = "\n".join(scenario.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --seed {seed} --trace): {error!r}"
            ) from error
        deliveries += sum(topic.deliveries for topic in world.model.topics.values())
        looks += world.invariants.looks
        lives += world.broker.lives
        if seed // _GROUPS % 8 == 0:
            # Worlds are large, and full of circles: the collector does not come as often as they do.
            gc.collect()
    if seeds()[group::_GROUPS]:
        assert deliveries
        assert looks
        assert lives
