"""Log lines about topics, producers, consumers and subscriptions, one line for each event.

``magnetar.server.logs`` limits the number of lines per second.
"""

from __future__ import annotations

import logging
from typing import Protocol

from magnetar.invariants import told

log = logging.getLogger(__name__)


class _From(Protocol):
    """A producer, consumer or connection of a client."""

    name: str
    address: str
    client_version: str


def topic_opened(topic: str, *, made: bool, milliseconds: float) -> None:
    """Logs that a topic was loaded.

    :param made: whether the topic is new
    """
    log.info(
        "topic created" if made else "topic opened", extra={"topic": topic, "ms": round(milliseconds, 1)}
    )


def topic_closed(topic: str) -> None:
    log.info("topic closed", extra={"topic": topic})


def topic_failed(topic: str, error: BaseException) -> None:
    """Logs that a topic is closed after an internal error.

    :param error: a broken invariant, or the error of a task
    """
    log.error(
        "topic failed because of an internal error; it is closed, and loaded again after a pause",
        extra={"topic": topic, **told(error)},
    )


def topic_deleted(topic: str) -> None:
    log.info("topic deleted", extra={"topic": topic})


def producer_came(topic: str, producer: _From) -> None:
    log.info("producer opened", extra={"topic": topic, "producer": producer.name, **_who(producer)})


def producer_left(topic: str, producer: _From) -> None:
    log.info("producer closed", extra={"topic": topic, "producer": producer.name, "peer": producer.address})


def consumer_came(topic: str, subscription: str, kind: str, consumer: _From) -> None:
    names = {"topic": topic, "subscription": subscription, "type": kind, "consumer": consumer.name}
    log.info("consumer opened", extra=names | _who(consumer))


def consumer_left(topic: str, subscription: str, consumer: _From) -> None:
    names = {"topic": topic, "subscription": subscription, "consumer": consumer.name}
    log.info("consumer closed", extra=names | {"peer": consumer.address})


def subscription_made(topic: str, subscription: str, *, durable: bool) -> None:
    log.info("subscription created", extra={"topic": topic, "subscription": subscription, "durable": durable})


def subscription_deleted(topic: str, subscription: str) -> None:
    log.info("subscription deleted", extra={"topic": topic, "subscription": subscription})


def refused(request: str, peer: str, reason: str) -> None:
    """Logs that a client's request was refused."""
    log.info("request refused", extra={"request": request, "peer": peer, "reason": reason})


def unauthenticated(peer: str, role: str, reason: str) -> None:
    """Logs that a connection is closed because its client is no longer authenticated."""
    log.warning(
        "closing the connection: the client's credentials are no longer accepted",
        extra={"peer": peer, "role": role, "reason": reason},
    )


def revoked(what: str, peer: str, role: str, reason: str) -> None:
    """Logs that an object of a client is closed because the client's role has lost the permission."""
    log.warning(f"closing a {what}", extra={"peer": peer, "role": role, "reason": reason})


def _who(client: _From) -> dict[str, str]:
    return {"peer": client.address, "client": client.client_version}
