"""Single messages, for operators."""

from __future__ import annotations

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application, MessageAnswers
from magnetar.http.shapes.fields import choice
from magnetar.http.shapes.names import topic_of


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
