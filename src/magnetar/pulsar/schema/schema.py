"""Schemas: how contents are encoded and decoded, and which schema the client declares to a topic."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING

from magnetar.client.schema import ProducerSchema
from magnetar.pulsar.enums import SchemaKind
from magnetar.pulsar.schema.definition import AvroRecord

if TYPE_CHECKING:
    from magnetar.pulsar.message import PulsarMessage

__all__ = ["BytesSchema", "JsonSchema", "Schema", "SchemaDetails", "SchemaSource", "StringSchema"]
_OWN = ("_default", "_required", "_required_default")
_DECLARED = ("STRING", "JSON", "PROTOBUF", "AVRO", "PROTOBUF_NATIVE")
"""Types that official clients declare to brokers."""


class SchemaDetails:
    """Type, name and definition of a schema."""

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
        """Returns what producers and consumers declare to brokers; None: nothing."""
        if self._type.name not in _DECLARED:
            return None
        return ProducerSchema(self._type.name, self._definition)


class SchemaSource:
    """Finds versions of schemas; a client has one."""

    def get_schema_info(self, topic: str, version: int) -> SchemaDetails:
        """Returns a version of a topic's schema; -1: the newest.

        :raises PulsarException: there is no such schema, or the broker did not answer
        """
        raise NotImplementedError


class Schema:
    """Base of schemas; derived classes implement :meth:`encode` and :meth:`decode`."""

    def __init__(
        self, record_cls: type | None, schema_type: SchemaKind, schema_definition: object, schema_name: str
    ) -> None:
        """:param record_cls: the class of values; None: any

        :param schema_definition: an object for JSON
        """
        self._record_cls = record_cls
        self._client: SchemaSource | None = None
        definition = json.dumps(schema_definition, indent=True)
        self._schema_info = SchemaDetails(schema_type, schema_name, definition)

    def encode(self, obj: object) -> bytes:
        """Returns the content of a value.

        :raises TypeError: the value has the wrong type
        """
        raise NotImplementedError

    def decode(self, data: bytes) -> object:
        """Returns the value of a content."""
        raise NotImplementedError

    def decode_message(self, msg: PulsarMessage) -> object:
        return self.decode(msg.data())

    def schema_info(self) -> SchemaDetails:
        return self._schema_info

    def attach_client(self, client: SchemaSource) -> None:
        """Gives the schema access to the versions of topics."""
        self._client = client

    def _validate_object_type(self, obj: object) -> None:
        kind = self._record_cls
        if kind is not None and not isinstance(obj, kind):
            raise TypeError(f"Invalid record obj of type {type(obj)} - expected type is {kind}")


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


def values_of(record: object) -> dict[str, object]:
    """Returns the values of a record's fields."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class JsonSchema(Schema):
    """Records as JSON."""

    def __init__(self, record_cls: type[AvroRecord]) -> None:
        """:param record_cls: a class derived from ``Record``"""
        self._record = record_cls
        super().__init__(record_cls, SchemaKind.JSON, record_cls.schema(), "JSON")

    def _get_serialized_value(self, o: object) -> object:
        if isinstance(o, enum.Enum):
            return o.value
        if isinstance(o, bytes):
            return o.decode()
        return values_of(o)

    def encode(self, obj: object) -> bytes:
        self._validate_object_type(obj)
        return json.dumps(values_of(obj), default=self._get_serialized_value, indent=True).encode()

    def decode(self, data: bytes) -> object:
        return self._record(**json.loads(data))
