"""The typed attributes of settings are what the tables declare."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools import generate_settings


def test_the_attributes_are_what_the_tables_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_settings", "--check"])
    assert generate_settings.main() == 0


def test_a_table_that_was_changed_is_noticed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in generate_settings.attributes():
        (tmp_path / name).write_text((generate_settings.FOLDER / name).read_text())
    before = (tmp_path / "proxy.py").read_text()
    (tmp_path / "proxy.py").write_text(before.replace("    service_port: int | None\n", ""))
    monkeypatch.setattr(generate_settings, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate_settings", "--check"])
    assert generate_settings.main() == 1
    assert capsys.readouterr().out.startswith("proxy.py differ")
    monkeypatch.setattr(sys, "argv", ["generate_settings"])
    assert generate_settings.main() == 0
    assert (tmp_path / "proxy.py").read_text() == before


def test_a_secret_is_not_in_the_text_of_an_object() -> None:
    written = generate_settings.attributes()["cluster.py"]
    assert "    bookkeeper_client_authentication_parameters: str = field(repr=False)\n" in written
