"""Stored messages: single ones for operators, and read plans for readers of the files."""

from __future__ import annotations

from typing import Any

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, MessageAnswers
from magnetar.http.shapes.fields import choice, shown, whole
from magnetar.http.shapes.names import topic_of

_FROM_THE_START = (-1, -1)


async def peek(application: Application, request: Request) -> Response:
    number = _number(request, "messagePosition")
    topic, subscription = topic_of(request.variables), request.variables["subscription"]
    return await _answers(application).answer(
        lambda: application.admin.messages.peek(topic, subscription, number)
    )


async def by_id(application: Application, request: Request) -> Response:
    wanted = _number(request, "ledgerId"), _number(request, "entryId")
    topic = topic_of(request.variables)
    return await _answers(application).answer(lambda: application.admin.messages.by_id(topic, wanted))


async def examine(application: Application, request: Request) -> Response:
    start = choice("earliest", "latest")("initialPosition", request.query.get("initialPosition", "latest"))
    try:
        number = int(request.query.get("messagePosition", "1"))
    except ValueError:
        raise InvalidRequest("messagePosition must be a whole number") from None
    topic, earliest = topic_of(request.variables), start == "earliest"
    return await _answers(application).answer(
        lambda: application.admin.messages.examine(topic, number, earliest=earliest)
    )


async def stored(application: Application, request: Request) -> Response:
    return json_response(await application.admin.messages.stored(topic_of(request.variables)))


def _answers(application: Application) -> MessageAnswers:
    assert application.messages is not None, "the server sets it"
    return application.messages


def _number(request: Request, name: str) -> int:
    try:
        return int(request.variables[name])
    except ValueError:
        raise NotFound(f"{request.variables[name]!r} is not a number") from None


async def make(application: Application, request: Request) -> Response:
    """Makes a read plan. The body has ``start`` and ``end`` (exclusive) as message ids, and ``seconds``; all
    are optional."""
    given = _body(request, "start", "end", "seconds")
    start = _position("start", given["start"]) if given.get("start") is not None else _FROM_THE_START
    end = _position("end", given["end"]) if given.get("end") is not None else None
    return json_response(
        await application.admin.read_plans.make(topic_of(request.variables), start, end, _seconds(given))
    )


async def prolong(application: Application, request: Request) -> Response:
    seconds = _seconds(_body(request, "seconds"))
    return json_response(application.admin.read_plans.prolong(request.variables["plan"], seconds))


async def release(application: Application, request: Request) -> Response:
    application.admin.read_plans.release(request.variables["plan"])
    return nothing()


def _body(request: Request, *known: str) -> dict[str, object]:
    if not request.has_body:
        return {}
    value = request.json()
    if not isinstance(value, dict):
        raise InvalidRequest(f"must be an object with {', '.join(known)}")
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise InvalidRequest(f"unknown fields {', '.join(unknown)}; use {', '.join(known)}")
    return value


def _seconds(given: dict[str, Any]) -> int | None:
    seconds = given.get("seconds")
    return None if seconds is None else int(whole()("seconds", seconds))


def _position(name: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object with ledgerId and entryId, not {shown(value)}")
    number = whole(64)
    return number(f"{name}.ledgerId", value.get("ledgerId")), number(f"{name}.entryId", value.get("entryId"))
