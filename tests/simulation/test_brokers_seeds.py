"""Many seeds of several brokers: nothing that has a receipt is lost, and every topic has one owner."""

from __future__ import annotations

import pytest

from simulation.brokers.deletions import Deletions
from simulation.brokers.planted import PLANTED, PLANTED_IN_DELETIONS, PLANTED_IN_RECREATIONS
from simulation.brokers.recreations import Recreations
from simulation.brokers.scenario import Scenario
from simulation.seeds import one_by_one, one_finds, seeds
from simulation.trace import Violation

DEFAULT_SEEDS = 32
_GROUPS = 4
_FOUND_LATE = {"takes its own change for another's": 8, "outlives its session": 14}
"""Where to begin with bugs that earlier seeds do not show; it moves whenever scenarios change."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
"""Processes that were killed say no goodbye, whatever their coroutines would do when they are collected."""


@pytest.mark.parametrize("group", range(_GROUPS))
def test_brokers_come_and_go(group: int) -> None:
    stored = moved = 0
    for seed in one_by_one(seeds(DEFAULT_SEEDS)[group::_GROUPS]):
        scenario = Scenario(seed)
        try:
            world = scenario.run()
        except BaseException as error:
            told = "\n".join(scenario.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --brokers --seed {seed} --trace): {error!r}"
            ) from error
        stored += sum(len(topic.stored) for topic in world.topics)
        moved += sum(len(brokers) - 1 for brokers in scenario.owners.served.values())
    if seeds(DEFAULT_SEEDS)[group::_GROUPS]:
        assert stored
        assert moved


def test_a_seed_is_one_run() -> None:
    digests = set()
    for _ in range(2):
        scenario = Scenario(7)
        scenario.run()
        digests.add((scenario.world.trace.steps, scenario.world.trace.digest()))
    assert len(digests) == 1


@pytest.mark.parametrize("group", range(_GROUPS))
def test_what_is_used_is_not_deleted_and_what_is_not_is(group: int) -> None:
    for seed in one_by_one(seeds(DEFAULT_SEEDS)[group::_GROUPS]):
        story = Deletions(seed)
        try:
            story.run()
        except BaseException as error:
            told = "\n".join(story.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --deletions --seed {seed} --trace): {error!r}"
            ) from error
        assert story.refused
        assert story.deleted


@pytest.mark.parametrize("name", list(PLANTED_IN_DELETIONS))
def test_a_bug_planted_into_deletions_is_found(name: str) -> None:
    with PLANTED_IN_DELETIONS[name]():
        one_finds(name, range(DEFAULT_SEEDS), lambda seed: Deletions(seed).run(), Violation)


@pytest.mark.parametrize("group", range(_GROUPS))
def test_a_former_owner_writes_nothing_to_a_topic_that_was_created_again(group: int) -> None:
    for seed in one_by_one(seeds(DEFAULT_SEEDS)[group::_GROUPS]):
        story = Recreations(seed)
        try:
            story.run()
        except BaseException as error:
            told = "\n".join(story.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --recreations --seed {seed} --trace): {error!r}"
            ) from error
        assert story.slept


@pytest.mark.parametrize("name", list(PLANTED_IN_RECREATIONS))
def test_a_bug_planted_into_recreations_is_found(name: str) -> None:
    with PLANTED_IN_RECREATIONS[name]():
        one_finds(name, range(DEFAULT_SEEDS), lambda seed: Recreations(seed).run(), Violation)


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_bug_is_found(name: str) -> None:
    first = _FOUND_LATE.get(name, 0)
    with PLANTED[name]():
        one_finds(name, range(first, first + DEFAULT_SEEDS), lambda seed: Scenario(seed).run())
