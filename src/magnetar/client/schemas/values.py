"""Encodes and decodes values: records as Avro and JSON, protobuf messages, strings, bytes, numbers, dates and
times, and key/value pairs. The official client's interface (``magnetar.pulsar``) uses this module, too.
"""

from __future__ import annotations

import io
import json
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from magnetar.client import times
from magnetar.client.schema import PRIMITIVES, ProducerSchema, TopicSchema, ValueSchema, key_value_schema
from magnetar.client.schemas.records import AvroRecord
from magnetar.protocol.key_values import SIDES, declared, join, split

if TYPE_CHECKING:
    from magnetar.client.message import Message as PulsarMessage

__all__ = [
    "AvroValues",
    "Definition",
    "JsonValues",
    "KeyValue",
    "KeyValueValues",
    "PrimitiveValues",
    "ProtobufValues",
    "check_kind",
    "descriptors",
    "values_of",
]
Definition = dict[str, object]
_Parsed = str | list[object] | dict[str, object]
"""A definition in the parsed form of fastavro."""
_OWN = ("_default", "_required", "_required_default")
"""The attributes of record objects that are not fields of the record."""


def check_kind(value: object, kind: type | None) -> None:
    """Checks the type of a value.

    :param kind: the required type; None: any type
    :raises TypeError: the value has another type
    """
    if kind is not None and not isinstance(value, kind):
        raise TypeError(f"Invalid record obj of type {type(value)} - expected type is {kind}")


def _text(value: object) -> bytes:
    check_kind(value, str)
    return str(value).encode()


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the value must be bytes, not {value!r}")
    return bytes(value)


_ENCODERS: dict[str, Callable[[object], bytes]] = {
    "STRING": _text,
    "BOOLEAN": struct.Struct(">?").pack,
    "INT8": struct.Struct(">b").pack,
    "INT16": struct.Struct(">h").pack,
    "INT32": struct.Struct(">i").pack,
    "INT64": struct.Struct(">q").pack,
    "FLOAT": struct.Struct(">f").pack,
    "DOUBLE": struct.Struct(">d").pack,
    "BYTES": _bytes,
    **times.ENCODERS,
}


def values_of(record: object) -> Definition:
    """Returns the values of a record's fields by name."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class PrimitiveValues(ValueSchema):
    """Schema for strings, bytes, numbers, dates and times, encoded as by other Pulsar clients."""

    def __init__(self, kind: str) -> None:
        """:param kind: ``STRING``, ``BYTES``, ``BOOLEAN``, ``INT8``, ``INT16``, ``INT32``, ``INT64``,
            ``FLOAT``, ``DOUBLE``; ``DATE`` and ``LOCAL_DATE`` for a date, ``TIME`` and ``LOCAL_TIME`` for
            a time, ``TIMESTAMP`` and ``INSTANT`` for a datetime with a time zone, ``LOCAL_DATE_TIME`` for
            a datetime without a time zone. ``DATE``, ``TIME`` and ``TIMESTAMP`` are encoded in
            milliseconds, in UTC

        :raises ValueError: ``kind`` is not one of these
        """
        if kind not in _ENCODERS:
            first, *others = _ENCODERS
            raise ValueError(f"the kind must be {first} or one of {', '.join(others)}, not {kind}")
        super().__init__(ProducerSchema(kind))
        self._encode = _ENCODERS[kind]
        self._decode = times.decoder(kind) or PRIMITIVES[kind]

    def encode(self, value: object) -> bytes:
        return self._encode(value)

    def decode(self, data: bytes, writer: object = None) -> object:
        return self._decode(data)


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key and a value: what :meth:`Message.value` returns if the schema is a :class:`KeyValueSchema`."""

    key: object
    """A value that matches the key's schema, or None."""
    value: object
    """A value that matches the value's schema, or None."""


