"""Schemas, which encode values as payloads and decode payloads, and which clients declare to brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from magnetar.client.schema import ProducerSchema
from magnetar.client.schemas.records import AvroRecord
from magnetar.client.schemas.values import JsonValues, ProtobufValues, check_kind, descriptors
from magnetar.pulsar.enums import SchemaKind

if TYPE_CHECKING:
    from magnetar.pulsar.message import PulsarMessage

__all__ = ["BytesSchema", "JsonSchema", "Schema", "SchemaDetails", "SchemaSource", "StringSchema"]
_DECLARED = ("STRING", "JSON", "PROTOBUF", "AVRO", "PROTOBUF_NATIVE")
"""Schema types that official clients declare to brokers."""


class SchemaDetails:
    """The type, the name and the definition of a schema."""

    def __init__(self, schema_type: SchemaKind, name: str, schema: str) -> None:
        self._type = schema_type
        self._name = name
        self._definition = schema

    def schema_type(self) -> SchemaKind:
        return self._type

    def name(self) -> str:
        return self._name

    def schema(self) -> str:
        return self._definition

    def declared(self) -> ProducerSchema | None:
        """Returns the schema that producers and consumers declare to brokers; None: they declare no
        schema.
        """
        if self._type.name not in _DECLARED:
            return None
        return ProducerSchema(self._type.name, self._definition)


class SchemaSource:
    """Looks up schema versions of topics; each client has one such object."""

    def get_schema_info(self, topic: str, version: int) -> SchemaDetails:
        """Returns a version of a topic's schema.

        :param version: the schema version; -1: the newest version
        :raises PulsarException: there is no such schema, or the broker did not answer
        """
        raise NotImplementedError


class Schema:
    """Base class of schemas; subclasses implement :meth:`encode` and :meth:`decode`."""

    def __init__(
        self, record_cls: type | None, schema_type: SchemaKind, schema_definition: object, schema_name: str
    ) -> None:
        """:param record_cls: the class of the values; None: values of any class

        :param schema_definition: the definition, as an object that is encoded as JSON
        """
        self._record_cls = record_cls
        self._client: SchemaSource | None = None
        definition = json.dumps(schema_definition, indent=True)
        self._schema_info = SchemaDetails(schema_type, schema_name, definition)

    def encode(self, obj: object) -> bytes:
        """Encodes a value as a payload.

        :raises TypeError: the value has the wrong type
        """
        raise NotImplementedError

    def decode(self, data: bytes) -> object:
        """Decodes the value in a payload."""
        raise NotImplementedError

    def decode_message(self, msg: PulsarMessage) -> object:
        return self.decode(msg.data())

    def schema_info(self) -> SchemaDetails:
        return self._schema_info

    def attach_client(self, client: SchemaSource) -> None:
        """Called by the client: lets the schema look up schema versions of topics."""
        self._client = client

    def _validate_object_type(self, obj: object) -> None:
        check_kind(obj, self._record_cls)


class BytesSchema(Schema):
    def __init__(self) -> None:
        super().__init__(bytes, SchemaKind.BYTES, None, "BYTES")

    def encode(self, data: object) -> bytes:
        self._validate_object_type(data)
        return data if isinstance(data, bytes) else b""

    def decode(self, data: bytes) -> object:
        return data

    def __str__(self) -> str:
        return "BytesSchema"


class StringSchema(Schema):
    def __init__(self) -> None:
        super().__init__(str, SchemaKind.STRING, None, "STRING")

    def encode(self, obj: object) -> bytes:
        self._validate_object_type(obj)
        return str(obj).encode()

    def decode(self, data: bytes) -> object:
        return data.decode()

    def __str__(self) -> str:
        return "StringSchema"


class JsonSchema(Schema):
    """Schema for records that are encoded as JSON."""

    def __init__(self, record_cls: type[AvroRecord]) -> None:
        """:param record_cls: a class derived from ``Record``"""
        self._values = JsonValues(record_cls)
        super().__init__(record_cls, SchemaKind.JSON, record_cls.schema(), "JSON")

    def encode(self, obj: object) -> bytes:
        return self._values.encode(obj)

    def decode(self, data: bytes) -> object:
        return self._values.decode(data)


class ProtobufNativeSchema(Schema):
    """Schema for protobuf messages, which declares their descriptors (``PROTOBUF_NATIVE``)."""

    def __init__(self, record_cls: type[Message]) -> None:
        """:raises TypeError: ``record_cls`` is not a class of protobuf messages"""
        self._values = ProtobufValues(record_cls)
        self._name = record_cls.__name__
        super().__init__(record_cls, SchemaKind.PROTOBUF_NATIVE, descriptors(record_cls), "PROTOBUF_NATIVE")

    def encode(self, obj: object) -> bytes:
        return self._values.encode(obj)

    def decode(self, data: bytes) -> object:
        return self._values.decode(data)

    def __str__(self) -> str:
        return f"ProtobufNativeSchema({self._name})"
