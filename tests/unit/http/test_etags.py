"""Answers with a tag: whoever has one of them is told so."""

from __future__ import annotations

import pytest

from magnetar.http.engine import page_files
from magnetar.http.engine.message import Request, Response, json_response, text_response

TAG = '"abc"'


@pytest.mark.parametrize("said", [TAG, f"W/{TAG}", f'"x", {TAG}', f' "x",W/{TAG} ', "*"])
def test_who_says_a_tag_has_what_it_stands_for(said: str) -> None:
    assert page_files.has(Request("GET", "/", headers={"if-none-match": said}), TAG)


@pytest.mark.parametrize("headers", [{}, {"if-none-match": ""}, {"if-none-match": "abc"}, {"if-match": TAG}])
def test_nobody_else_has(headers: dict[str, str]) -> None:
    assert not page_files.has(Request("GET", "/", headers=headers), TAG)


def test_another_value_has_another_tag() -> None:
    answers = [page_files.tagged(Request("GET", "/"), json_response(value)) for value in ({"a": 1}, {"a": 2})]
    tags = [dict(answer.headers)["ETag"] for answer in answers]
    assert len(set(tags)) == 2
    asked = Request("GET", "/", headers={"if-none-match": tags[0]})
    again = page_files.tagged(asked, json_response({"a": 1}))
    assert (again.status, again.body, dict(again.headers)["ETag"]) == (304, b"", tags[0])
    assert page_files.tagged(asked, json_response({"a": 2})).status == 200


@pytest.mark.parametrize(
    "answer",
    [
        Response(204),
        Response(200),
        json_response({"reason": "no"}, 404),
        Response(200, pieces=iter(["a"])),
        text_response("x" * (page_files.LARGEST_BYTES + 1)),
    ],
)
def test_what_is_no_small_success_has_none(answer: Response) -> None:
    assert page_files.tagged(Request("GET", "/", headers={"if-none-match": "*"}), answer) is answer


def test_a_text_in_pieces_has_one_once_it_was_made_whole() -> None:
    known = page_files.TagOnTheWay()
    half = known.noted(["a", "b"])
    assert next(half) == "a"
    half.close()
    assert known.tag == ""
    assert list(known.noted(["a", "b"])) == ["a", "b"]
    assert known.tag == page_files.tag_of(b"ab")
