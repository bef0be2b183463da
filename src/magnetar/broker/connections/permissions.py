"""Permissions of a connection: the rule of each command, and checks after permissions have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Generic, TypeVar

from magnetar.broker import events
from magnetar.broker.publishing.producer import Producer
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.replicators import remote_cluster_of
from magnetar.protocol.frames import signed
from magnetar.protocol.pulsar_api_pb2 import (
    CommandGetLastMessageId,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    CommandWatchTopicList,
)
from magnetar.security.authentication import Principal
from magnetar.security.authorization import (
    Authorizer,
    BrokerOperation,
    NamespaceOperation,
    Operation,
    Target,
    TopicOperation,
    check,
)

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection

M_contra = TypeVar("M_contra", contravariant=True)
"""The type of a command's message."""
Targets = Callable[["Connection", M_contra], Sequence[tuple[Operation, Target]]]
Touched = Set[NamespaceName | str] | None
"""The changed namespaces, and the names of the changed tenants; None: everything may have changed."""


OfTopic = CommandGetOrCreateSchema | CommandGetSchema | CommandLookupTopic | CommandPartitionedTopicMetadata
OfNamespace = CommandGetTopicsOfNamespace | CommandWatchTopicList
OfConsumer = CommandGetLastMessageId | CommandSeek | CommandUnsubscribe


@dataclass(frozen=True, slots=True)
class Rule(Generic[M_contra]):
    """The permissions that a command needs. ``asks`` determines them from the command's message; if ``asks``
    is None, earlier checks are sufficient. Each row of the table of commands has a rule."""

    why: str
    """The reason for the rule, for readers of the table."""
    asks: Targets[M_contra] | None = None

    async def check(self, connection: Connection, message: M_contra) -> None:
        """Checks that the client of a connection has the permissions for a command.

        :raises AuthorizationFailure: the client lacks a permission
        :raises InvalidTopicName: the topic's or namespace's name is invalid
        """
        authorizer = connection.broker.authorizer
        if self.asks is None or not authorizer.asks:
            return
        for operation, target in self.asks(connection, message):
            await check(authorizer, connection.session.principal, operation, target)


class Standing(Generic[M_contra]):
    """The permission check of a request that is carried out in several steps, repeated before each step."""

    def __init__(self, connection: Connection, rule: Rule[M_contra], message: M_contra) -> None:
        self._connection = connection
        self._rule = rule
        self._message = message
        self._generation = -1

    async def check(self) -> None:
        """Checks again if permissions may have changed since the last check.

        :raises AuthorizationFailure: the client lacks a permission
        """
        revocation = self._connection.broker.revocation
        while self._generation != revocation.generation:
            self._generation = revocation.generation
            await self._rule.check(self._connection, self._message)


def _of_topic(operation: Operation) -> Targets[OfTopic]:
    return lambda connection, message: [
        (operation, Target.of_topic(connection.broker.parse_topic(message.topic)))
    ]


def _produces(connection: Connection, message: CommandProducer) -> Sequence[tuple[Operation, Target]]:
    """Returns the operations of PRODUCER, including consuming from a subscription that is created with the
    producer.

    A producer's name with the replicator prefix requires permission to replicate, because a replicator's
    producer may send entries that other clients may not.
    """
    name = connection.broker.parse_topic(message.topic)
    asked: list[tuple[Operation, Target]] = [(TopicOperation.PRODUCE, Target.of_topic(name))]
    prefix = connection.broker.settings.topic.replicator_prefix
    if remote_cluster_of(prefix, message.producer_name) is not None:
        asked.append((TopicOperation.REPLICATE, Target.of_topic(name)))
    if message.initial_subscription_name:
        asked.append((TopicOperation.SUBSCRIBE, Target.of_topic(name, message.initial_subscription_name)))
    return asked


def _subscribes(connection: Connection, message: CommandSubscribe) -> Sequence[tuple[Operation, Target]]:
    name = connection.broker.parse_topic(message.topic)
    return [(TopicOperation.CONSUME, Target.of_topic(name, message.subscription))]


def _of_namespace(connection: Connection, message: OfNamespace) -> Sequence[tuple[Operation, Target]]:
    namespace = connection.broker.parse_namespace(message.namespace)
    return [(NamespaceOperation.GET_TOPICS, Target.of_namespace(namespace))]


def _of_consumer(operation: Operation) -> Targets[OfConsumer]:
    """Returns a function that yields the operation on the consumer's subscription, or nothing if the consumer
    does not exist; the handler then reports that the consumer does not exist.
    """

    def asks(connection: Connection, message: OfConsumer) -> Sequence[tuple[Operation, Target]]:
        consumer = connection.session.consumers.get(signed(message.consumer_id))
        if consumer is None:
            return []
        subscription = consumer.subscription
        return [(operation, Target.of_topic(subscription.topic.name, subscription.name))]

    return asks


LOOKUP = Rule("to find a topic", _of_topic(TopicOperation.LOOKUP))
PRODUCER = Rule("to publish; asked once the producer's id is taken", _produces)
SUBSCRIBE = Rule("to consume; asked once the consumer's id is taken", _subscribes)
TOPICS = Rule("to list topics", _of_namespace)
UNSUBSCRIBE = Rule("to delete a subscription", _of_consumer(TopicOperation.UNSUBSCRIBE))
SEEK = Rule("to move a subscription", _of_consumer(TopicOperation.RESET_CURSOR))
LAST_MESSAGE = Rule("to read", _of_consumer(TopicOperation.CONSUME))
GET_SCHEMA = Rule("to read schemas", _of_topic(TopicOperation.GET_SCHEMA))
ADD_SCHEMA = Rule("to add schemas", _of_topic(TopicOperation.CREATE_SCHEMA))
OUTCOME: Rule[object] = Rule(
    "the outcome of transactions comes from brokers",
    lambda _c, _m: [(BrokerOperation.END_TRANSACTIONS, Target())],
)
HELD: Rule[object] = Rule("it concerns what the client has opened, and was allowed to")
SESSION: Rule[object] = Rule("it concerns the connection itself")
TRANSACTIONS: Rule[object] = Rule("every client may begin transactions; what it does in them is asked there")
TRANSACTION: Rule[object] = Rule("a transaction belongs to the role that began it; the handler asks")


async def ask_again(connection: Connection, authorizer: Authorizer, touched: Touched) -> None:
    """Closes everything that the client may no longer use; the client reconnects and is refused.

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
            producer.topic.producers.remove(producer)
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
            connection.broker.topic_lists.close(connection, watcher_id)


async def guard(authorizer: Authorizer, principal: Principal, producer: Producer) -> str | None:
    """Enables the check of a producer's entries if its client may not send entries reserved for brokers.

    :return: the reason to refuse a replicator's producer; None: the producer is permitted, or is not a
        replicator's
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


def _tell(connection: Connection, what: str, reason: str) -> None:
    events.revoked(what, connection.address, connection.session.principal.named, reason)


def _is_touched(namespace: NamespaceName, touched: Touched) -> bool:
    return touched is None or namespace in touched or namespace.tenant in touched
