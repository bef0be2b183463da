"""docs/tour.md in one shell, from its first command to its last: each prints what the page says it does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from documented_shell import differing

PAGE = Path(__file__).parents[2] / "docs" / "tour.md"


@pytest.mark.timeout(300)
def test_every_command_prints_what_the_tour_says(tmp_path: Path) -> None:
    wrong = differing(PAGE, tmp_path, Path(sys.executable).parent, 26)
    assert not wrong, "\n".join(wrong)
