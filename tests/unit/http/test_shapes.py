"""What JSON values are taken for; what Apache Pulsar 4.0.8 takes and refuses was asked of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.errors import InvalidRequest
from magnetar.http.engine.large_json import parse_in_pieces
from magnetar.http.engine.message import Request
from magnetar.http.shapes.fields import number, shown, text_map, texts, truth, whole


def parse_large(body: bytes) -> Any:
    pieces = parse_in_pieces(body)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(("given", "taken"), [(5, 5), ("10240", 10240), (" 5 ", 5), ("-1", -1), (12.0, 12)])
def test_whole_numbers_may_be_texts(given: Any, taken: int) -> None:
    assert whole()("limit", given) == taken


@pytest.mark.parametrize(
    "given", ["ten", "5.5", 10.7, "1_000", "", "0x10", "\u0663", True, None, [], 1e400, "9" * 41]
)
def test_other_texts_are_no_whole_numbers(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="limit must be a whole number"):
        whole()("limit", given)


def test_texts_have_the_range_of_numbers() -> None:
    with pytest.raises(InvalidRequest, match="32 bits"):
        whole()("limit", "2147483648")
    assert whole(64)("limit", "2147483648") == 1 << 31


@pytest.mark.parametrize(("given", "taken"), [(1, 1.0), ("0.5", 0.5), ("1e3", 1000.0), (2.5, 2.5)])
def test_numbers_may_be_texts(given: Any, taken: float) -> None:
    assert number("rate", given) == taken


@pytest.mark.parametrize(
    "given",
    ["nan", "inf", "fast", "1_0", True, float("nan"), float("inf"), -float("inf"), "1e999", 10**400],
)
def test_other_texts_are_no_numbers(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="rate must be a number"):
        number("rate", given)


@pytest.mark.parametrize(
    ("given", "taken"),
    [(True, True), ("true", True), ("FALSE", False), ("True", True), (1, True), (0, False)],
)
def test_truth_may_be_a_text_or_a_number(given: Any, taken: bool) -> None:
    assert truth("active", given) is taken


@pytest.mark.parametrize("given", ["1", "yes", "tRue", 1.0, None])
def test_other_values_are_no_truth(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="active must be true or false"):
        truth("active", given)


@pytest.mark.parametrize(
    ("written", "taken"),
    [("3", "3"), ("1.50", "1.50"), ("1e3", "1e3"), ("true", "true"), ("false", "false"), ("-0.0", "-0.0")],
)
@pytest.mark.parametrize("parse", [Request("PUT", "/").parse, parse_large])
def test_numbers_and_truth_values_stand_for_their_texts(
    written: str, taken: str, parse: Callable[[bytes], Any]
) -> None:
    assert text_map("properties", parse(b'{"a":%s}' % written.encode())) == {"a": taken}


@pytest.mark.parametrize("given", [[], {}, None, ["x"], float("nan")])
def test_other_values_are_no_texts(given: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"properties\.a must be a string"):
        text_map("properties", {"a": given})


@pytest.mark.parametrize("given", ["12", "12.0", "1.2e1"])
def test_numbers_of_bodies_stay_numbers(given: str) -> None:
    parsed = Request("PUT", "/").parse(given.encode())
    assert (whole()("limit", parsed), number("rate", parsed)) == (12, 12.0)
    assert type(number("rate", parsed)) is float


def test_what_is_checked_one_by_one_is_bounded() -> None:
    """The loop waits meanwhile, and a body of 8 MB has millions of items."""
    for given, check in (([1] * 20_001, texts), ({f"k{index}": "v" for index in range(20_001)}, text_map)):
        with pytest.raises(InvalidRequest, match="f has 20001 items; at most 20000 are allowed"):
            check("f", given)
    assert texts("f", ["a"] * 20_000) == ["a"]


def test_an_error_shows_the_first_items_of_an_object_without_sorting_all() -> None:
    given = {f"k{number}": [number] for number in range(8, 0, -1)}
    assert shown(given) == "{'k8': [8], 'k7': [7], 'k6': [6], 'k5': [5], 'k4': [4], 'k3': [3], ...}"
    assert (shown({}), shown({"a": {"b": {"c": {}, "d": {"e": 1}}}})) == (
        "{}",
        "{'a': {'b': {'c': {}, 'd': {...}}}}",
    )
