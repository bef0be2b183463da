"""What a client has opened, asked again whether it may: something of who may do what has changed."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from magnetar.broker import events
from magnetar.naming.namespace_name import NamespaceName
from magnetar.security.operations import NamespaceOperation, Operation, TopicOperation
from magnetar.security.target import Target

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection

Touched = Set[NamespaceName | str] | None
"""Namespaces, and tenants by their names; None: everything."""


async def ask_again(connection: Connection, touched: Touched) -> None:
    """Closes what its client may not have any more; the client is told, comes back, and is refused.

    :raises MetadataFailure: it cannot be known now
    """
    session = connection.session
    for producer in list(session.producers.values()):
        name = producer.topic.name
        if not _is_touched(name.namespace_name, touched):
            continue
        reason = await _refusal(connection, TopicOperation.PRODUCE, Target.of_topic(name))
        if reason is not None and session.producers.get(producer.producer_id) is producer:
            _tell(connection, "producer", reason)
            producer.topic.remove_producer(producer)
            connection.close_producer(producer)
    for consumer in list(session.consumers.values()):
        name = consumer.subscription.topic.name
        if not _is_touched(name.namespace_name, touched):
            continue
        target = Target.of_topic(name, consumer.subscription.name)
        reason = await _refusal(connection, TopicOperation.CONSUME, target)
        if reason is not None and session.consumers.get(consumer.consumer_id) is consumer:
            _tell(connection, "consumer", reason)
            consumer.subscription.remove(consumer)
            connection.close_consumer(consumer)
    for watcher_id, watched in list(session.topic_watchers.items()):
        if not _is_touched(watched.namespace, touched):
            continue
        reason = await _refusal(
            connection, NamespaceOperation.GET_TOPICS, Target.of_namespace(watched.namespace)
        )
        if reason is not None:
            _tell(connection, "topic list", reason)
            connection.broker.topic_lists.close(connection, watcher_id)


async def _refusal(connection: Connection, operation: Operation, target: Target) -> str | None:
    return await connection.broker.authorizer.refusal(connection.session.principal, operation, target)


def _tell(connection: Connection, what: str, reason: str) -> None:
    events.revoked(what, connection.address, connection.session.principal.named, reason)


def _is_touched(namespace: NamespaceName, touched: Touched) -> bool:
    return touched is None or namespace in touched or namespace.tenant in touched
