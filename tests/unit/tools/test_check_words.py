"""Code and docs use the terms of docs/glossary.md."""

from __future__ import annotations

import pytest
from tools import check_words


def test_no_word_that_the_glossary_replaces_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_words.main() == 0, capsys.readouterr().err


def test_words_are_found_inside_of_names() -> None:
    words = check_words.words
    assert "door" in set(words("self._open_doors()"))
    assert "door" in set(words("class DoorTls:"))
    assert "door" in set(words('log("the DOOR")'))
    assert "door" not in set(words("outdoor and doorman"))


def test_the_last_column_names_what_is_replaced() -> None:
    table = (
        "| term | meaning | not |\n| --- | --- | --- |\n| a | x | one, two |\n| b | y | one |\n| c | z | |\n"
    )
    assert check_words.replaced(table) == {"one": "a or b", "two": "a"}


def test_a_replaced_word_is_reported_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_words, "replaced", lambda _text: {"managed": "a term"})
    assert check_words.main() == 1
    assert "src/magnetar/managed_ledger/cursor.py:" in capsys.readouterr().err
