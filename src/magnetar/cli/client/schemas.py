"""Schemas of the command line, and contents and keys by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from magnetar.cli.refused import Refused
from magnetar.client.schema import ProducerSchema

__all__ = ["SchemaFlag", "declared"]

_KINDS = {"avro:": "AVRO", "json:": "JSON"}
_Encode = Callable[[str], bytes]


@dataclass(frozen=True)
class SchemaFlag:
    """What a flag says of contents or of keys."""

    flag: str
    schema: ProducerSchema
    encode: _Encode | None
    """From text; None: they go out as they are given."""

    def encoded(self, data: bytes, what: str) -> bytes:
        """:param what: it is, for people

        :raises Refused: it does not fit the schema
        """
        if self.encode is None:
            return data
        try:
            return self.encode(data.decode())
        except UnicodeDecodeError as error:
            raise Refused(f"{self.flag} {self.schema.kind.lower()}: {what} is not text: {error}") from error
        except ValueError as error:
            raise Refused(f"{self.flag}: {what}: {error}") from error


def declared(flag: str, text: str) -> SchemaFlag:
    """:param text: ``bytes``, ``string``, or ``avro:`` or ``json:`` and a definition

    :raises Refused: it is none of them, or no definition
    """
    if text == "bytes":
        return SchemaFlag(flag, ProducerSchema("BYTES"), None)
    if text == "string":
        return SchemaFlag(flag, ProducerSchema("STRING"), str.encode)
    kind = _KINDS.get(text[:5])
    if kind is None:
        raise Refused(f"{flag}: {text!r} is not bytes, string, avro:DEFINITION or json:DEFINITION")
    definition = text[5:]
    try:
        json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{flag}: the definition is not JSON: {error}") from error
    return SchemaFlag(flag, ProducerSchema(kind, definition), _encoder(flag, kind, definition))


def _encoder(flag: str, kind: str, definition: str) -> _Encode:
    # Loaded for those who ask for it.
    from magnetar.broker.schemas.data import SchemaData, SchemaType
    from magnetar.broker.schemas.written_contents import WrittenContents
    from magnetar.errors import InvalidRequest, InvalidSchemaData

    try:
        contents = WrittenContents(SchemaData(SchemaType[kind], definition.encode()))
    except InvalidSchemaData as error:
        raise Refused(f"{flag}: {error}") from error

    def encode(text: str) -> bytes:
        try:
            return contents.content(text, None)
        except InvalidRequest as error:
            raise ValueError(str(error)) from error

    return encode
