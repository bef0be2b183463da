"""WebSockets, and their statistics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import WebSocketApplication
from magnetar.http.shapes.names import topic_of
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.http.websocket.service import WebSocketService
    from magnetar.http.websocket.user import User


async def _service(application: WebSocketApplication) -> WebSocketService:
    if application.process.websockets is None:
        raise NotFound("WebSockets are disabled: webSocketServiceEnabled is false")
    return await application.process.websockets()


async def produce(application: WebSocketApplication, request: Request) -> Response:
    topic = TopicName.parse(_named(request))
    return await _let_in(application, request, lambda to, user: to.produce(request, user, topic))


async def consume(application: WebSocketApplication, request: Request) -> Response:
    topic, subscription = TopicName.parse(_named(request)), request.variables["subscription"]
    return await _let_in(
        application, request, lambda to, user: to.consume(request, user, topic, subscription)
    )


async def read(application: WebSocketApplication, request: Request) -> Response:
    topic = TopicName.parse(_named(request))
    return await _let_in(application, request, lambda to, user: to.read(request, user, topic))


async def consume_several(application: WebSocketApplication, request: Request) -> Response:
    """Consumes the topics of the parameter ``topics`` or ``topicsPattern``."""
    pattern, listed = request.query.get("topicsPattern"), request.query.get("topics")
    subscription = request.variables["subscription"]
    if (pattern is None) == (listed is None):
        raise InvalidRequest("Invalid query params: set either topics or topicsPattern")
    if pattern is None:
        topics = _topics((listed or "").split(","))
        return await _let_in(
            application, request, lambda to, user: to.consume_several(request, user, topics, subscription)
        )
    found = _topics([pattern])[0]
    if found.legacy:
        # The client takes the first two parts for the namespace, which is not the authorized one.
        raise InvalidRequest(
            f"Invalid query params: topicsPattern: {pattern!r} is a legacy name of four parts, "
            "which is not supported"
        )
    return await _let_in(
        application, request, lambda to, user: to.consume_matching(request, user, found, subscription)
    )


async def _let_in(
    application: WebSocketApplication,
    request: Request,
    act: Callable[[WebSocketService, User], Awaitable[Response]],
) -> Response:
    """Returns the answer of ``act``; the user exists until the WebSocket of the answer, if any, has ended."""
    service = await _service(application)
    access = application.access
    user = service.admit(access.authenticator, access.authorizer, request)
    opened = False
    try:
        response = await act(service, user)
        opened = response.upgrade is not None
        return response
    finally:
        if not opened:
            user.leave()


def _named(request: Request) -> str:
    return topic_of(request.variables)


def _topics(names: Sequence[str]) -> list[TopicName]:
    try:
        return [TopicName.parse(name) for name in names]
    except InvalidName as error:
        raise InvalidRequest(f"Invalid query params: {error}") from error


async def all_topics(application: WebSocketApplication, request: Request) -> Response:
    return json_response((await _service(application)).topics())


async def metrics(application: WebSocketApplication, request: Request) -> Response:
    return json_response((await _service(application)).metrics())


async def topic(application: WebSocketApplication, request: Request) -> Response:
    found = (await _service(application)).topics().get(topic_of(request.variables))
    if found is None:
        raise NotFound("Topic does not exist")
    return json_response(found)
