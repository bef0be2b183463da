"""Read plans for readers on the same machine or a shared file system."""

from __future__ import annotations

from typing import Any

from magnetar.errors import InvalidRequest
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import whole
from magnetar.http.shapes.names import topic_of
from magnetar.http.shapes.shown import shown

_FROM_THE_START = (-1, -1)


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
