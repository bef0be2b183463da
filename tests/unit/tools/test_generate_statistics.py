"""The figures in JSON are those that their table names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools import generate_statistics
from tools.generate_statistics import FOLDER


def test_the_functions_are_what_the_table_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_statistics", "--check"])
    assert generate_statistics.main() == 0


def test_a_name_that_was_changed_is_noticed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, module = (FOLDER / name for name in ("figures.tsv", "figure_table.py"))
    (tmp_path / module.name).write_text(module.read_text())
    (tmp_path / table.name).write_text(table.read_text().replace("availablePermits", "permits"))
    monkeypatch.setattr(generate_statistics, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate_statistics", "--check"])
    assert generate_statistics.main() == 1
    assert "run python tools/generate_statistics.py" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["generate_statistics"])
    assert generate_statistics.main() == 0
    assert '"permits": now.available_permits,' in (tmp_path / module.name).read_text()
    assert len((tmp_path / module.name).read_text()) == len(module.read_text()) - len("available")
