"""docs/backup.md in one shell: each command prints what the page says it does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from documented_shell import differing

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"


@pytest.mark.timeout(120)
def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    wrong = differing(PAGE, tmp_path, Path(sys.executable).parent, 12)
    assert not wrong, "\n".join(wrong)
