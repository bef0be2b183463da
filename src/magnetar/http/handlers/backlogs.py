"""Backlogs of topics and subscriptions."""

from __future__ import annotations

from magnetar.errors import NotFound
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import message_position
from magnetar.http.shapes.names import topic_of


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