class KeyValueValues(ValueSchema):
    """Schema for key/value pairs, with one schema for the key and one for the value."""

    def __init__(self, key: ValueSchema, value: ValueSchema, *, separated: bool = False) -> None:
        """:param key: the schema of keys

        :param value: the schema of values
        :param separated: True: the key is the message's key, which determines partition and compaction, and
            the payload is the value; False: the payload contains both
        """
        super().__init__(key_value_schema(key.declared, value.declared, separated=separated))
        self._key = key
        self._value = value
        self._separated = separated
        self.needs_writer = key.needs_writer or value.needs_writer

    def encode(self, value: object) -> bytes:
        pair = _pair(value)
        content = None if pair.value is None else self._value.encode(pair.value)
        return (content or b"") if self._separated else join(self._encoded_key(pair), content)

    def _encoded_key(self, pair: KeyValue) -> bytes | None:
        return None if pair.key is None else self._key.encode(pair.key)

    def add_options(self, value: object, options: dict[str, object]) -> None:
        if not self._separated:
            return
        for name in ("partition_key", "partition_key_bytes", "null_partition_key", "null_value"):
            if options.get(name) not in (None, False):
                raise ValueError(
                    f"{name} must not be set, because the KeyValue already contains the key and the value"
                )
        pair = _pair(value)
        key = self._encoded_key(pair)
        if key is None:
            options["null_partition_key"] = True
        else:
            options["partition_key_bytes"] = key
        options["null_value"] = pair.value is None

    def decode(self, data: bytes, writer: object = None) -> KeyValue:
        """Decodes the pair in a payload that contains key and value.

        :param data: the payload of a message
        :param writer: the schemas with which the message was written, as :meth:`writer` returns them; None:
            this schema
        :raises ValueError: the payload does not match the schema, or the schema has ``separated``, so that
            payloads contain no key
        """
        if self._separated:
            raise ValueError(
                "the payload contains only the value, because the key is in the message key; use value_of"
            )
        return self._decoded(*split(data), writer)

    def value_of(self, message: PulsarMessage, writer: object = None) -> KeyValue | None:
        content = message.data()
        if self._separated:
            value = None if message.has_null_value() else content
            return self._decoded(message.partition_key_bytes(), value, writer)
        if not content and message.has_null_value():
            return None
        return self._decoded(*split(content), writer)

    def _decoded(self, key: bytes | None, value: bytes | None, writer: object) -> KeyValue:
        of_key, of_value = writer if isinstance(writer, tuple) else (None, None)
        return KeyValue(
            None if key is None else self._key.decode(key, of_key),
            None if value is None else self._value.decode(value, of_value),
        )

    def writer(self, found: TopicSchema) -> tuple[object, object]:
        if found.kind != "KEY_VALUE":
            raise ValueError(f"the type of the writer's schema is {found.kind or 'unknown'}, not KEY_VALUE")
        key, value = (
            schema.writer(TopicSchema(part.kind, data or b"", part.properties))
            if schema.needs_writer
            else None
            for schema, data, part in zip(
                (self._key, self._value),
                split(found.data),
                (declared(found.properties, side) for side in SIDES),
                strict=True,
            )
        )
        return key, value


def _pair(value: object) -> KeyValue:
    if not isinstance(value, KeyValue):
        raise TypeError(f"the value must be a KeyValue, not {value!r}")
    return value


class JsonValues(ValueSchema):
    """Schema for records that are encoded as JSON."""

    def __init__(self, record_cls: type[AvroRecord]) -> None:
        """:param record_cls: a class derived from ``Record``"""
        self._record = record_cls
        super().__init__(ProducerSchema("JSON", json.dumps(record_cls.schema(), indent=True)))

    def encode(self, value: object) -> bytes:
        check_kind(value, self._record)
        return json.dumps(values_of(value), default=_plain, indent=True).encode()

    def decode(self, data: bytes, writer: object = None) -> AvroRecord:
        return self._record(**json.loads(data))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return value.decode() if isinstance(value, bytes) else values_of(value)


