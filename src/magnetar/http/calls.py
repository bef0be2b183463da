"""Request handlers that call one function of the administration, for the rows of the endpoint table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from magnetar.broker.admin.all import Admin
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Handler
from magnetar.http.shapes.fields import Shape

Answer = Callable[[Any], Response]
"""Converts the result of a function to a response."""


class Several(list[object]):
    """Several arguments of a function, from one shape."""


def empty(_result: object) -> Response:
    """Returns 204 without a body."""
    return nothing()


def done(_result: object) -> Response:
    """Returns 200 without a body."""
    return Response(200)


def as_json(result: object) -> Response:
    if isinstance(result, Mapping):
        return json_response(dict(result))
    if isinstance(result, Sequence) and not isinstance(result, str):
        return json_response(list(result))
    return json_response(result)


def json_or(status: int) -> Answer:
    """Returns a converter to JSON with this status; the body is empty if the function returned None."""
    return lambda result: Response(status) if result is None else as_json(result)


def json_field(name: str) -> Answer:
    """Returns a converter that puts the result into a field of a JSON object."""
    return lambda result: json_response({name: list(result) if isinstance(result, tuple) else result})


def calls(
    function: Callable[..., object], *arguments: Shape, answer: Answer = empty, **options: Shape
) -> Handler:
    """Returns a handler that calls a function of the administration.

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
