"""Inputs that reached something new once, or are the shortest of their kind: none of them does harm."""

from __future__ import annotations

import pytest
from fuzz_targets import CORPUS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_do_no_harm(name: str) -> None:
    target = TARGETS[name]()
    files = sorted((CORPUS / name).iterdir())
    assert files
    for file in files:
        target(file.read_bytes())
