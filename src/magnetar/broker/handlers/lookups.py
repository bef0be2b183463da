"""Where topics are, how many partitions they have, and which there are."""

from __future__ import annotations

from typing import Any

from magnetar.broker.connection import Connection
from magnetar.broker.topic_patterns import topics_matching
from magnetar.naming.hashes import topic_list_hash
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)


def partitioned_metadata(connection: Connection, command: BaseCommand) -> None:
    request = command.partitionMetadata
    connection.broker.io.loop.create_task(
        _partitioned_metadata(
            connection,
            request.topic,
            request.request_id,
            only_look=not request.metadata_auto_creation_enabled,
        )
    )


async def _partitioned_metadata(
    connection: Connection, topic: str, request_id: int, *, only_look: bool
) -> None:
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    response = answer.partitionMetadataResponse
    response.request_id = request_id
    try:
        broker = connection.broker
        name = broker.parse_topic(topic)
        if only_look:
            response.partitions = await broker.creation.existing_partitions(name)
        else:
            response.partitions = await broker.creation.partitions_or_create(name)
        response.response = CommandPartitionedTopicMetadataResponse.Success
    except Exception as error:  # noqa: BLE001 - told to the client in the response's own form
        told = connection.broker.told(error)
        response.response = CommandPartitionedTopicMetadataResponse.Failed
        response.error = int(told.code)  # type: ignore[assignment]
        response.message = str(told)
    connection.send(answer)


def lookup(connection: Connection, command: BaseCommand) -> None:
    request = command.lookupTopic
    connection.broker.io.loop.create_task(_lookup(connection, request))


async def _lookup(connection: Connection, request: Any) -> None:
    answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    response = answer.lookupTopicResponse
    response.request_id = request.request_id
    broker = connection.broker
    try:
        name = broker.parse_topic(request.topic)
        await broker.check_lookup(name)
        response.brokerServiceUrl = broker.service_url
        response.response = CommandLookupTopicResponse.Connect
        response.authoritative = True
        response.proxy_through_service_url = True
    except Exception as error:  # noqa: BLE001 - told to the client in the response's own form
        told = broker.told(error)
        response.response = CommandLookupTopicResponse.Failed
        response.error = int(told.code)  # type: ignore[assignment]
        response.message = str(told)
    connection.send(answer)


async def topics_of_namespace(connection: Connection, request: CommandGetTopicsOfNamespace) -> None:
    broker = connection.broker
    names: list[str] = []
    if request.mode in (CommandGetTopicsOfNamespace.PERSISTENT, CommandGetTopicsOfNamespace.ALL):
        names = await broker.topic_names(request.namespace)
    matching = topics_matching(names, request.topics_pattern) if request.HasField("topics_pattern") else None
    filtered = matching is not None
    if matching is not None:
        names = matching
    answer = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    response = answer.getTopicsOfNamespaceResponse
    response.request_id = request.request_id
    digest = topic_list_hash(names)
    response.changed = not (request.topics_hash and request.topics_hash == digest)
    if response.changed:
        response.topics.extend(names)
    response.filtered = filtered
    response.topics_hash = digest
    connection.send(answer)