class AvroValues(ValueSchema):
    """Schema for records, or for dictionaries with an Avro definition, that are encoded as Avro. Decoding
    uses the schema with which the message was written.
    """

    needs_writer = True

    def __init__(
        self, record_cls: type[AvroRecord] | None, schema_definition: Definition | None = None
    ) -> None:
        """:param record_cls: a subclass of ``Record``; None: values are dictionaries

        :param schema_definition: the Avro definition for dictionaries; None: the definition of the record
            class
        :raises ValueError: neither a record class nor the definition of a record is given
        """
        schema = record_cls.schema() if record_cls is not None else schema_definition
        if not isinstance(schema, dict):
            raise ValueError("an Avro schema requires a record class or the definition of a record")
        self._record = record_cls
        self._schema: Definition = schema
        self._parsed: _Parsed | None = None
        super().__init__(ProducerSchema("AVRO", json.dumps(schema, indent=True)))

    def _own(self) -> _Parsed:
        """The Avro definition as fastavro parses it; computed once."""
        if self._parsed is None:
            import fastavro

            self._parsed = fastavro.parse_schema(self._schema)
        return self._parsed

    def writer(self, found: TopicSchema) -> object:
        if found.kind != "AVRO":
            raise ValueError(f"the type of the writer's schema is {found.kind or 'unknown'}, not AVRO")
        definition = json.loads(found.data)
        if not isinstance(definition, dict):
            raise ValueError("the writer's schema is not the definition of a record")
        import fastavro

        # A reader may call its record differently.
        return fastavro.parse_schema({**definition, "name": self._schema["name"]})

    def encode(self, value: object) -> bytes:
        import fastavro

        if self._record is not None:
            check_kind(value, self._record)
            values: object = self.encode_dict(vars(value))
        elif isinstance(value, dict):
            values = value
        else:
            raise ValueError("If using the custom schema, the record data should be dict type.")
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._own(), values)
        return buffer.getvalue()

    def encode_dict(self, values: Mapping[str, object]) -> Definition:
        """Converts the values of a record's fields to the types that Avro encodes: enumeration members to
        their names, records to dictionaries.
        """
        return {key: self._for_avro(value) for key, value in values.items()}

    def _for_avro(self, value: object) -> object:
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, AvroRecord):
            return self.encode_dict(vars(value))
        if isinstance(value, list):
            return [self._for_avro(item) for item in value]
        return self.encode_dict(value) if isinstance(value, dict) else value

    def decode(self, data: bytes, writer: object = None) -> object:
        import fastavro

        own = self._own()
        written = writer if isinstance(writer, dict) else own
        values = fastavro.schemaless_reader(io.BytesIO(data), written, own)
        if self._record is None or not isinstance(values, dict):
            return values
        return self._record(**values)


def descriptors(message: type[Message]) -> dict[str, str]:
    """Returns the definition for ``PROTOBUF_NATIVE``: the descriptors of the files that define a message."""
    descriptor = message.DESCRIPTOR
    pool = descriptor.file.pool
    files = FileDescriptorSet()
    known: set[str] = set()
    waiting: list[FileDescriptorProto | str] = [descriptor.file.name]
    while waiting:
        file = waiting.pop()
        if isinstance(file, FileDescriptorProto):
            files.file.append(file)
        elif file not in known:
            known.add(file)
            copied = FileDescriptorProto()
            pool.FindFileByName(file).CopyToProto(copied)
            # A file comes after the files that it imports.
            waiting += [copied, *reversed(copied.dependency)]
    return {
        "fileDescriptorSet": b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": descriptor.full_name,
        "rootFileDescriptorName": descriptor.file.name,
    }


class ProtobufValues(ValueSchema):
    """Schema for protobuf messages, which declares their descriptors (``PROTOBUF_NATIVE``)."""

    def __init__(self, record_cls: type[Message]) -> None:
        """:param record_cls: a class of protobuf messages

        :raises TypeError: ``record_cls`` is not a class of protobuf messages
        """
        if not (isinstance(record_cls, type) and issubclass(record_cls, Message)):
            raise TypeError(f"record_cls must be a protobuf Message subclass, got {record_cls!r}")
        self._message = record_cls
        definition = json.dumps(descriptors(record_cls), indent=True)
        super().__init__(ProducerSchema("PROTOBUF_NATIVE", definition))

    def encode(self, value: object) -> bytes:
        check_kind(value, self._message)
        return value.SerializeToString() if isinstance(value, Message) else b""

    def decode(self, data: bytes, writer: object = None) -> Message:
        return self._message.FromString(data)
