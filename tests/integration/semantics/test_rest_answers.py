"""Requests of the admin interface, one after the other, answered as Apache Pulsar 4.0.8 answered them.

``rest_answers.jsonl``, and beside it those of non-persistent topics, have a row for each: method, path, body,
status and, below 400, what came back (None for nothing). What Magnetar does otherwise on purpose
(docs/admin-rest.md) is not among them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from server import Server

ANSWERS = sorted(Path(__file__).parent.glob("rest_answers*.jsonl"))


def _value(data: bytes) -> Any:
    if not data:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        return data.decode()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return sorted(value)
    return value


@pytest.mark.parametrize("answers", ANSWERS, ids=lambda path: path.stem)
def test_requests_are_answered_as_apache_pulsar_answers_them(start_server: Any, answers: Path) -> None:
    server: Server = start_server()
    wrong = []
    for row in answers.read_text().splitlines():
        method, path, body, status, expected = json.loads(row)
        got_status, data = server.ask(method, path, body)
        got = _value(data)
        if got_status != status or (status < 400 and got != expected):
            wrong.append((method, path, body, status, expected, got_status, got))
        if status >= 400:
            assert isinstance(got, dict), row
            assert got["reason"], row
    assert not wrong
