"""Topics of either kind: the schemas of their clients, and their migration to another cluster (PIP-188)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from magnetar.broker.flow.connection import Assigned
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.schemas.data import NO_VERSION, SchemaData, SchemaType, version_bytes
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.base import BaseTopic
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    BrokerError,
    IncompatibleSchema,
    PersistentTopicRequired,
    ServiceNotReady,
    TopicMigrated,
)
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError

if TYPE_CHECKING:
    from magnetar.broker.transactions import TxnId

AnyTopic = Topic | NonPersistentTopic
AnyBaseTopic = BaseTopic[Subscription] | BaseTopic[NonPersistentSubscription]
"""A topic of either kind, typed by its base class because its kind is not known yet; see :data:`AnyTopic`."""
T = TypeVar("T", bound=AnyTopic)
_MOST_NAMED = 5
MIGRATED = "migrated"
"""The property of the managed ledger of a migrated topic, as Apache Pulsar writes it."""


def persistent(topic: AnyTopic) -> Topic:
    """Returns the topic, typed as a persistent topic.

    :raises PersistentTopicRequired: the topic is non-persistent
    """
    if isinstance(topic, NonPersistentTopic):
        raise PersistentTopicRequired("Need to provide a persistent topic name")
    return topic


def still_open(topics: Sequence[T]) -> Sequence[T]:
    """Returns the topics, which were loaded one after another, if all are still open.

    :raises ServiceNotReady: a topic was unloaded while another was loaded, and no longer has its
        subscriptions in this broker
    """
    for topic in topics:
        topic.check_open()
    return topics


async def for_producer(registry: SchemaRegistry, topic: AnyTopic, schema: SchemaData | None) -> bytes:
    """Returns the version of the schema with which a producer publishes; a new schema is added.

    :param schema: the schema that the producer declares; None: no schema
    :raises IncompatibleSchema: the topic's policies do not allow the schema
    :raises InvalidSchemaData: the schema is invalid
    """
    try:
        return await _version_of(registry, topic, schema)
    except IncompatibleSchema as error:
        topic.hindered(Hindrance.SCHEMA_INCOMPATIBLE, str(error))
        raise


async def _version_of(registry: SchemaRegistry, topic: AnyTopic, schema: SchemaData | None) -> bytes:
    schema_id = topic.schema_path
    policies = topic.policies
    if schema is None:
        if policies.schema_validation and await registry.get(schema_id) is not None:
            raise IncompatibleSchema(
                "Producers cannot connect or send message without a schema to topics with a schema "
                "when SchemaValidationEnforced is enabled"
            )
        return NO_VERSION
    version = await registry.put_if_absent(
        schema_id, schema, policies.schema_compatibility, may_add=policies.auto_update_schema
    )
    return version_bytes(version)


async def for_consumer(registry: SchemaRegistry, topic: AnyTopic, schema: SchemaData | None) -> None:
    """Checks a consumer's schema, or makes it the schema of the topic if the topic is unused and has no
    schema.

    :raises IncompatibleSchema: the consumer cannot read the topic
    :raises InvalidSchemaData: the schema is invalid
    """
    if schema is None or schema.type is SchemaType.AUTO_CONSUME:
        return
    if await registry.get(topic.schema_path) is None and _is_idle(topic):
        await _version_of(registry, topic, schema)
        return
    await registry.check_consumer(topic.schema_path, schema, topic.policies.schema_compatibility)


def _is_idle(topic: AnyTopic) -> bool:
    """Whether the topic has no producers, no consumers with a schema, and no messages."""
    if topic.producers or topic.stored_bytes:
        return False
    return all(
        consumer.takes_any_schema
        for subscription in topic.subscriptions.values()
        for consumer in subscription.consumers
    )


async def move(topic: AnyTopic, there: Assigned) -> None:
    """Terminates a topic in this cluster and redirects its clients to another cluster; producers get their
    receipts first.

    A migrated topic accepts no more messages. Its producers are redirected once two conditions are met: every
    replicator has sent everything, so that the other cluster stores the producers' next messages after the
    replicated messages; and no transaction is open, because the other cluster does not know this cluster's
    transactions, and hides their messages. Its consumers are redirected when they have acknowledged
    everything.

    :raises LedgerError, ManagedLedgerError, MetadataError: the topic cannot be terminated, and stays in use
        in this cluster
    """
    topic.moved = there
    await topic.producers.close_in_order()
    if isinstance(topic, Topic):
        try:
            if topic.managed_ledger.properties.get(MIGRATED) != "true":
                await topic.managed_ledger.set_properties({MIGRATED: "true"})
            await topic.terminate()
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError):
            topic.moved = None
            raise
    else:
        for subscription in list(topic.subscriptions.values()):
            subscription.check_end_of_topic()


def check_not_moved(topic: AnyTopic) -> None:
    """Checks that a topic has not migrated, before a producer is admitted.

    :raises TopicMigrated: clients are redirected to another cluster
    :raises ServiceNotReady: clients will be redirected once the replicators have sent all messages, and the
        open transactions have ended
    """
    there = topic.moved
    if there is None:
        return
    text = moved_text(topic, there)
    topic.hindered(Hindrance.MIGRATED, text)
    if _unreplicated(topic) or _open_transactions(topic):
        raise ServiceNotReady(text)
    raise TopicMigrated(text, there.url, there.url_tls)


def moved_text(topic: AnyTopic, there: Assigned) -> str:
    """Returns the URL to which the topic has moved, and what producers wait for if they are not redirected
    yet."""
    text = f"The topic has moved to {there.url or there.url_tls}"
    backlog = _unreplicated(topic)
    if backlog:
        left = "1 remaining entry" if backlog == 1 else f"{backlog:,} remaining entries"
        text += f"; producers are redirected when the replicators have sent the {left}"
    if transactions := _open_transactions(topic):
        from magnetar.broker.transactions import txn_text

        named = ", ".join(map(txn_text, transactions[:_MOST_NAMED]))
        which = "" if len(transactions) <= _MOST_NAMED else f" and {len(transactions) - _MOST_NAMED:,} more"
        text += f"; producers are redirected when its open transactions have ended: {named}{which}"
    return text


def _unreplicated(topic: AnyTopic) -> int:
    if not isinstance(topic, Topic):
        return 0
    return sum(replicator.backlog() for replicator in topic.replicators.values())


def _open_transactions(topic: AnyTopic) -> list[TxnId]:
    if not isinstance(topic, Topic) or topic.transactions is None:
        return []
    return list(topic.transactions.open)
