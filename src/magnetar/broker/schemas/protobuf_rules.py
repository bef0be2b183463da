"""Rules of PROTOBUF_NATIVE schemas. A definition contains the name of a root message, and the descriptors
that this message needs."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from magnetar.broker.schemas.data import SchemaData
from magnetar.errors import IncompatibleSchema, InvalidSchemaData

_UNREADABLE = "deserialize ProtobufNative Schema failed"
_NO_ROOT = (
    "protobuf root message descriptor is null, "
    "please recheck rootMessageTypeName or rootFileDescriptorName conf."
)


def root_message(schema: SchemaData) -> str:
    """Returns the full name of the root message.

    :raises InvalidSchemaData: the definition cannot be parsed, or lacks the root message
    """
    try:
        found = json.loads(schema.definition)
        descriptors = FileDescriptorSet.FromString(
            base64.b64decode(found["fileDescriptorSet"], validate=True)
        )
        name, file_name = str(found["rootMessageTypeName"]), str(found["rootFileDescriptorName"])
    except (ValueError, TypeError, KeyError, binascii.Error, DecodeError, RecursionError) as error:
        raise InvalidSchemaData(_UNREADABLE) from error
    for file in descriptors.file:
        if file.name == file_name and name in _messages(file):
            return name
    raise InvalidSchemaData(_NO_ROOT)


def _messages(file: FileDescriptorProto) -> set[str]:
    names: set[str] = set()
    waiting: list[tuple[str, DescriptorProto]] = [(file.package, each) for each in file.message_type]
    while waiting:
        package, message = waiting.pop()
        full_name = f"{package}.{message.name}" if package else message.name
        names.add(full_name)
        waiting.extend((full_name, nested) for nested in message.nested_type)
    return names


def check(before: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    """Checks that the root message stays the same; everything else may change.

    :raises IncompatibleSchema: ``strategy`` is ALWAYS_INCOMPATIBLE, or the root message of ``new`` has
        another name than in one of the versions ``before``
    """
    if strategy == "ALWAYS_COMPATIBLE":
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleSchema("Unknown SchemaCompatibilityStrategy.")
    name = root_message(new)
    for known in before:
        if root_message(known) != name:
            raise IncompatibleSchema("Protobuf root message isn't allow change!")
