"""Applies a topic's policies to the schemas of its producers and consumers."""

from __future__ import annotations

from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.schemas.data import NO_VERSION, SchemaData, SchemaType, version_bytes
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import IncompatibleSchema


async def for_producer(registry: SchemaRegistry, topic: AnyTopic, schema: SchemaData | None) -> bytes:
    """Returns the version that a producer publishes with; a new schema is added.

    :param schema: None if the producer declares none
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
    """Checks a consumer's schema; on an unused topic it becomes the topic's schema.

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
