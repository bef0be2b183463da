"""Queries of schemas."""

from __future__ import annotations

from magnetar.broker.connections import answers
from magnetar.broker.connections.connection import Connection
from magnetar.broker.schemas.data import SchemaType, fill_wire, from_wire, version_bytes, version_from_bytes
from magnetar.broker.topics.schemas import for_producer
from magnetar.errors import TopicNotFound
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandGetOrCreateSchema, CommandGetSchema


async def get_schema(connection: Connection, request: CommandGetSchema) -> None:
    """GET_SCHEMA → the requested version, or the latest."""
    broker = connection.broker
    name = broker.parse_topic(request.topic)
    version = version_from_bytes(request.schema_version) if request.HasField("schema_version") else None
    async with connection.requests.large_answer():
        schema_id = name.schema_path
        found = await broker.schemas.get(schema_id, version)
        if found is None and (source := await broker.creation.source_of(name)) is not None:
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
    """GET_OR_CREATE_SCHEMA → the version of a schema, which is added to its topic if it is new."""
    broker = connection.broker
    name = broker.parse_topic(request.topic)
    topic = await broker.topic(name, create=False, principal=connection.session.principal)
    schema = from_wire(request.schema)
    declared = schema if schema.type is not SchemaType.NONE else None
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    response = answer.getOrCreateSchemaResponse
    response.request_id = request.request_id
    response.schema_version = await for_producer(broker.schemas, topic, declared)
    connection.send(answer)
