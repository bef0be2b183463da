"""Endpoints of stored messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.broker.admin.browsing import MOST_MESSAGES
from magnetar.broker.admin.messages import MessageAdmin
from magnetar.errors import InvalidRequest
from magnetar.http.calls import as_json, calls
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application, Endpoint, Parameter
from magnetar.http.shapes.fields import choice
from magnetar.http.shapes.names import TOPIC, number_in_path, topic_of
from magnetar.security.authorization import TopicOperation as T

if TYPE_CHECKING:
    from magnetar.http.large_messages import LargeMessages


_PATH = "/{topic}/subscription/{subscription}"
_LARGE = {
    413: "the uncompressed message is too large for HTTP",
    503: "there is not enough memory for a large message at present, or the broker is starting or stopping",
}


async def _peek(application: Application, request: Request) -> Response:
    number = number_in_path("messagePosition")(request)
    topic, subscription = topic_of(request.variables), request.variables["subscription"]
    return await _answers(application).answer(
        lambda: application.admin.messages.peek(topic, subscription, number)
    )


async def _by_id(application: Application, request: Request) -> Response:
    wanted = number_in_path("ledgerId")(request), number_in_path("entryId")(request)
    topic = topic_of(request.variables)
    return await _answers(application).answer(lambda: application.admin.messages.by_id(topic, wanted))


async def _browse(application: Application, request: Request) -> Response:
    query = request.query
    position, time_ms = query.get("position"), query.get("time")
    return json_response(
        await application.admin.browsing.browse(
            topic_of(request.variables),
            count=_number("count", query.get("count", "20"), 1, MOST_MESSAGES),
            position=None if position is None else _position(position),
            time_ms=None if time_ms is None else _number("time", time_ms, 0, 2**63 - 1),
            key=query.get("key"),
        )
    )


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise InvalidRequest(f"{name} must be a whole number from {least} to {most}, not {text!r}")
    return int(text)


def _position(text: str) -> tuple[int, int]:
    ledger, _, entry = text.partition(":")
    if not (text.isascii() and ledger.isdigit() and entry.isdigit() and len(text) < 40):
        raise InvalidRequest(f"position must be LEDGER:ENTRY, not {text!r}")
    return int(ledger), int(entry)


async def _examine(application: Application, request: Request) -> Response:
    start = choice("earliest", "latest")("initialPosition", request.query.get("initialPosition", "latest"))
    try:
        number = int(text := request.query.get("messagePosition", "1"))
    except ValueError:
        raise InvalidRequest(f"messagePosition must be a whole number, not {text!r}") from None
    topic, earliest = topic_of(request.variables), start == "earliest"
    return await _answers(application).answer(
        lambda: application.admin.messages.examine(topic, number, earliest=earliest)
    )


def _answers(application: Application) -> LargeMessages:
    assert application.messages is not None, "the server sets it"
    return application.messages


MESSAGES: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/{topic}/ledger/{ledgerId}/entry/{entryId}",
        _by_id,
        "a message",
        T.PEEK_MESSAGES,
        audited=True,
        refusals=_LARGE,
    ),
    Endpoint(
        "GET",
        "/{topic}/examinemessage",
        _examine,
        "the n-th message from the beginning or the end",
        T.PEEK_MESSAGES,
        audited=True,
        parameters=(
            Parameter("initialPosition", "text", "latest"),
            Parameter("messagePosition", "whole", "1"),
        ),
        refusals=_LARGE,
    ),
    Endpoint(
        "GET",
        _PATH + "/position/{messagePosition}",
        _peek,
        "the n-th unacknowledged message",
        T.PEEK_MESSAGES,
        audited=True,
        refusals=_LARGE,
    ),
    Endpoint(
        "GET",
        "/{topic}/internal-info",
        calls(MessageAdmin.stored, TOPIC, answer=as_json),
        "properties of the managed ledger in the metadata",
        T.GET_METADATA,
    ),
)
"""Endpoints for single messages; their paths are relative to the path of the namespace."""
BROWSING: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/admin/v2/magnetar/messages/persistent/{tenant}/{namespace}/{topic}",
        _browse,
        "messages from a position or time on, or the last ones, decoded by their schemas",
        T.PEEK_MESSAGES,
        audited=True,
        parameters=(
            Parameter("count", "whole", "20"),
            Parameter("position", "text"),
            Parameter("time", "whole"),
            Parameter("key", "text"),
        ),
        refusals={405: "the topic is partitioned"},
    ),
)
"""Endpoints, which Apache Pulsar does not have, for browsing stored messages."""
