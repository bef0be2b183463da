"""WebSockets, and what goes through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import WebSocketApplication
from magnetar.http.shapes.names import topic_of
from magnetar.http.websocket.user import User
from magnetar.naming.errors import InvalidName
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.http.websocket.service import WebSocketService


def _service(application: WebSocketApplication) -> WebSocketService:
    if application.process.websockets is None:
        raise NotFound("WebSockets are not served here: webSocketServiceEnabled is false")
    return application.process.websockets()


async def produce(application: WebSocketApplication, request: Request) -> Response:
    service = _service(application)
    return await service.produce(request, _user(application, request), TopicName.parse(_named(request)))


async def consume(application: WebSocketApplication, request: Request) -> Response:
    service = _service(application)
    topic = TopicName.parse(_named(request))
    user = _user(application, request)
    return await service.consume(request, user, topic, request.variables["subscription"])


async def read(application: WebSocketApplication, request: Request) -> Response:
    service = _service(application)
    return await service.read(request, _user(application, request), TopicName.parse(_named(request)))


async def consume_several(application: WebSocketApplication, request: Request) -> Response:
    """``topics`` or ``topicsPattern`` say which."""
    service = _service(application)
    pattern, listed = request.query.get("topicsPattern"), request.query.get("topics")
    if (pattern is None) == (listed is None):
        raise InvalidRequest("Invalid query params: either topics or topicsPattern is to be set")
    user, subscription = _user(application, request), request.variables["subscription"]
    if pattern is None:
        return await service.consume_several(request, user, _topics((listed or "").split(",")), subscription)
    found = _topics([pattern])[0]
    if found.legacy:
        # The client takes its first two parts for the namespace, which is not the one that is authorized.
        raise InvalidRequest(
            f"Invalid query params: topicsPattern: {pattern!r} is a legacy name of four parts"
        )
    return await service.consume_matching(request, user, found, subscription)


def _user(application: WebSocketApplication, request: Request) -> User:
    return User(application.access.authorizer, request.principal)


def _named(request: Request) -> str:
    return topic_of(request.variables)


def _topics(names: Sequence[str]) -> list[TopicName]:
    try:
        return [TopicName.parse(name) for name in names]
    except InvalidName as error:
        raise InvalidRequest(f"Invalid query params: {error}") from error


async def all_topics(application: WebSocketApplication, request: Request) -> Response:
    return json_response(_service(application).topics())


async def metrics(application: WebSocketApplication, request: Request) -> Response:
    return json_response(_service(application).metrics())


async def topic(application: WebSocketApplication, request: Request) -> Response:
    found = _service(application).topics().get(topic_of(request.variables))
    if found is None:
        raise NotFound("Topic does not exist")
    return json_response(found)
