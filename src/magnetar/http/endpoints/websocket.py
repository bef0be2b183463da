"""Endpoints that open WebSockets, and endpoints for statistics of WebSockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from magnetar.errors import InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Parameter, WebSocketApplication, WebSocketEndpoint, WebSocketHandler
from magnetar.http.shapes.names import topic_of
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authorization import BrokerOperation as B
from magnetar.security.authorization import TopicOperation as T

if TYPE_CHECKING:
    from magnetar.http.websocket.service import WebSocketService
    from magnetar.http.websocket.user import User

_TOPIC = "{domain}/{tenant}/{namespace}/{topic}"
_OLD_TOPIC = "{domain}/{tenant}/{cluster}/{namespace}/{topic}"
_STATS = "/admin/v2/proxy-stats"
_OLD_STATS = "/admin/proxy-stats"
_REFUSALS = {
    404: "the topic does not exist, or WebSockets are disabled",
    409: "the producer or consumer already exists, or the schema is not compatible",
    426: "the request is not a WebSocket request",
    429: "there are too many lookups in progress",
    503: "a backlog quota is exceeded, the topic is terminated, or the broker is starting or stopping",
    504: "the broker of the topic did not answer in time",
}
_PRODUCER = (
    Parameter("producerName", "text"),
    Parameter("initialSequenceId", "whole"),
    Parameter("sendTimeoutMillis", "whole", "30000"),
    Parameter("batchingEnabled", "truth", "false"),
    Parameter("batchingMaxMessages", "whole", "1000"),
    Parameter("batchingMaxPublishDelay", "whole", "10"),
    Parameter("maxPendingMessages", "whole", "1000"),
    Parameter("messageRoutingMode", "text", "SinglePartition"),
    Parameter("hashingScheme", "text", "JavaStringHash"),
    Parameter("compressionType", "text", "NONE"),
    Parameter("encryptionKeys", "text"),
    Parameter("token", "text"),
)
_CONSUMER = (
    Parameter("subscriptionType", "text", "Exclusive"),
    Parameter("subscriptionMode", "text", "Durable"),
    Parameter("subscriptionInitialPosition", "text", "Latest"),
    Parameter("ackTimeoutMillis", "whole", "0"),
    Parameter("receiverQueueSize", "whole", "1000"),
    Parameter("consumerName", "text"),
    Parameter("priorityLevel", "whole", "0"),
    Parameter("maxRedeliverCount", "whole"),
    Parameter("deadLetterTopic", "text"),
    Parameter("negativeAckRedeliveryDelay", "whole", "60000"),
    Parameter("pullMode", "truth", "false"),
    Parameter("cryptoFailureAction", "text", "FAIL"),
    Parameter("token", "text"),
)
_READER = (
    Parameter("messageId", "text", "latest"),
    Parameter("readerName", "text"),
    Parameter("receiverQueueSize", "whole", "1000"),
    Parameter("cryptoFailureAction", "text", "FAIL"),
    Parameter("token", "text"),
)


async def _service(application: WebSocketApplication) -> WebSocketService:
    if application.process.websockets is None:
        raise NotFound("WebSockets are disabled: webSocketServiceEnabled is false")
    return await application.process.websockets()


async def _produce(application: WebSocketApplication, request: Request) -> Response:
    topic = TopicName.parse(_named(request))
    return await _let_in(application, request, lambda to, user: to.produce(request, user, topic))


async def _consume(application: WebSocketApplication, request: Request) -> Response:
    topic, subscription = TopicName.parse(_named(request)), request.variables["subscription"]
    return await _let_in(
        application, request, lambda to, user: to.consume(request, user, topic, subscription)
    )


async def _read(application: WebSocketApplication, request: Request) -> Response:
    topic = TopicName.parse(_named(request))
    return await _let_in(application, request, lambda to, user: to.read(request, user, topic))


async def _consume_several(application: WebSocketApplication, request: Request) -> Response:
    """Opens a WebSocket that consumes the topics in the query parameter ``topics`` or ``topicsPattern``."""
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
    """Returns the response of ``act``, which gets the WebSocket service and a :class:`User` for the request.

    If the response opens a WebSocket, the user object exists until the WebSocket has ended.
    """
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


async def _all_topics(application: WebSocketApplication, request: Request) -> Response:
    return json_response((await _service(application)).topics())


async def _metrics(application: WebSocketApplication, request: Request) -> Response:
    return json_response((await _service(application)).metrics())


async def _topic(application: WebSocketApplication, request: Request) -> Response:
    found = (await _service(application)).topics().get(topic_of(request.variables))
    if found is None:
        raise NotFound("Topic does not exist")
    return json_response(found)


def _websocket(
    path: str,
    handler: WebSocketHandler,
    description: str,
    operation: T,
    parameters: Sequence[Parameter],
    aliases: Sequence[str] = (),
    *,
    lets_in: bool = False,
) -> WebSocketEndpoint:
    """Returns an endpoint that opens a WebSocket and that any broker can serve.

    :param lets_in: whether the handler checks the permission, because the path does not contain the target
    """
    return WebSocketEndpoint(
        "GET",
        path,
        handler,
        description,
        operation,
        aliases,
        parameters,
        success=101,
        refusals=_REFUSALS,
        upgrades=True,
        anywhere=True,
        lets_in=lets_in,
    )


WEBSOCKET: Sequence[WebSocketEndpoint] = (
    _websocket(
        f"/ws/v2/producer/{_TOPIC}",
        _produce,
        "publish over a WebSocket",
        T.PRODUCE,
        _PRODUCER,
        (f"/ws/producer/{_OLD_TOPIC}",),
    ),
    _websocket(
        f"/ws/v2/consumer/{_TOPIC}/{{subscription}}",
        _consume,
        "consume over a WebSocket",
        T.CONSUME,
        _CONSUMER,
        (f"/ws/consumer/{_OLD_TOPIC}/{{subscription}}",),
    ),
    _websocket(
        f"/ws/v2/reader/{_TOPIC}",
        _read,
        "read over a WebSocket",
        T.CONSUME,
        _READER,
        (f"/ws/reader/{_OLD_TOPIC}",),
    ),
    _websocket(
        "/ws/v3/consumer/{subscription}",
        _consume_several,
        "consume several topics, or all that match, over a WebSocket",
        T.CONSUME,
        (Parameter("topics", "text"), Parameter("topicsPattern", "text"), *_CONSUMER),
        lets_in=True,
    ),
    WebSocketEndpoint(
        "GET",
        f"{_STATS}/metrics",
        _metrics,
        "figures of WebSockets by namespace for the last minute",
        B.GET_LOAD,
        (f"{_OLD_STATS}/metrics",),
        refusals={404: "WebSockets are disabled"},
    ),
    WebSocketEndpoint(
        "GET",
        f"{_STATS}/stats",
        _all_topics,
        "WebSockets by topic",
        B.GET_LOAD,
        (f"{_OLD_STATS}/stats",),
        refusals={404: "WebSockets are disabled"},
    ),
    WebSocketEndpoint(
        "GET",
        f"{_STATS}/{_TOPIC}/stats",
        _topic,
        "WebSockets of a topic",
        T.GET_STATS,
        (f"{_OLD_STATS}/{_OLD_TOPIC}/stats",),
        refusals={404: "no WebSocket is open on the topic"},
        anywhere=True,
    ),
)
