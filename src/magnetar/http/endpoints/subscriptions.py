"""Endpoints for subscriptions, and for the backlogs of topics and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.broker.admin.backlogs import BacklogAdmin
from magnetar.broker.admin.subscriptions import SubscriptionAdmin
from magnetar.errors import InvalidRequest
from magnetar.http.calls import as_json, calls
from magnetar.http.engine.message import Request
from magnetar.http.routing import Endpoint, Parameter
from magnetar.http.shapes.fields import body, flag, message_position, text_map, truth, whole
from magnetar.http.shapes.names import TOPIC, number_in_path, variable
from magnetar.managed_ledger.position import EARLIEST, LATEST
from magnetar.security.authorization import TopicOperation as T

_SUBSCRIPTION = variable("subscription")
_SECONDS = number_in_path("expireTimeInSeconds")
_PATH = "/{topic}/subscription/{subscription}"
_KIND = {405: "the operation is not possible on a topic of this kind"}
_NOTHING = {409: "messages cannot be acknowledged"}


def _start(request: Request) -> tuple[int, int] | None:
    """Returns the start position of a new subscription as (ledger id, entry id); None: after the last
    message.
    """
    if not request.has_value:
        return None
    value = request.json()
    if value in ("earliest", "latest"):
        return EARLIEST if value == "earliest" else LATEST
    position = message_position(value)
    if value.get("excluded") and position[0] >= 0 and position != LATEST:
        position = (position[0], position[1] + 1)
    return position


def _properties(request: Request) -> Mapping[str, str]:
    """Returns the properties that the body gives for a new subscription."""
    value = request.json() if request.has_value else None
    given = value.get("properties") if isinstance(value, dict) else None
    found: Mapping[str, str] = text_map("properties", given or {})
    return found


def _count(request: Request) -> int:
    """Returns the number of messages to skip, which is part of the path.

    :raises InvalidRequest: the number is negative
    """
    count = number_in_path("numMessages")(request)
    if count < 0:
        raise InvalidRequest(f"The number of messages to skip must be 0 or more, not {count}")
    return count


def _position(request: Request) -> tuple[int, int]:
    return message_position(request.json())


def _optional_position(request: Request) -> tuple[int, int] | None:
    return _position(request) if request.has_value else None


def _behind(request: Request) -> bool:
    """Whether a reset must move the subscription to the position after the given message, so that the message
    is not delivered again.
    """
    value = request.json()
    return isinstance(value, dict) and value.get("excluded") is True


def _batch_index(request: Request) -> int:
    return int(whole()("messageId.batchIndex", request.json().get("batchIndex", -1)))


SUBSCRIPTIONS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/{topic}/backlog",
        calls(BacklogAdmin.estimate, TOPIC, answer=as_json),
        "size and backlog of a topic",
        T.GET_BACKLOG_SIZE,
        refusals={406: "the topic is not persistent"},
    ),
    Endpoint(
        "DELETE",
        "/{topic}/truncate",
        calls(BacklogAdmin.truncate, TOPIC),
        "delete all messages; subscriptions move to the end",
        T.TRUNCATE,
        each=True,
    ),
    Endpoint(
        "POST",
        _PATH + "/expireMessages/{expireTimeInSeconds}",
        calls(BacklogAdmin.expire, TOPIC, _SUBSCRIPTION, _SECONDS),
        "expire messages older than a number of seconds",
        T.EXPIRE_MESSAGES,
        refusals=_NOTHING,
        each=True,
    ),
    Endpoint(
        "POST",
        _PATH + "/expireMessages",
        calls(BacklogAdmin.expire_to, TOPIC, _SUBSCRIPTION, _position, behind=_behind),
        "expire messages up to a position",
        T.EXPIRE_MESSAGES,
        body="ResetCursorData",
        refusals=_NOTHING,
    ),
    Endpoint(
        "POST",
        "/{topic}/all_subscription/expireMessages/{expireTimeInSeconds}",
        calls(BacklogAdmin.expire_all, TOPIC, _SECONDS),
        "expire messages older than a number of seconds, for all subscriptions",
        T.EXPIRE_MESSAGES,
        refusals=_NOTHING,
        each=True,
    ),
    Endpoint(
        "POST",
        _PATH + "/analyzeBacklog",
        calls(BacklogAdmin.analyze, TOPIC, _SUBSCRIPTION, _optional_position, answer=as_json),
        "analyze the backlog of a subscription",
        T.CONSUME,
        asks=True,
        body="ResetCursorData",
        success=200,
        refusals=_KIND,
    ),
    Endpoint(
        "GET",
        "/{topic}/subscriptions",
        calls(SubscriptionAdmin.names, TOPIC, answer=as_json),
        "list subscriptions",
        T.GET_SUBSCRIPTIONS,
    ),
    Endpoint(
        "PUT",
        _PATH,
        calls(
            SubscriptionAdmin.create, TOPIC, _SUBSCRIPTION, _start, _properties, replicated=flag("replicated")
        ),
        "create a subscription",
        T.SUBSCRIBE,
        parameters=(Parameter("replicated", "truth", "false"),),
        body="ResetCursorData",
        refusals={409: "the object already exists", 405: "the topic has reached its limit of subscriptions"},
        each=True,
    ),
    Endpoint(
        "DELETE",
        _PATH,
        calls(SubscriptionAdmin.delete, TOPIC, _SUBSCRIPTION, force=flag("force")),
        "delete a subscription",
        T.UNSUBSCRIBE,
        parameters=(Parameter("force", "truth", "false"),),
        each=True,
    ),
    Endpoint(
        "GET",
        _PATH + "/properties",
        calls(SubscriptionAdmin.properties, TOPIC, _SUBSCRIPTION, answer=as_json),
        "properties of a subscription",
        T.CONSUME,
    ),
    Endpoint(
        "PUT",
        _PATH + "/properties",
        calls(SubscriptionAdmin.set_properties, TOPIC, _SUBSCRIPTION, body(text_map, "properties")),
        "replace the properties of a subscription",
        T.CONSUME,
        body="map<string,string>",
        each=True,
    ),
    Endpoint(
        "POST",
        _PATH + "/skip_all",
        calls(SubscriptionAdmin.skip_all, TOPIC, _SUBSCRIPTION),
        "clear the backlog of a subscription",
        T.SKIP,
        each=True,
    ),
    Endpoint(
        "POST",
        _PATH + "/skip/{numMessages}",
        calls(SubscriptionAdmin.skip, TOPIC, _SUBSCRIPTION, _count),
        "skip messages",
        T.SKIP,
    ),
    Endpoint(
        "POST",
        _PATH + "/resetcursor/{timestamp}",
        calls(SubscriptionAdmin.reset_to_time, TOPIC, _SUBSCRIPTION, number_in_path("timestamp")),
        "reset a subscription to a time",
        T.RESET_CURSOR,
        each=True,
    ),
    Endpoint(
        "POST",
        _PATH + "/resetcursor",
        calls(
            SubscriptionAdmin.reset_to,
            TOPIC,
            _SUBSCRIPTION,
            _position,
            behind=_behind,
            batch_index=_batch_index,
        ),
        "reset a subscription to a message",
        T.RESET_CURSOR,
        body="ResetCursorData",
    ),
    Endpoint(
        "GET",
        _PATH + "/replicatedSubscriptionStatus",
        calls(SubscriptionAdmin.replicated, TOPIC, _SUBSCRIPTION, answer=as_json),
        "whether a subscription is replicated",
        T.GET_REPLICATED_SUBSCRIPTION_STATUS,
    ),
    Endpoint(
        "POST",
        _PATH + "/replicatedSubscriptionStatus",
        calls(SubscriptionAdmin.set_replicated, TOPIC, _SUBSCRIPTION, body(truth, "replicated")),
        "set whether a subscription is replicated",
        T.SET_REPLICATED_SUBSCRIPTION_STATUS,
        body="bool",
        sets="replicated",
        each=True,
    ),
)
"""Endpoints for subscriptions and backlogs; their paths are relative to the path of the namespace."""
