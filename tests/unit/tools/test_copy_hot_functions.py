"""Hot modules have the same copy of the functions that they have in common."""

from __future__ import annotations

import sys

import pytest
from tools import copy_hot_functions
from tools.copy_hot_functions import COPIES, SOURCE, copied


def test_copies_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["copy_hot_functions", "--check"])
    assert copy_hot_functions.main() == 0


@pytest.mark.parametrize("target", ["protocol/hot_keys.py", "spark/codec/hot_rows.py"])
def test_a_copy_that_differs_is_written_again(target: str) -> None:
    texts = {source: (SOURCE / source).read_text() for source in COPIES}
    text = (SOURCE / target).read_text()
    changed = text.replace("index < position + 10", "index < position + 9")
    assert changed != text
    assert copied(target, changed, texts) == text
