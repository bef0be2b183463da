"""The paths whose instructions are counted do what they are counted for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.paths import PATHS


@pytest.mark.parametrize("path", PATHS)
def test_a_path_takes_turns(path: str) -> None:
    turn = PATHS[path]()
    turn(0)
    turn(1)
