"""One seed is one run, whatever else differs between two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.scenario import Scenario

_SEEDS = (1, 4, 31, 82, 316)
_TESTS = Path(__file__).parent.parent


def _digest(seed: int) -> str:
    scenario = Scenario(seed)
    scenario.run()
    return scenario.world.trace.digest()


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_seed_repeats(seed: int) -> None:
    assert _digest(seed) == _digest(seed)


def test_another_seed_is_another_run() -> None:
    assert len({_digest(seed) for seed in _SEEDS}) == len(_SEEDS)


_STORIES = {
    "broker": _SEEDS,
    "brokers": (0, 1, 5, 11),
    "deletions": (0, 3),
    "recreations": (0,),
    "ledgers": (0, 1),
    "geo": (0, 1, 3),
    "shadows": (0, 1),
}
"""Which seeds of which stories are run in several processes."""


@pytest.mark.parametrize("story", list(_STORIES))
def test_hashes_of_the_process_do_not_matter(story: str) -> None:
    """Nor do the addresses of its objects in memory."""
    program = (
        "from simulation.one_seed import one\n"
        f"for seed in {_STORIES[story]}:\n"
        f"    _seed, digest, wrong, _seconds = one({story!r}, seed)\n"
        "    assert not wrong, (seed, wrong)\n"
        "    print(seed, digest)\n"
    )
    seen = set()
    for hash_seed in ("0", "1", "4711"):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(map(str, (_TESTS, _TESTS / "harness"))),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1, seen
    if story == "broker":
        assert [line.split()[1] for line in seen.pop().splitlines()] == [_digest(seed) for seed in _SEEDS]
