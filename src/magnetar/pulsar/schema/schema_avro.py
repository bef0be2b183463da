"""Records as Avro, read with the definition of their writer."""

from __future__ import annotations

import enum
import io
import json
import logging
from typing import TYPE_CHECKING

from magnetar.client.exceptions import PulsarException
from magnetar.pulsar.enums import SchemaKind
from magnetar.pulsar.schema.definition import AvroRecord
from magnetar.pulsar.schema.schema import Schema

if TYPE_CHECKING:
    from magnetar.pulsar.message import PulsarMessage

log = logging.getLogger("magnetar.client.pulsar")
Definition = dict[str, object]


class AvroSchema(Schema):
    """Records, or dictionaries of a given definition."""

    def __init__(
        self, record_cls: type[AvroRecord] | None, schema_definition: Definition | None = None
    ) -> None:
        """:param record_cls: a class derived from ``Record``; None: values are dictionaries

        :raises AssertionError: both arguments are None
        """
        if record_cls is not None:
            schema = record_cls.schema()
        elif schema_definition is not None:
            schema = schema_definition
        else:
            raise AssertionError("The param record_cls and schema_definition shouldn't be both None.")
        self._schema: Definition = schema if isinstance(schema, dict) else {}
        self._writer_schemas: dict[tuple[str, int], Definition] = {}
        super().__init__(record_cls, SchemaKind.AVRO, self._schema, "AVRO")

    def _get_serialized_value(self, x: object) -> object:
        if isinstance(x, enum.Enum):
            return x.name
        if isinstance(x, AvroRecord):
            return self.encode_dict(x.__dict__)
        if isinstance(x, list):
            return [self._get_serialized_value(item) for item in x]
        return self.encode_dict(x) if isinstance(x, dict) else x

    def encode(self, obj: object) -> bytes:
        """As :meth:`Schema.encode`.

        :raises ValueError: the value is not a dictionary, and there is no record class
        """
        import fastavro

        if self._record_cls is not None:
            self._validate_object_type(obj)
            values: object = self.encode_dict(vars(obj))
        elif isinstance(obj, dict):
            values = obj
        else:
            raise ValueError("If using the custom schema, the record data should be dict type.")
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schema, values)
        return buffer.getvalue()

    def encode_dict(self, d: Definition) -> Definition:
        """Returns the values for Avro: enumerations by name, records as dictionaries."""
        return {key: self._get_serialized_value(value) for key, value in d.items()}

    def decode(self, data: bytes) -> object:
        return self._decode_bytes(data, self._schema)

    def decode_message(self, msg: PulsarMessage) -> object:
        """Returns the value, read with the definition of the message's version if the broker has it."""
        if self._client is None or msg.int_schema_version() < 0:
            return self.decode(msg.data())
        topic, version = msg.topic_name(), msg.int_schema_version()
        try:
            writer = self._get_writer_schema(topic, version)
        except (PulsarException, ValueError) as error:
            log.warning(
                "%s: reading a message with the consumer's own definition, because version %d of the schema "
                "is not available: %s",
                topic,
                version,
                error,
            )
            writer = self._schema
        return self._decode_bytes(msg.data(), writer)

    def _get_writer_schema(self, topic: str, version: int) -> Definition:
        """:raises ValueError: the schema is not an Avro record

        :raises PulsarException: the broker refused, or did not answer
        """
        known = self._writer_schemas.get((topic, version))
        if known is not None:
            return known
        if self._client is None:
            return self._schema
        info = self._client.get_schema_info(topic, version)
        if info.schema_type() is not SchemaKind.AVRO:
            raise ValueError(f"its type is {info.schema_type().name}, not AVRO")
        writer = json.loads(info.schema())
        if not isinstance(writer, dict):
            raise ValueError("it is not the definition of a record")
        self._writer_schemas[topic, version] = writer
        return writer

    def _decode_bytes(self, data: bytes, writer_schema: Definition) -> object:
        import fastavro

        # A reader may call its record differently.
        writer = {**writer_schema, "name": self._schema["name"]}
        values = fastavro.schemaless_reader(io.BytesIO(data), writer, self._schema)
        if self._record_cls is None or not isinstance(values, dict):
            return values
        return self._record_cls(**values)
