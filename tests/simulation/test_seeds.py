"""Many seeds of the whole broker, its clients and everything that can go wrong."""

from __future__ import annotations

import pytest

from simulation.scenario import Scenario
from simulation.seeds import one_by_one, seeds

DEFAULT_SEEDS = 150
_GROUPS = 12


@pytest.mark.parametrize("group", range(_GROUPS))
def test_nothing_that_was_promised_is_broken(group: int) -> None:
    deliveries = looks = lives = tiered_calls = 0
    for seed in one_by_one(seeds(DEFAULT_SEEDS)[group::_GROUPS]):
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
        tiered_calls += world.tiered.bucket.calls if world.tiered is not None else 0
    if seeds(DEFAULT_SEEDS)[group::_GROUPS]:
        assert deliveries
        assert looks
        assert lives
        assert tiered_calls
