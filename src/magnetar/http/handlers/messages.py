"""Single messages, as operators look at them."""

from __future__ import annotations

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import choice
from magnetar.http.shapes.names import topic_of


async def peek(application: Application, request: Request) -> Response:
    position, entry = await application.admin.messages.peek(
        topic_of(request.variables), request.variables["subscription"], _number(request, "messagePosition")
    )
    return _message(position, entry)


async def by_id(application: Application, request: Request) -> Response:
    wanted = _number(request, "ledgerId"), _number(request, "entryId")
    return _message(*await application.admin.messages.by_id(topic_of(request.variables), wanted))


async def examine(application: Application, request: Request) -> Response:
    start = choice("earliest", "latest")("initialPosition", request.query.get("initialPosition", "latest"))
    try:
        number = int(request.query.get("messagePosition", "1"))
    except ValueError:
        raise InvalidRequest("messagePosition: a whole number is wanted") from None
    position, entry = await application.admin.messages.examine(
        topic_of(request.variables), number, earliest=start == "earliest"
    )
    return _message(position, entry)


async def stored(application: Application, request: Request) -> Response:
    return json_response(await application.admin.messages.stored(topic_of(request.variables)))


def _number(request: Request, name: str) -> int:
    try:
        return int(request.variables[name])
    except ValueError:
        raise NotFound(f"{request.variables[name]!r} is not a number") from None


def _message(position: tuple[int, int], stored: bytes) -> Response:
    # Loaded with the first message that is looked at: protobuf is large.
    from magnetar.http.shapes.stored_message import response_of

    return response_of(position, stored)
