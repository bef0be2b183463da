"""A schema, as clients declare it and a topic stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from hashlib import sha256

from magnetar.errors import InvalidSchemaData
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.pulsar_api_pb2 import Schema


class SchemaType(IntEnum):
    """Pulsar's schema types, with the names of the HTTP interface and the values of the binary protocol."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21


AVRO_DEFINED = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
"""Types whose definition is an Avro schema."""

WITH_DEFINITION = AVRO_DEFINED | {SchemaType.PROTOBUF_NATIVE, SchemaType.KEY_VALUE}
"""Types that need a definition."""


@dataclass(frozen=True, slots=True)
class SchemaData:
    """The schema that a producer, a consumer or an operator declares."""

    type: SchemaType
    data: bytes = b""
    """The definition; empty for primitive types."""
    properties: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    """The role that declared the schema; empty without authentication."""

    @property
    def hash(self) -> bytes:
        """The SHA-256 of the definition."""
        return sha256(self.data).digest()

    @property
    def definition(self) -> str:
        """The definition as text.

        :raises InvalidSchemaData: the definition is not valid UTF-8
        """
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise InvalidSchemaData(
                f"Invalid schema definition data for {self.type.name} schema: it is not valid UTF-8"
            ) from error


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version of a topic's schema."""

    version: int
    data: SchemaData
    timestamp_ms: int
    """The time of the declaration, in ms since 1970."""
    deleted: bool = False
    """Whether this version is only a mark that deletes all earlier versions."""


NO_VERSION = b""
"""The version that clients get for a topic without a schema."""


def version_bytes(version: int) -> bytes:
    """Returns a version as the eight bytes that messages and commands carry."""
    return version.to_bytes(8, "big", signed=True)


def version_from_bytes(data: bytes) -> int:
    """Returns the number of a schema version.

    :raises InvalidSchemaData: the data is not the eight bytes of a version
    """
    if not data:
        raise InvalidSchemaData("Empty schema version")
    if len(data) != 8:
        raise InvalidSchemaData(f"A schema version has 8 bytes, not {len(data)}")
    return int.from_bytes(data, "big", signed=True)


def from_wire(schema: Schema) -> SchemaData:
    """Returns the schema that a command declares."""
    return SchemaData(
        SchemaType(int(schema.type)), schema.schema_data, {pair.key: pair.value for pair in schema.properties}
    )


def fill_wire(schema: Schema, name: str, data: SchemaData) -> None:
    """Writes a schema into a command."""
    schema.name = name
    schema.type = int(data.type)  # type: ignore[assignment]
    schema.schema_data = data.data
    for key, value in data.properties.items():
        pair = schema.properties.add()
        pair.key, pair.value = key, value
