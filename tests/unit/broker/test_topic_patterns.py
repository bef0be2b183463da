"""Patterns of clients: what matches, and what is left to the client."""

from __future__ import annotations

import pytest

from magnetar.naming.topic_name import compile_pattern

LOCALS = ("a-1", "a-2-partition-0", "a-2-partition-1", "b")
NAMES = [f"persistent://public/default/{local}" for local in LOCALS]


def matching(names: list[str], pattern: str) -> list[str]:
    matches = compile_pattern(pattern)
    assert matches is not None
    return [name for name in names if matches(name)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("public/default/a-.*", NAMES[:3]),
        ("persistent://public/default/a-.*", NAMES[:3]),
        ("public/default/a-2", NAMES[1:3]),
        ("public/default/.", NAMES[3:]),
        ("a-1", []),
    ],
)
def test_the_whole_name_without_domain_and_partition_matches(pattern: str, found: list[str]) -> None:
    assert matching(NAMES, pattern) == found


@pytest.mark.parametrize("pattern", ["public/default/(?!a).*", "(", "*"])
def test_what_cannot_be_matched_here_is_left_to_the_client(pattern: str) -> None:
    assert compile_pattern(pattern) is None


def test_a_pattern_that_would_backtrack_for_ever_does_not() -> None:
    assert matching(["persistent://public/default/" + "a" * 5000], "public/default/(a+)+b") == []
