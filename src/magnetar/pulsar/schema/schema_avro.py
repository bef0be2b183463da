"""The Avro schema; it decodes each message with the schema version with which the message was written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from magnetar.client.exceptions import PulsarException
from magnetar.client.schema import TopicSchema
from magnetar.client.schemas.records import AvroRecord
from magnetar.client.schemas.values import AvroValues, Definition
from magnetar.pulsar.enums import SchemaKind
from magnetar.pulsar.schema.schema import Schema

if TYPE_CHECKING:
    from magnetar.pulsar.message import PulsarMessage

log = logging.getLogger("magnetar.client.pulsar")


class AvroSchema(Schema):
    """Schema for values that are encoded as Avro: objects of a ``Record`` class, or dictionaries with an
    Avro definition.
    """

    def __init__(
        self, record_cls: type[AvroRecord] | None, schema_definition: Definition | None = None
    ) -> None:
        """:param record_cls: a class derived from ``Record``; None: values are dictionaries

        :raises AssertionError: both arguments are None
        """
        if record_cls is None and schema_definition is None:
            raise AssertionError("The param record_cls and schema_definition shouldn't be both None.")
        self._values = AvroValues(record_cls, schema_definition)
        self._writer_schemas: dict[tuple[str, int], object] = {}
        schema = record_cls.schema() if record_cls is not None else schema_definition
        super().__init__(record_cls, SchemaKind.AVRO, schema, "AVRO")

    def encode(self, obj: object) -> bytes:
        """See :meth:`Schema.encode`.

        :raises ValueError: the value is not a dictionary, and there is no record class
        """
        return self._values.encode(obj)

    def encode_dict(self, d: Definition) -> Definition:
        """Converts the values of a record's fields to the types that Avro encodes: enumeration members to
        their names, records to dictionaries.
        """
        return self._values.encode_dict(d)

    def decode(self, data: bytes) -> object:
        return self._values.decode(data)

    def decode_message(self, msg: PulsarMessage) -> object:
        """Decodes the value of a message with the schema version with which the message was written; with the
        consumer's own definition if the broker does not return this version.
        """
        if self._client is None or msg.int_schema_version() < 0:
            return self.decode(msg.data())
        topic, version = msg.topic_name(), msg.int_schema_version()
        try:
            writer = self._get_writer_schema(topic, version)
        except (PulsarException, ValueError) as error:
            log.warning(
                "%s: decoding a message with the consumer's definition, because version %d of the "
                "schema is not available: %s",
                topic,
                version,
                error,
            )
            writer = None
        return self._values.decode(msg.data(), writer)

    def _get_writer_schema(self, topic: str, version: int) -> object:
        """Returns the schema of the given version, in the parsed form of fastavro.

        :raises ValueError: the schema is not an Avro record
        :raises PulsarException: the broker refused the request, or did not answer
        """
        known = self._writer_schemas.get((topic, version))
        if known is not None or self._client is None:
            return known
        info = self._client.get_schema_info(topic, version)
        found = TopicSchema(info.schema_type().name, info.schema().encode())
        writer = self._writer_schemas[topic, version] = self._values.writer(found)
        return writer
