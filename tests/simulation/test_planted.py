"""The seeds of ``make test`` find realistic bugs; else that they find none would say nothing."""

from __future__ import annotations

import pytest

from simulation.planted import PLANTED
from simulation.scenario import Scenario
from simulation.test_seeds import DEFAULT_SEEDS


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_bug_is_found(name: str) -> None:
    with PLANTED[name]():
        for seed in range(DEFAULT_SEEDS):
            try:
                Scenario(seed).run()
            except BaseException as error:
                if isinstance(error, TypeError | AttributeError | NameError):
                    raise
                print(f"{name}: found at seed {seed}: {error!r}"[:500])
                return
    pytest.fail(f"{name}: not found by {DEFAULT_SEEDS} seeds")
