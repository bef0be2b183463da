"""How values are encoded and decoded: records as Avro and JSON, messages of protobuf, numbers and text.

The interface of the official client uses these, too.
"""

from __future__ import annotations

import io
import json
import struct
from base64 import b64encode
from collections.abc import Mapping
from enum import Enum

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from magnetar.client.schema import PRIMITIVES, ProducerSchema, TopicSchema, ValueSchema
from magnetar.client.schemas.records import AvroRecord

__all__ = [
    "AvroValues",
    "Definition",
    "JsonValues",
    "PrimitiveValues",
    "ProtobufValues",
    "check_kind",
    "descriptors",
    "values_of",
]
Definition = dict[str, object]
_Parsed = str | list[object] | dict[str, object]
"""A definition as fastavro has it."""
_OWN = ("_default", "_required", "_required_default")
"""Attributes of a record that are not fields."""
_NUMBERS = {
    "BOOLEAN": ">?",
    "INT8": ">b",
    "INT16": ">h",
    "INT32": ">i",
    "INT64": ">q",
    "FLOAT": ">f",
    "DOUBLE": ">d",
}


def check_kind(value: object, kind: type | None) -> None:
    """Checks the type of a value.

    :param kind: None: any
    :raises TypeError: the value has another type
    """
    if kind is not None and not isinstance(value, kind):
        raise TypeError(f"Invalid record obj of type {type(value)} - expected type is {kind}")


def values_of(record: object) -> Definition:
    """Returns the values of a record's fields."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class PrimitiveValues(ValueSchema):
    """Text and numbers, as other clients encode them."""

    def __init__(self, kind: str) -> None:
        """:param kind: ``STRING``, ``BOOLEAN``, ``INT8``, ``INT16``, ``INT32``, ``INT64``, ``FLOAT`` or
            ``DOUBLE``

        :raises ValueError: another kind
        """
        if kind != "STRING" and kind not in _NUMBERS:
            raise ValueError(f"the kind must be STRING or one of {', '.join(_NUMBERS)}, not {kind}")
        super().__init__(ProducerSchema(kind))
        self._pack = struct.Struct(_NUMBERS[kind]).pack if kind in _NUMBERS else None
        self._decode = PRIMITIVES[kind]

    def encode(self, value: object) -> bytes:
        if self._pack is not None:
            return self._pack(value)
        check_kind(value, str)
        return str(value).encode()

    def decode(self, data: bytes, writer: object = None) -> object:
        return self._decode(data)


class JsonValues(ValueSchema):
    """Records as JSON."""

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
    """Records as Avro, or dictionaries with a given definition; read with the definition of their writer."""

    needs_writer = True

    def __init__(
        self, record_cls: type[AvroRecord] | None, schema_definition: Definition | None = None
    ) -> None:
        """:param record_cls: a class derived from ``Record``; None: values are dictionaries

        :param schema_definition: the Avro definition of dictionaries; None: that of the record
        :raises ValueError: there is neither
        """
        schema = record_cls.schema() if record_cls is not None else schema_definition
        if not isinstance(schema, dict):
            raise ValueError("an Avro schema requires a record class or the definition of a record")
        self._record = record_cls
        self._schema: Definition = schema
        self._parsed: _Parsed | None = None
        super().__init__(ProducerSchema("AVRO", json.dumps(schema, indent=True)))

    def _own(self) -> _Parsed:
        """Returns the definition as the library has it, which parses it once."""
        if self._parsed is None:
            import fastavro

            self._parsed = fastavro.parse_schema(self._schema)
        return self._parsed

    def writer(self, found: TopicSchema) -> object:
        if found.kind != "AVRO":
            raise ValueError(f"its type is {found.kind or 'unknown'}, not AVRO")
        definition = json.loads(found.data)
        if not isinstance(definition, dict):
            raise ValueError("it is not the definition of a record")
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
        """Returns the values for Avro: enumerations by name, records as dictionaries."""
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
    """Returns the definition of a schema ``PROTOBUF_NATIVE``: the descriptors of a message's files."""
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
    """Messages of protobuf, with their own descriptors as the schema (``PROTOBUF_NATIVE``)."""

    def __init__(self, record_cls: type[Message]) -> None:
        """:param record_cls: a class of protobuf messages

        :raises TypeError: it is another class
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
