"""Handlers that call a function of the administration."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from magnetar.broker.admin.subscriptions import SubscriptionAdmin
from magnetar.broker.admin.topics import TopicAdmin
from magnetar.errors import BrokerError, NotFound
from magnetar.http.calls import Answer, Several, as_json, calls, done, empty, json_field, json_or
from magnetar.http.engine.message import Request
from magnetar.http.shapes.fields import flag, query
from magnetar.http.shapes.names import number_in_path, optional_variable, variable


class Subscriptions:
    """Returns its arguments."""

    async def skip(self, *given: object) -> tuple[object, ...]:
        return given

    def delete(self, *given: object, force: bool) -> dict[str, object]:
        return {"given": given, "force": force}


@dataclass
class Parts:
    subscriptions: Subscriptions


@dataclass
class Served:
    admin: Parts


def answered(handler: Any, request: Request) -> Any:
    response = asyncio.run(handler(Served(Parts(Subscriptions())), request))
    return json.loads(response.body)


def test_the_shapes_give_the_arguments() -> None:
    request = Request("POST", "/", query={"force": "true", "q": "x"}, variables={"a": "1", "b": "2"})
    handler = calls(
        SubscriptionAdmin.skip,
        variable("a"),
        lambda _request: Several((3, 4)),
        number_in_path("b"),
        optional_variable("c"),
        query("q"),
        query("r", "default"),
        answer=as_json,
    )
    assert answered(handler, request) == ["1", 3, 4, 2, None, "x", "default"]
    handler = calls(SubscriptionAdmin.delete, variable("b"), force=flag("force"), answer=as_json)
    assert answered(handler, request) == {"given": ["2"], "force": True}


def test_a_path_whose_number_is_text_does_not_exist() -> None:
    with pytest.raises(NotFound, match="'x' is not a number"):
        number_in_path("n")(Request("GET", "/", variables={"n": "x"}))


def test_a_function_outside_the_administration() -> None:
    with pytest.raises(ValueError, match="is not an administrative function of the broker"):
        calls(BrokerError.with_traceback)
    assert calls(TopicAdmin.unload)


@pytest.mark.parametrize(
    ("answer", "result", "status", "body"),
    [
        (empty, 1, 204, b""),
        (done, 1, 200, b""),
        (as_json, ("a", "b"), 200, b'["a","b"]'),
        (as_json, "a", 200, b'"a"'),
        (json_or(204), None, 204, b""),
        (json_or(204), {"a": 1}, 200, b'{"a":1}'),
        (json_field("version"), 2, 200, b'{"version":2}'),
    ],
)
def test_answers(answer: Answer, result: object, status: int, body: bytes) -> None:
    response = answer(result)
    assert (response.status, response.body) == (status, body)
