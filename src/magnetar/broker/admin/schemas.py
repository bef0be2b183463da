"""Administration of schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.broker.schemas.data import SchemaData, SchemaType, StoredSchema
from magnetar.broker.schemas.key_value import from_text, to_text
from magnetar.broker.schemas.storage import IndexEntry
from magnetar.broker.service import BrokerService
from magnetar.errors import BrokerError, IncompatibleSchema, InvalidSchemaData, NotFound
from magnetar.naming.topic_name import TopicName

_CLIENT_SIDE = frozenset({"AUTO", "AUTO_CONSUME", "AUTO_PUBLISH"})


def _described(stored: StoredSchema) -> Mapping[str, object]:
    """Returns ``GetSchemaResponse``: the description of a stored version of a schema."""
    data = stored.data
    is_pair = data.type is SchemaType.KEY_VALUE
    return {
        "version": stored.version,
        "type": data.type.name,
        "timestamp": stored.timestamp_ms,
        "data": to_text(data.data) if is_pair else data.data.decode(errors="replace"),
        "properties": dict(data.properties),
    }


def _declared(kind: str, definition: str, properties: Mapping[str, str]) -> SchemaData:
    """Returns the schema that a request declares.

    :raises InvalidSchemaData: the type does not exist, or a topic cannot have a schema of that type
    """
    if kind in _CLIENT_SIDE:
        raise InvalidSchemaData(f"Schema {kind} is a client-side schema type")
    try:
        found = SchemaType["NONE" if kind == "BYTES" else kind]
    except KeyError as error:
        raise InvalidSchemaData(f"Unknown schema type {kind}") from error
    data = from_text(definition) if found is SchemaType.KEY_VALUE else definition.encode()
    return SchemaData(found, data, properties)


def _place(entry: IndexEntry) -> Mapping[str, int]:
    return {"ledgerId": entry.ledger_id, "entryId": entry.entry_id, "version": entry.version}


class SchemaAdmin:
    """Administration of schemas, by the full names of topics; the topics need not exist. Partitions share the
    schema of their topic.
    """

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker

    async def _path(self, topic: str) -> str:
        """Returns the path of a topic's schemas; for a shadow topic, the path of its source's schemas."""
        name = self._named(topic)
        source = await self._broker.topics.creation.source_of(name)
        return (source or name).schema_path

    def _named(self, topic: str) -> TopicName:
        return self._broker.parse_topic(topic)

    async def get(self, topic: str, version: int | None) -> Mapping[str, object]:
        """Returns ``GetSchemaResponse``: the schema with the given version.

        :param version: the number of the version; None: the latest version
        :raises NotFound: no such version
        """
        found = await self._broker.schemas.get(await self._path(topic), version)
        if found is None:
            raise NotFound("Schema not found")
        return _described(found)

    async def versions(self, topic: str) -> Sequence[Mapping[str, object]]:
        """Returns all versions since the schema was last deleted, the oldest first."""
        found = await self._broker.schemas.list(await self._path(topic))
        return [_described(each) for each in found]

    async def places(self, topic: str) -> Mapping[str, object] | None:
        """Returns ``SchemaMetadata``: the ledger positions of all versions; None if the topic has no
        schema."""
        index, _record = await self._broker.schemas.storage.index(await self._path(topic))
        if not index:
            return None
        return {"info": _place(index[-1]), "index": [_place(each) for each in index]}

    async def delete(self, topic: str, *, force: bool) -> int:
        """Deletes the schema of a topic; returns the version of the deletion mark, or -1 with ``force``.

        :param force: delete all versions instead of adding a deletion mark
        """
        name = self._named(topic)
        if force:
            await self._broker.schemas.delete(name.schema_path)
            return -1
        return await self._broker.schemas.mark_deleted(name.schema_path)

    async def post(self, topic: str, kind: str, definition: str, properties: Mapping[str, str]) -> int:
        """Adds a schema, unless the topic has an equal schema; returns the version of the new or equal
        schema.

        :raises NamespaceNotFound: no such namespace
        :raises InvalidSchemaData: the schema is not valid
        :raises IncompatibleSchema: the schema is not compatible with the existing schemas
        """
        name = self._named(topic)
        policies = await self._broker.policies.of_topic(name)
        return await self._broker.schemas.put_if_absent(
            name.schema_path, _declared(kind, definition, properties), policies.schema_compatibility
        )

    async def check(self, topic: str, kind: str, definition: str, properties: Mapping[str, str]) -> str:
        """Checks that a schema could be added; returns the compatibility strategy of the topic.

        :raises NamespaceNotFound: no such namespace
        :raises BrokerError: the schema could not be added; the text gives the reason (as in Pulsar, Conflict
            is not raised)
        """
        name = self._named(topic)
        strategy = (await self._broker.policies.of_topic(name)).schema_compatibility
        try:
            await self._broker.schemas.check(
                name.schema_path, _declared(kind, definition, properties), strategy
            )
        except (IncompatibleSchema, InvalidSchemaData) as error:
            raise BrokerError(str(error)) from error
        return strategy

    async def version_of(self, topic: str, kind: str, definition: str, properties: Mapping[str, str]) -> int:
        """Returns the version of an equal schema; -1 if no stored schema is equal."""
        try:
            wanted = _declared(kind, definition, properties)
            found = await self._broker.schemas.find(await self._path(topic), wanted)
        except InvalidSchemaData:
            # A schema that cannot be parsed has no version either.
            return -1
        return -1 if found is None else found
