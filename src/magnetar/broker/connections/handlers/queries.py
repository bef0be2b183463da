"""Queries: the brokers of topics, numbers of partitions, lists of topics, schemas."""

from __future__ import annotations

from magnetar.broker.connections import answers
from magnetar.broker.connections.connection import Connection
from magnetar.broker.namespaces.lists import TopicList
from magnetar.broker.schemas.data import SchemaType, fill_wire, from_wire, version_bytes, version_from_bytes
from magnetar.broker.topics.any_topic import for_producer
from magnetar.errors import NamespaceNotFound, NotAllowed, TopicNotFound
from magnetar.io.slices import each
from magnetar.naming.hashes import topic_list_hash
from magnetar.protocol.frames import signed
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

_COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"


async def partitioned_metadata(connection: Connection, request: CommandPartitionedTopicMetadata) -> None:
    """Handles PARTITIONED_METADATA → the number of partitions; may create a missing topic (PIP-344)."""
    broker, principal = connection.broker, connection.session.principal
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    response = answer.partitionMetadataResponse
    response.request_id = request.request_id
    with broker.lookups.in_progress():
        name = broker.parse_topic(request.topic)
        try:
            await broker.namespaces.check(name.namespace_name)
        except NamespaceNotFound as error:
            if str(name) == _COORDINATORS:
                # The first question of a client with transactions.
                raise NotAllowed(
                    "Transactions are not enabled. Set transactionCoordinatorEnabled=true for the broker, or "
                    "do not enable them in the client"
                ) from error
            raise
        other = await broker.serving_clusters.other(name.namespace_name)
        if other is not None and broker.replication is not None:
            response.partitions = await broker.replication.partitions_in(other.name, name)
        elif request.metadata_auto_creation_enabled:
            response.partitions = await broker.topics.creation.partitions_or_create(name, principal)
        else:
            response.partitions = await broker.topics.creation.existing_partitions(name, principal)
    response.response = CommandPartitionedTopicMetadataResponse.Success
    connection.send(answer)


async def lookup(connection: Connection, request: CommandLookupTopic) -> None:
    """Handles LOOKUP → the broker that serves a topic."""
    broker = connection.broker
    name = broker.parse_topic(request.topic)
    owner = await broker.lookups.look_up(
        name, connection.session.principal, authoritative=request.authoritative
    )
    told = owner.addresses_of(request.advertised_listener_name or connection.listener)
    answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    response = answer.lookupTopicResponse
    response.request_id = request.request_id
    if told.binary is not None:
        response.brokerServiceUrl = told.binary
    if told.binary_tls is not None:
        response.brokerServiceUrlTls = told.binary_tls
    response.response = (
        CommandLookupTopicResponse.Connect if owner.settled else CommandLookupTopicResponse.Redirect
    )
    response.authoritative = owner.authoritative
    response.proxy_through_service_url = owner.here and broker.settings.alone
    connection.send(answer)


async def topics_of_namespace(connection: Connection, request: CommandGetTopicsOfNamespace) -> None:
    """Handles GET_TOPICS_OF_NAMESPACE → the topics that match, or all topics; no topics if the client's hash
    is current.
    """
    with connection.broker.lookups.in_progress():
        async with connection.requests.large_answer():
            if not connection.closed:
                connection.send(await _topics_answer(connection, request))


async def _topics_answer(connection: Connection, request: CommandGetTopicsOfNamespace) -> BaseCommand:
    broker, principal = connection.broker, connection.session.principal
    mode = CommandGetTopicsOfNamespace.Mode.Name(request.mode)
    try:
        names = await broker.topic_names(request.namespace, mode=mode, principal=principal)
    except NamespaceNotFound:
        # A pattern may match topics that are created later.
        names = []
    matches = (
        broker.topic_lists.matcher(request.topics_pattern) if request.HasField("topics_pattern") else None
    )
    if matches is not None:
        matching: list[str] = []
        taken = matches

        def take(name: str) -> None:
            if taken(name):
                matching.append(name)

        await each(broker.io, "listing", names, take)
        names = matching
    answer = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    response = answer.getTopicsOfNamespaceResponse
    response.request_id = request.request_id
    digest = topic_list_hash(names)
    response.changed = not (request.topics_hash and request.topics_hash == digest)
    if response.changed:
        response.topics.extend(names)
    response.filtered = matches is not None
    response.topics_hash = digest
    return answer


async def watch_topic_list(connection: Connection, request: CommandWatchTopicList) -> None:
    """Handles WATCH_TOPIC_LIST → the topics that match now; updates follow when this list changes."""
    broker = connection.broker
    watcher_id = signed(request.watcher_id)
    namespace = broker.parse_namespace(request.namespace)
    async with connection.requests.large_answer():
        watched = await broker.topic_lists.watch(
            connection, watcher_id, namespace, request.topics_pattern, connection.session.principal
        )
        if watched is not None:
            connection.send(_watch_answer(request, watched))


def _watch_answer(request: CommandWatchTopicList, watched: TopicList) -> BaseCommand:
    answer = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    response = answer.watchTopicListSuccess
    response.request_id = request.request_id
    response.watcher_id = request.watcher_id
    response.topics_hash = watched.digest()
    if request.topics_hash != response.topics_hash:
        response.topic.extend(watched.names)
    return answer


async def close_topic_list(connection: Connection, request: CommandWatchTopicListClose) -> None:
    connection.broker.topic_lists.close(connection, signed(request.watcher_id))
    connection.send_success(request.request_id)


async def get_schema(connection: Connection, request: CommandGetSchema) -> None:
    """Handles GET_SCHEMA → the requested version, or the latest."""
    broker = connection.broker
    name = broker.parse_topic(request.topic)
    version = version_from_bytes(request.schema_version) if request.HasField("schema_version") else None
    async with connection.requests.large_answer():
        schema_id = name.schema_path
        found = await broker.schemas.get(schema_id, version)
        if found is None and (source := await broker.topics.creation.source_of(name)) is not None:
            schema_id = source.schema_path
            found = await broker.schemas.get(schema_id, version)
        if found is None:
            # Consumers without a schema of their own ask this regularly: it is not logged.
            missing = TopicNotFound(f"Topic not found or no-schema {request.topic}")
            connection.send(answers.schema_failure(request.request_id, missing))
            return
        answer = BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE)
        response = answer.getSchemaResponse
        response.request_id = request.request_id
        fill_wire(response.schema, schema_id, found.data)
        response.schema_version = version_bytes(found.version)
        connection.send(answer)


async def get_or_create_schema(connection: Connection, request: CommandGetOrCreateSchema) -> None:
    """Handles GET_OR_CREATE_SCHEMA → the version of a schema, which is added to its topic if it is new."""
    broker = connection.broker
    name = broker.parse_topic(request.topic)
    topic = await broker.topics.load(name, create=False, principal=connection.session.principal)
    schema = from_wire(request.schema)
    declared = schema if schema.type is not SchemaType.NONE else None
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    response = answer.getOrCreateSchemaResponse
    response.request_id = request.request_id
    response.schema_version = await for_producer(broker.schemas, topic, declared)
    connection.send(answer)
