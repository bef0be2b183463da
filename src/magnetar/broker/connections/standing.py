"""Checks the permissions of all that a client has opened again after permissions have changed."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol

from magnetar.broker import events
from magnetar.broker.connections.session import Session
from magnetar.broker.publishing.producer import Producer
from magnetar.naming.namespace_name import NamespaceName
from magnetar.security.authorization import Authorizer
from magnetar.security.operations import NamespaceOperation, TopicOperation
from magnetar.security.principal import Principal
from magnetar.security.target import Target

Touched = Set[NamespaceName | str] | None
"""Changed namespaces, and tenants by their names; None: everything."""


class CheckedConnection(Protocol):
    """The connection, in a layer above this one: has the session, and tells its client what is closed."""

    session: Session

    @property
    def address(self) -> str: ...
    def close_producer(self, producer: Producer) -> None: ...
    def close_consumer(self, consumer: Any) -> None: ...
    def stop_watching(self, watcher_id: int) -> None: ...


async def ask_again(connection: CheckedConnection, authorizer: Authorizer, touched: Touched) -> None:
    """Closes what the client may no longer use; the client reconnects and is refused.

    :raises MetadataFailure: the permissions cannot be read
    """
    session = connection.session
    for producer in list(session.producers.values()):
        name = producer.topic.name
        if not _is_touched(name.namespace_name, touched):
            continue
        reason = await authorizer.refusal(session.principal, TopicOperation.PRODUCE, Target.of_topic(name))
        if reason is None:
            reason = await guard(authorizer, session.principal, producer)
        if reason is not None and session.producers.get(producer.producer_id) is producer:
            _tell(connection, "producer", reason)
            producer.topic.remove_producer(producer)
            connection.close_producer(producer)
    for consumer in list(session.consumers.values()):
        name = consumer.subscription.topic.name
        if not _is_touched(name.namespace_name, touched):
            continue
        target = Target.of_topic(name, consumer.subscription.name)
        reason = await authorizer.refusal(session.principal, TopicOperation.CONSUME, target)
        if reason is not None and session.consumers.get(consumer.consumer_id) is consumer:
            _tell(connection, "consumer", reason)
            consumer.subscription.remove(consumer)
            connection.close_consumer(consumer)
    for watcher_id, watched in list(session.topic_watchers.items()):
        if not _is_touched(watched.namespace, touched):
            continue
        target = Target.of_namespace(watched.namespace)
        reason = await authorizer.refusal(session.principal, NamespaceOperation.GET_TOPICS, target)
        if reason is not None:
            _tell(connection, "topic list", reason)
            connection.stop_watching(watcher_id)


async def guard(authorizer: Authorizer, principal: Principal, producer: Producer) -> str | None:
    """Has a producer's entries checked, if its client may not send what only brokers may.

    :return: why a replicator's producer is refused; None: it is permitted, or not a replicator's
    :raises MetadataFailure: the permissions cannot be read
    """
    if not authorizer.asks:
        return None
    target = Target.of_topic(producer.topic.name)
    reason = await authorizer.refusal(principal, TopicOperation.REPLICATE, target)
    if producer.remote_cluster is not None:
        return reason
    producer.guard(reason or "")
    return None


def _tell(connection: CheckedConnection, what: str, reason: str) -> None:
    events.revoked(what, connection.address, connection.session.principal.named, reason)


def _is_touched(namespace: NamespaceName, touched: Touched) -> bool:
    return touched is None or namespace in touched or namespace.tenant in touched
