"""Creates request handlers for the endpoint table; each handler calls one administration method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from magnetar.broker.admin.all import Admin
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Handler
from magnetar.http.shapes.fields import Shape

Answer = Callable[[Any], Response]
"""Converts the result of an administration method to a response."""


class Several(list[object]):
    """A list that a shape returns to supply several positional arguments of the called method."""


def empty(_result: object) -> Response:
    """Returns a response with status 204 and no body."""
    return nothing()


def done(_result: object) -> Response:
    """Returns a response with status 200 and no body."""
    return Response(200)


def as_json(result: object) -> Response:
    if isinstance(result, Mapping):
        return json_response(dict(result))
    if isinstance(result, Sequence) and not isinstance(result, str):
        return json_response(list(result))
    return json_response(result)


def json_or(status: int) -> Answer:
    """Returns a function that converts a result to a JSON response with this status; for the result None, the
    body is empty.
    """
    return lambda result: Response(status) if result is None else as_json(result)


def json_field(name: str) -> Answer:
    """Returns a function that converts a result to a JSON object with one field, ``name``, which contains the
    result.
    """
    return lambda result: json_response({name: list(result) if isinstance(result, tuple) else result})


def calls(
    function: Callable[..., object], *arguments: Shape, answer: Answer = empty, **options: Shape
) -> Handler:
    """Returns a handler that calls an administration method, and converts its result with ``answer``.

    :param function: a method of a part of :class:`magnetar.broker.admin.all.Admin`; it may be a coroutine
    :param arguments: shapes of the positional arguments; a shape can return several arguments as
        :class:`Several`
    :param options: shapes of the keyword arguments
    """
    part = Admin.part(function)

    async def handler(application: Application, request: Request) -> Response:
        given: list[object] = []
        for argument in arguments:
            value = argument(request)
            if isinstance(value, Several):
                given += value
            else:
                given.append(value)
        named = {name: option(request) for name, option in options.items()}
        method = getattr(getattr(application.admin, part), function.__name__)
        result = method(*given, **named)
        return answer(await result if isawaitable(result) else result)

    return handler
