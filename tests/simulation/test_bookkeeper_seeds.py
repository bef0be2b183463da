"""Many seeds of ledgers on bookies: what was acknowledged stays, and all who recover a ledger agree."""

from __future__ import annotations

import pytest

from simulation.bookkeeper.planted import PLANTED
from simulation.bookkeeper.scenario import Scenario
from simulation.seeds import one_by_one, one_finds, seeds

DEFAULT_SEEDS = 100
_PLANTED_SEEDS = 200
_GROUPS = 8
_FOUND_LATE = {
    "fenced too few": 301,
    "trusts one empty answer": 10,
    "takes copies for damaged": 34,
    "told by a recovery that may end": 85,
}
"""Where to begin with bugs that earlier seeds hardly ever show; it moves whenever scenarios change."""

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Processes that were killed say no goodbye, whatever their coroutines would do when they are collected."""


@pytest.mark.parametrize("group", range(_GROUPS))
def test_nothing_that_was_promised_is_broken(group: int) -> None:
    acknowledged = recoveries = reads = 0
    for seed in one_by_one(seeds(DEFAULT_SEEDS)[group::_GROUPS]):
        scenario = Scenario(seed)
        try:
            world = scenario.run()
        except BaseException as error:
            told = "\n".join(scenario.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --ledgers --seed {seed} --trace): {error!r}"
            ) from error
        acknowledged += world.truth.acknowledged
        recoveries += world.truth.recoveries
        reads += world.truth.reads
    if seeds(DEFAULT_SEEDS)[group::_GROUPS]:
        assert acknowledged
        assert recoveries
        assert reads


def test_a_seed_is_one_run() -> None:
    digests = set()
    for _ in range(2):
        scenario = Scenario(7)
        scenario.run()
        digests.add((scenario.world.trace.steps, scenario.world.trace.digest()))
    assert len(digests) == 1


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_bug_is_found(name: str) -> None:
    first = _FOUND_LATE.get(name, 0)
    with PLANTED[name]():
        one_finds(name, range(first, first + _PLANTED_SEEDS), lambda seed: Scenario(seed).run())
