"""WebSockets, and what goes through them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, error_response, json_response
from magnetar.http.routing import WebSocketApplication
from magnetar.http.shapes.names import topic_of
from magnetar.naming.errors import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.security.operations import TopicOperation
from magnetar.security.target import Target

if TYPE_CHECKING:
    from magnetar.http.websocket.service import WebSocketService


def _service(application: WebSocketApplication) -> WebSocketService:
    if application.process.websockets is None:
        raise NotFound("WebSockets are not served here: webSocketServiceEnabled is false")
    return application.process.websockets()


async def produce(application: WebSocketApplication, request: Request) -> Response:
    service = _service(application)
    return await service.produce(request, TopicName.parse(topic_of(request.variables)))


async def consume(application: WebSocketApplication, request: Request) -> Response:
    service = _service(application)
    topic = TopicName.parse(topic_of(request.variables))
    return await service.consume(request, topic, request.variables["subscription"])


async def read(application: WebSocketApplication, request: Request) -> Response:
    service = _service(application)
    return await service.read(request, TopicName.parse(topic_of(request.variables)))


async def consume_several(application: WebSocketApplication, request: Request) -> Response:
    """``topics`` or ``topicsPattern`` say which."""
    service = _service(application)
    pattern, listed = request.query.get("topicsPattern"), request.query.get("topics")
    if (pattern is None) == (listed is None):
        raise InvalidRequest("Invalid query params: either topics or topicsPattern is to be set")
    topics = _topics([pattern] if pattern is not None else (listed or "").split(","))
    subscription = request.variables["subscription"]
    for topic in topics:
        refused = await _refusal(application, request, topic, subscription)
        if refused is not None:
            return refused
    if pattern is not None:
        return await service.consume_matching(request, str(topics[0]), subscription)
    return await service.consume_several(request, topics, subscription)


def _topics(names: Sequence[str]) -> list[TopicName]:
    try:
        return [TopicName.parse(name) for name in names]
    except InvalidName as error:
        raise InvalidRequest(f"Invalid query params: {error}") from error


async def _refusal(
    application: WebSocketApplication, request: Request, topic: TopicName, subscription: str
) -> Response | None:
    authorizer = application.access.authorizer
    if not authorizer.asks:
        return None
    target = Target.of_topic(topic, subscription)
    reason = await authorizer.refusal(request.principal, TopicOperation.CONSUME, target)
    return None if reason is None else error_response(HTTPStatus.FORBIDDEN, reason)


async def all_topics(application: WebSocketApplication, request: Request) -> Response:
    return json_response(_service(application).topics())


async def metrics(application: WebSocketApplication, request: Request) -> Response:
    return json_response(_service(application).metrics())


async def topic(application: WebSocketApplication, request: Request) -> Response:
    found = _service(application).topics().get(topic_of(request.variables))
    if found is None:
        raise NotFound("Topic does not exist")
    return json_response(found)
