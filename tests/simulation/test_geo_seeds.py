"""Many seeds of clusters that replicate to each other: each has in the end what it should, in order."""

from __future__ import annotations

import pytest

from simulation.geo.planted import PLANTED
from simulation.geo.scenario import Scenario
from simulation.seeds import one_by_one, one_finds, seeds

DEFAULT_SEEDS = 50
_PLANTED_SEEDS = 100
_FOUND_LATE = {
    "moves a subscription to the end": 30,
    "forgets positions behind the snapshot": 3,
    "goes on where it was after a cut": 3,
}
"""Where to begin with bugs that earlier seeds do not show; it moves whenever scenarios change."""
_GROUPS = 4

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
"""Processes that were killed say no goodbye, whatever their coroutines would do when they are collected."""


@pytest.mark.parametrize("group", range(_GROUPS))
def test_clusters_have_the_same_messages_in_the_end(group: int) -> None:
    replicated = followed = 0
    for seed in one_by_one(seeds(DEFAULT_SEEDS)[group::_GROUPS]):
        scenario = Scenario(seed)
        try:
            scenario.run()
        except BaseException as error:
            told = "\n".join(scenario.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --geo --seed {seed} --trace): {error!r}"
            ) from error
        replicated += scenario.replicated
        followed += scenario.followed
    if seeds(DEFAULT_SEEDS)[group::_GROUPS]:
        assert replicated
        assert followed


def test_a_producer_that_is_closed_as_soon_as_it_is_connected_is_connected_again() -> None:
    """The other cluster stops in the same turn of the loop: the replicator stood still for ever."""
    Scenario(20288).run()


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_bug_planted_into_replication_is_found(name: str) -> None:
    first = _FOUND_LATE.get(name, 0)
    with PLANTED[name]():
        one_finds(name, range(first, first + _PLANTED_SEEDS), lambda seed: Scenario(seed).run())
