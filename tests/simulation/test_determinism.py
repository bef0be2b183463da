"""One seed is one run, whatever else differs between two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.scenario import Scenario

_SEEDS = (1, 4, 31, 82, 316)


def _digest(seed: int) -> str:
    scenario = Scenario(seed)
    scenario.run()
    return scenario.world.trace.digest()


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_seed_repeats(seed: int) -> None:
    assert _digest(seed) == _digest(seed)


def test_another_seed_is_another_run() -> None:
    assert len({_digest(seed) for seed in _SEEDS}) == len(_SEEDS)


def test_hashes_of_the_process_do_not_matter() -> None:
    """Nor where its objects lie in memory."""
    program = (
        "from simulation.scenario import Scenario\n"
        f"for seed in {_SEEDS}:\n"
        "    scenario = Scenario(seed)\n"
        "    scenario.run()\n"
        "    print(scenario.world.trace.digest())\n"
    )
    seen = set()
    for hash_seed in ("0", "1", "4711"):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(Path(__file__).parent.parent),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        seen.add(done.stdout)
    assert len(seen) == 1
    assert seen.pop().split() == [_digest(seed) for seed in _SEEDS]
