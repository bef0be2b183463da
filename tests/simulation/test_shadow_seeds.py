"""Some seeds of a topic with shadows: what the source has in the end, each shadow delivers, in order."""

from __future__ import annotations

import pytest

from simulation.geo.planted import takes_every_ledger_for_known
from simulation.geo.shadows import Shadows
from simulation.seeds import seeds

DEFAULT_SEEDS = 20

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
"""Processes that were killed say no goodbye, whatever their coroutines would do when they are collected."""


def test_shadows_have_what_their_source_has() -> None:
    delivered = 0
    for seed in seeds(DEFAULT_SEEDS):
        story = Shadows(seed)
        try:
            story.run()
        except BaseException as error:
            told = "\n".join(story.world.trace.last)
            raise AssertionError(
                f"{told}\nseed {seed} (tools/simulate --shadows --seed {seed} --trace): {error!r}"
            ) from error
        delivered += story.delivered
    assert delivered


def test_a_bug_planted_into_shadow_topics_is_found() -> None:
    with takes_every_ledger_for_known():
        for seed in range(5 * DEFAULT_SEEDS):
            try:
                Shadows(seed).run()
            except BaseException as error:
                if isinstance(error, TypeError | AttributeError | NameError):
                    raise
                print(f"found at seed {seed}: {error!r}"[:500])
                return
    pytest.fail("not found")
