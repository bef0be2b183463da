"""Where topics are, how many partitions they have, and which there are."""

from __future__ import annotations

from magnetar.broker.connection import Connection
from magnetar.broker.topic_patterns import topics_matching
from magnetar.naming.hashes import topic_list_hash
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)


async def partitioned_metadata(connection: Connection, request: CommandPartitionedTopicMetadata) -> None:
    """PARTITIONED_METADATA → the number of partitions; whoever may not create only looks (PIP-344)."""
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    response = answer.partitionMetadataResponse
    response.request_id = request.request_id
    try:
        broker = connection.broker
        name = broker.parse_topic(request.topic)
        if request.metadata_auto_creation_enabled:
            response.partitions = await broker.creation.partitions_or_create(name)
        else:
            response.partitions = await broker.creation.existing_partitions(name)
        response.response = CommandPartitionedTopicMetadataResponse.Success
    except Exception as error:  # noqa: BLE001 - told to the client in the response's own form
        told = connection.broker.told(error)
        response.response = CommandPartitionedTopicMetadataResponse.Failed
        response.error = int(told.code)  # type: ignore[assignment]
        response.message = str(told)
    connection.send(answer)


async def lookup(connection: Connection, request: CommandLookupTopic) -> None:
    """LOOKUP → the broker that serves a topic."""
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
    mode = CommandGetTopicsOfNamespace.Mode.Name(request.mode)
    names = await broker.topic_names(request.namespace, mode=mode)
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
