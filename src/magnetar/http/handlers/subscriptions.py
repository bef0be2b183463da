"""Subscriptions of a topic, and the backlogs of topics and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import body, message_position, text_map, truth, whole
from magnetar.http.shapes.names import topic_of

_EARLIEST = (-1, -1)
_LATEST = (2**63 - 1, 2**63 - 1)


async def names(application: Application, request: Request) -> Response:
    return json_response(list(await application.admin.subscriptions.names(topic_of(request.variables))))


async def create(application: Application, request: Request) -> Response:
    start, properties = _start(request)
    await application.admin.subscriptions.create(
        topic_of(request.variables),
        request.variables["subscription"],
        start,
        properties,
        replicated=request.flag("replicated"),
    )
    return nothing()


def _start(request: Request) -> tuple[tuple[int, int] | None, Mapping[str, str]]:
    """Returns where a subscription begins, and its properties; None: with the next published message."""
    if not request.has_value:
        return None, {}
    value = request.json()
    if value in ("earliest", "latest"):
        return (_EARLIEST if value == "earliest" else _LATEST), {}
    position = message_position(value)
    if value.get("excluded") and position[0] >= 0 and position != _LATEST:
        position = (position[0], position[1] + 1)
    return position, text_map("properties", value.get("properties") or {})


def _where(request: Request) -> tuple[str, str]:
    return topic_of(request.variables), request.variables["subscription"]


async def delete(application: Application, request: Request) -> Response:
    await application.admin.subscriptions.delete(*_where(request), force=request.flag("force"))
    return nothing()


async def properties(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.subscriptions.properties(*_where(request))))


async def set_properties(application: Application, request: Request) -> Response:
    value = body(text_map, "properties")(request)
    await application.admin.subscriptions.set_properties(*_where(request), value)
    return nothing()


async def skip_all(application: Application, request: Request) -> Response:
    await application.admin.subscriptions.skip_all(*_where(request))
    return nothing()


async def skip(application: Application, request: Request) -> Response:
    count = _whole(request.variables["numMessages"])
    if count < 0:
        raise InvalidRequest(f"The number of messages to skip must be 0 or more, not {count}")
    await application.admin.subscriptions.skip(*_where(request), count)
    return nothing()


def _whole(value: str) -> int:
    """Returns a number in a path; if it is not a number, the path does not exist."""
    try:
        return int(value)
    except ValueError:
        raise NotFound(f"{value!r} is not a number") from None


async def reset_to_time(application: Application, request: Request) -> Response:
    time_ms = _whole(request.variables["timestamp"])
    await application.admin.subscriptions.reset_to_time(*_where(request), time_ms)
    return nothing()


async def reset_to(application: Application, request: Request) -> Response:
    value: Any = request.json()
    behind = isinstance(value, dict) and value.get("excluded") is True
    position = message_position(value)
    index = whole()("messageId.batchIndex", value.get("batchIndex", -1))
    await application.admin.subscriptions.reset_to(
        *_where(request), position, behind=behind, batch_index=index
    )
    return nothing()


async def replicated(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.subscriptions.replicated(*_where(request))))


async def set_replicated(application: Application, request: Request) -> Response:
    wanted = body(truth, "replicated")(request)
    await application.admin.subscriptions.set_replicated(*_where(request), wanted)
    return nothing()


def _seconds(request: Request) -> int:
    text = request.variables["expireTimeInSeconds"]
    try:
        return int(text)
    except ValueError:
        raise NotFound(f"{text!r} is not a number") from None


async def expire(application: Application, request: Request) -> Response:
    await application.admin.backlogs.expire(
        topic_of(request.variables), request.variables["subscription"], _seconds(request)
    )
    return nothing()


async def expire_all(application: Application, request: Request) -> Response:
    await application.admin.backlogs.expire_all(topic_of(request.variables), _seconds(request))
    return nothing()


async def expire_to(application: Application, request: Request) -> Response:
    value: object = request.json()
    behind = isinstance(value, dict) and value.get("excluded") is True
    await application.admin.backlogs.expire_to(
        topic_of(request.variables),
        request.variables["subscription"],
        message_position(value),
        behind=behind,
    )
    return nothing()


async def analyze(application: Application, request: Request) -> Response:
    given = request.json() if request.has_value else None
    return json_response(
        await application.admin.backlogs.analyze(
            topic_of(request.variables),
            request.variables["subscription"],
            None if given is None else message_position(given),
        )
    )


async def estimate(application: Application, request: Request) -> Response:
    return json_response(await application.admin.backlogs.estimate(topic_of(request.variables)))


async def truncate(application: Application, request: Request) -> Response:
    await application.admin.backlogs.truncate(topic_of(request.variables))
    return nothing()


async def check_quotas(application: Application, request: Request) -> Response:
    await application.admin.backlogs.check_quotas()
    return nothing()
