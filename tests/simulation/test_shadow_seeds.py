"""Some seeds of a topic with shadows: what the source has in the end, each shadow delivers, in order."""

from __future__ import annotations

import pytest

from simulation.brokers.planted import PLANTED_IN_SHADOWS
from simulation.brokers.shadows import ClusterShadows
from simulation.one_seed import shadows
from simulation.seeds import one_by_one, one_finds, seeds

DEFAULT_SEEDS = 12
_PLANTED_SEEDS = 12
"""So many seeds have to show a planted bug."""
_FIRST = {
    "does not announce the last entry again": 46,
    "does not announce again what a cut lost": 3,
    "drops what waits for its ledger": 49,
    "takes every ledger for known": 12,
    "leaves cursors in ledgers that are gone": 0,
    "keeps ledgers that are gone": 0,
    "ignores the end of a closed ledger": 2,
    "stays terminated": 7,
    "refuses announcements once terminated": 13,
}
"""Where to begin with planted bugs; it moves whenever the story changes."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
"""Processes that were killed say no goodbye, whatever their coroutines would do when they are collected."""


def test_shadows_have_what_their_source_has() -> None:
    delivered = 0
    for seed in one_by_one(seeds(DEFAULT_SEEDS)):
        story = shadows(seed)
        try:
            story.run()
        except BaseException as error:
            told = "\n".join(story.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --shadows --seed {seed} --trace): {error!r}"
            ) from error
        delivered += story.delivered
    assert delivered


@pytest.mark.parametrize("name", list(PLANTED_IN_SHADOWS))
def test_a_bug_planted_into_shadow_topics_is_found(name: str) -> None:
    first = _FIRST[name]
    with PLANTED_IN_SHADOWS[name]():
        one_finds(name, range(first, first + _PLANTED_SEEDS), lambda seed: ClusterShadows(seed).run())
