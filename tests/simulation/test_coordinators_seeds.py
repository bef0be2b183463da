"""Many seeds of transactions on several brokers: one outcome each, told everywhere, and ids once."""

from __future__ import annotations

import gc

import pytest

from simulation.brokers.coordinators import Coordinated
from simulation.seeds import seeds

DEFAULT_SEEDS = 24
_GROUPS = 3

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]


@pytest.mark.parametrize("group", range(_GROUPS))
def test_transactions_have_one_outcome_whatever_fails(group: int) -> None:
    ended = begun = 0
    for seed in seeds(DEFAULT_SEEDS)[group::_GROUPS]:
        story = Coordinated(seed)
        try:
            story.run()
        except BaseException as error:
            told = "\n".join(story.world.trace.last)
            raise AssertionError(f"{told}\nseed {seed}: {error!r}") from error
        ended += story.ended
        begun += len(story.known)
        gc.collect()
    assert ended > begun / 2
