"""Messages of protobuf, with their own descriptors as the schema (``PROTOBUF_NATIVE``)."""

from __future__ import annotations

from base64 import b64encode

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from magnetar.pulsar.enums import SchemaKind
from magnetar.pulsar.schema.schema import Schema


def _definition(message: type[Message]) -> dict[str, str]:
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


class ProtobufNativeSchema(Schema):
    def __init__(self, record_cls: type[Message]) -> None:
        """:raises TypeError: ``record_cls`` is not a class of protobuf messages"""
        if not (isinstance(record_cls, type) and issubclass(record_cls, Message)):
            raise TypeError(f"record_cls must be a protobuf Message subclass, got {record_cls!r}")
        self._message = record_cls
        super().__init__(record_cls, SchemaKind.PROTOBUF_NATIVE, _definition(record_cls), "PROTOBUF_NATIVE")

    def encode(self, obj: object) -> bytes:
        self._validate_object_type(obj)
        return obj.SerializeToString() if isinstance(obj, Message) else b""

    def decode(self, data: bytes) -> object:
        return self._message.FromString(data)

    def __str__(self) -> str:
        return f"ProtobufNativeSchema({self._message.__name__})"
