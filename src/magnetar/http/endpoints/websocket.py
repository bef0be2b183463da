"""Endpoints that become WebSockets, and those with their statistics."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import websocket
from magnetar.http.routing import Parameter, WebSocketEndpoint, WebSocketHandler
from magnetar.security.authorization import BrokerOperation as B
from magnetar.security.authorization import TopicOperation as T

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
    """Returns an endpoint that becomes a WebSocket, at any broker."""
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
        websocket.produce,
        "publish over a WebSocket",
        T.PRODUCE,
        _PRODUCER,
        (f"/ws/producer/{_OLD_TOPIC}",),
    ),
    _websocket(
        f"/ws/v2/consumer/{_TOPIC}/{{subscription}}",
        websocket.consume,
        "consume over a WebSocket",
        T.CONSUME,
        _CONSUMER,
        (f"/ws/consumer/{_OLD_TOPIC}/{{subscription}}",),
    ),
    _websocket(
        f"/ws/v2/reader/{_TOPIC}",
        websocket.read,
        "read over a WebSocket",
        T.CONSUME,
        _READER,
        (f"/ws/reader/{_OLD_TOPIC}",),
    ),
    _websocket(
        "/ws/v3/consumer/{subscription}",
        websocket.consume_several,
        "consume several topics, or all that match, over a WebSocket",
        T.CONSUME,
        (Parameter("topics", "text"), Parameter("topicsPattern", "text"), *_CONSUMER),
        lets_in=True,
    ),
    WebSocketEndpoint(
        "GET",
        f"{_STATS}/metrics",
        websocket.metrics,
        "figures of WebSockets by namespace for the last minute",
        B.GET_LOAD,
        (f"{_OLD_STATS}/metrics",),
        refusals={404: "WebSockets are disabled"},
    ),
    WebSocketEndpoint(
        "GET",
        f"{_STATS}/stats",
        websocket.all_topics,
        "WebSockets by topic",
        B.GET_LOAD,
        (f"{_OLD_STATS}/stats",),
        refusals={404: "WebSockets are disabled"},
    ),
    WebSocketEndpoint(
        "GET",
        f"{_STATS}/{_TOPIC}/stats",
        websocket.topic,
        "WebSockets of a topic",
        T.GET_STATS,
        (f"{_OLD_STATS}/{_OLD_TOPIC}/stats",),
        refusals={404: "no WebSocket is open on the topic"},
        anywhere=True,
    ),
)
