"""WebSocket requests that name topics in parameters.

They have no headers of a handshake: the answer to an allowed one is 426.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from access_matrix.calls import Calls
from access_matrix.columns import OTHER_TENANT, TENANT, Column
from access_matrix.objects import BARE, SHARED
from magnetar.http.endpoints.websocket import WEBSOCKET

ALLOWED = 426
PRODUCE, CONSUME = "producer", "consumer"
OWN = f"persistent://{TENANT}/{SHARED}/ws"
TOPICS = (OWN, f"persistent://{TENANT}/{BARE}/ws", f"persistent://{OTHER_TENANT}/{SHARED}/ws")

Need = tuple[str, str]
"""Producing or consuming, and of which topic."""


@dataclass(frozen=True, slots=True)
class Naming:
    """A request that names a topic in a parameter."""

    parameter: str
    path: str
    needs: Sequence[Need]
    """All that the client has to be allowed."""


def parameters_that_name_topics() -> set[str]:
    named = (parameter for endpoint in WEBSOCKET if endpoint.upgrades for parameter in endpoint.parameters)
    return {parameter.name for parameter in named if "topic" in parameter.name.lower()}


def namings() -> Iterator[Naming]:
    own = f"/ws/v2/consumer/{OWN.replace('://', '/')}/s"
    several = "/ws/v3/consumer/s"
    for topic in TOPICS:
        quoted, pattern = quote(topic, ""), quote(topic[:-2] + ".*", "")
        consumed = (CONSUME, topic)
        for types in ("", "&subscriptionType=Shared", "&subscriptionType=Key_Shared&maxRedeliverCount=1"):
            dead = f"deadLetterTopic={quoted}{types}"
            produced = (PRODUCE, topic)
            yield Naming("deadLetterTopic", f"{own}?{dead}", [(CONSUME, OWN), produced])
            listed = f"{several}?topics={quote(OWN, '')}&{dead}"
            yield Naming("deadLetterTopic", listed, [(CONSUME, OWN), produced])
        yield Naming("topics", f"{several}?topics={quoted}", [consumed])
        yield Naming("topics", f"{several}?topics={quote(OWN, '')},{quoted}", [(CONSUME, OWN), consumed])
        yield Naming("topicsPattern", f"{several}?topicsPattern={pattern}", [consumed])
        by_default = f"{several}?topics={quoted}&subscriptionType=Shared&maxRedeliverCount=2"
        yield Naming("topics", by_default, [consumed, (PRODUCE, topic)])


def may(calls: Calls, column: Column, need: Need) -> bool:
    """Whether the topic's own path lets a client in."""
    kind, topic = need
    path = f"/ws/v2/{kind}/{topic.replace('://', '/')}" + ("/s" if kind == CONSUME else "")
    return asked(calls, column, path)


def asked(calls: Calls, column: Column, path: str) -> bool:
    """Whether a client is let in."""
    status, answer = calls.ask(column, "GET", path)
    assert status in (ALLOWED, 401, 403), (column.name, path, status, answer)
    return status == ALLOWED
