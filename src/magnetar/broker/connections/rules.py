"""Authorization rules of commands: one in each row of the table of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.replicators import remote_cluster_of
from magnetar.protocol.wire_ids import signed
from magnetar.security.authorization import check
from magnetar.security.operations import NamespaceOperation, Operation, TopicOperation
from magnetar.security.target import Target

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection

Targets = Callable[["Connection", Any], Sequence[tuple[Operation, Target]]]


@dataclass(frozen=True, slots=True)
class Rule:
    """The permissions that a command needs, from its message. None: those checked earlier are enough."""

    why: str
    """The reason, for readers of the table."""
    asks: Targets | None = None

    async def check(self, connection: Connection, message: Any) -> None:
        """:raises AuthorizationFailure: the client may not do it

        :raises InvalidTopicName: the topic's or namespace's name is invalid
        """
        authorizer = connection.broker.authorizer
        if self.asks is None or not authorizer.asks:
            return
        for operation, target in self.asks(connection, message):
            await check(authorizer, connection.session.principal, operation, target)


class Standing:
    """The permissions of a request that waits for other things after they were checked."""

    def __init__(self, connection: Connection, rule: Rule, message: Any) -> None:
        self._connection = connection
        self._rule = rule
        self._message = message
        self._generation = -1

    async def check(self) -> None:
        """Checks again, if permissions may have changed since the last check.

        :raises AuthorizationFailure: the client may not do it, or not any more
        """
        revocation = self._connection.broker.revocation
        while self._generation != revocation.generation:
            self._generation = revocation.generation
            await self._rule.check(self._connection, self._message)


def _of_topic(operation: Operation) -> Targets:
    return lambda connection, message: [
        (operation, Target.of_topic(connection.broker.parse_topic(message.topic)))
    ]


def _produces(connection: Connection, message: Any) -> Sequence[tuple[Operation, Target]]:
    """Includes consuming from a subscription that is created along with the producer.

    A producer's name with the replicator prefix requires permission to replicate: it may send what clients
    may not.
    """
    name = connection.broker.parse_topic(message.topic)
    asked: list[tuple[Operation, Target]] = [(TopicOperation.PRODUCE, Target.of_topic(name))]
    prefix = connection.broker.settings.topic.replicator_prefix
    if remote_cluster_of(prefix, message.producer_name) is not None:
        asked.append((TopicOperation.REPLICATE, Target.of_topic(name)))
    if message.initial_subscription_name:
        asked.append((TopicOperation.SUBSCRIBE, Target.of_topic(name, message.initial_subscription_name)))
    return asked


def _subscribes(connection: Connection, message: Any) -> Sequence[tuple[Operation, Target]]:
    name = connection.broker.parse_topic(message.topic)
    return [(TopicOperation.CONSUME, Target.of_topic(name, message.subscription))]


def _of_namespace(connection: Connection, message: Any) -> Sequence[tuple[Operation, Target]]:
    namespace = connection.broker.parse_namespace(message.namespace)
    return [(NamespaceOperation.GET_TOPICS, Target.of_namespace(namespace))]


def _of_consumer(operation: Operation) -> Targets:
    """Asks for nothing if the consumer does not exist: the handler reports that."""

    def asks(connection: Connection, message: Any) -> Sequence[tuple[Operation, Target]]:
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
HELD = Rule("it concerns what the client has opened, and was allowed to")
SESSION = Rule("it concerns the connection itself")
REFUSED = Rule("it is refused whoever asks")
