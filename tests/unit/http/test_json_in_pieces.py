"""Large answers are encoded piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest

from magnetar.http.engine.large_json import MANY, encoded, encoded_in_pieces, is_large
from magnetar.http.engine.message import json_response

_MEMBER = {"a": [1, None, True, 2.5], "b": {"ü": '"'}, "half": "\ud800"}

VALUES: dict[str, Any] = {
    "numbers": list(range(3 * MANY)),
    "names": {f"n{number}": number for number in range(3 * MANY)},
    "objects": [_MEMBER] * MANY,
    "by number": dict.fromkeys(range(2 * MANY), (1, 2)),
    "one large member": {"small": 1, "large": {"in": [list(range(2 * MANY))]}, "": [], "after": [0]},
    "large beside small": [[0] * MANY, 1, [[2] * (2 * MANY)], 3, {}],
    "deep": {"a": {"b": {"c": {"d": [{"e": list(range(MANY))}] * 3}}}},
    "just too many": [0] * MANY,
}


@pytest.mark.parametrize("name", list(VALUES))
def test_the_pieces_are_what_is_encoded_at_once(name: str) -> None:
    value = VALUES[name]
    pieces = list(encoded_in_pieces(value))
    assert is_large(value)
    assert len(pieces) > 2
    assert b"".join(pieces) == encoded(value)
    assert max(map(len, pieces)) < len(encoded([_MEMBER] * MANY))


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [[]], {"a": {}}, [0] * (MANY - 1)])
def test_what_is_small_is_one_piece(value: Any) -> None:
    assert not is_large(value)
    assert list(encoded_in_pieces(value)) == [encoded(value)]
    assert json.loads(encoded(value)) == value


def test_an_answer_is_sent_in_pieces_when_it_is_large() -> None:
    assert json_response([0] * (MANY - 1)).pieces is None
    answer = json_response([0] * MANY)
    assert answer.body == b""
    assert answer.pieces is not None
    assert b"".join(map(bytes, answer.pieces)) == encoded([0] * MANY)
