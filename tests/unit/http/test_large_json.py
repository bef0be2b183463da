"""Large bodies are parsed in pieces: as the parser for small ones does, and no piece is large."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from magnetar.errors import InvalidRequest
from magnetar.http.engine.large_json import MOST_VALUES, parse_in_pieces, parse_json

VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(10**20), 10**20)
    | some.floats(allow_nan=False)
    | some.text(some.characters()),
    lambda inner: some.lists(inner, max_size=5) | some.dictionaries(some.text(), inner, max_size=5),
    max_leaves=30,
)


def drained(pieces: Generator[None, None, Any]) -> tuple[int, Any]:
    """How many pieces there were, and the value."""
    count = 1
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return count, end.value
        count += 1


def outcome(parse: Any, body: bytes) -> tuple[str, str]:
    try:
        return "value", repr(parse(body))
    except (ValueError, RecursionError) as error:
        return "refused", "deep" if isinstance(error, RecursionError) else ""


def in_windows_of(window: int, ahead: int = 12) -> Any:
    return lambda body: drained(parse_in_pieces(body, window, ahead))[1]


@given(VALUES, some.booleans(), some.sampled_from([None, 1]), some.integers(1, 40))
def test_values_are_those_of_the_parser_for_small_bodies(
    value: Any, ascii_only: bool, indent: int | None, window: int
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    body = text.encode(errors="surrogatepass")
    assert outcome(in_windows_of(window, 40), body) == outcome(parse_json, body)


@given(some.text(some.sampled_from('[]{},:"\\ud8DCe0+-.1aN\n\t ')), some.integers(1, 8))
def test_what_is_refused_is_what_the_parser_for_small_bodies_refuses(text: str, window: int) -> None:
    assume(not re.search("[-+.0-9eE]{12}", text))
    body = text.encode()
    assert outcome(in_windows_of(window), body) == outcome(parse_json, body)


@pytest.mark.parametrize(
    "text",
    [
        '["\\ud83d\\ude00", "\\ud83d", "\\ude00\\ud83d", "\\ud83d\\ud83d\\ude00"]',
        '["\\ud83d\\n", "\\ud83dude00"]',
        '"\\ud83d\\u0041"',
        '"\\ud83d\\uzzzz"',
        '{"a":1,"a":[1.50,-0,1e3,-1.5E-3]}',
        "[NaN,Infinity,-Infinity]",
        "[1,]",
        '{"a":1,}',
        "{,}",
        "[1 2]",
        "01",
        "-",
        "1.",
        '"\n"',
        '"\\x"',
        '"a',
        "",
        " \n",
        "nul",
        "1 1",
        "]",
        "[}",
        '{"a" 1}',
        '{"a":}',
        "{1:2}",
    ],
)
@pytest.mark.parametrize("window", [1, 3, 7, 65536])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32-le"])
def test_odd_bodies_are_read_as_small_ones_are(text: str, window: int, encoding: str) -> None:
    body = text.encode(encoding)
    assert outcome(in_windows_of(window), body) == outcome(parse_json, body)


@pytest.mark.parametrize("space", range(40))
@pytest.mark.parametrize("window", [1, 5, 13])
def test_a_number_behind_white_space_is_read_to_its_end(space: int, window: int) -> None:
    body = b"[" + b" " * space + b"12345.25e3," + b" " * space + b"true]"
    assert outcome(in_windows_of(window), body) == outcome(parse_json, body)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_surrogates_that_are_no_escapes_stay_apart(window: int) -> None:
    body = '"\ud83d\ude00\\ud83d\\ude00é\U0001f600"'.encode("utf-8", "surrogatepass")
    assert outcome(in_windows_of(window), body) == outcome(parse_json, body)


@pytest.mark.parametrize(
    "body",
    [
        b'"' + b"x" * 4_000_000 + b'"',
        b'"' + b"\\n" * 2_000_000 + b'"',
        b'"' + b"\\ud83d\\ude00" * 300_000 + b'"',
        b'{"a":"' + b"\xc3\xa4" * 2_000_000 + b'"}',
        b" " * 4_000_000 + b"1",
        b"1" + b" " * 4_000_000,
    ],
)
def test_long_texts_and_white_space_take_many_pieces(body: bytes) -> None:
    pieces, value = drained(parse_in_pieces(body))
    assert value == parse_json(body)
    assert pieces >= len(body) // 65536


def test_many_values_take_many_pieces() -> None:
    body = b"[" + b",".join(b'{"a":[%d]}' % number for number in range(30_000)) + b"]"
    pieces, value = drained(parse_in_pieces(body))
    assert value == parse_json(body)
    assert pieces > 900


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * 3_800_000 + b"1]",
        b"{" + b",".join(b'"k%d":"v"' % number for number in range(500_000)) + b"}",
        b"[" + b"[]," * 2_500_000 + b"[]]",
    ],
)
def test_the_parser_does_not_read_a_body_of_too_many_values_to_its_end(body: bytes) -> None:
    pieces = 0

    def counted() -> None:
        nonlocal pieces
        for _ in parse_in_pieces(body):
            pieces += 1

    with pytest.raises(InvalidRequest, match=f"more than {MOST_VALUES} values"):
        counted()
    assert 300 < pieces < 2000


@pytest.mark.parametrize("body", [b"[" * 70_000, b'{"a":' * 70_000])
def test_lists_and_objects_are_not_nested_deeper_than_what_handles_them_takes(body: bytes) -> None:
    with pytest.raises(RecursionError):
        drained(parse_in_pieces(body))
    _, value = drained(parse_in_pieces(b"[" * 400 + b"]" * 400))
    assert json.dumps(value) == "[" * 400 + "]" * 400


def test_a_number_is_not_longer_than_a_window() -> None:
    for written in (b"9" * 200_000, b"0." + b"1" * 200_000):
        with pytest.raises(ValueError, match=r"more than 5000 characters|Exceeds the limit"):
            drained(parse_in_pieces(written))
