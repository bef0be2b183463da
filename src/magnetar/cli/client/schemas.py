"""Schemas of the command line, and the encoding of contents and keys."""

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
    """The schema of contents or keys from a flag."""

    flag: str
    schema: ProducerSchema
    encode: _Encode | None
    """Encodes a text; None: contents are sent unchanged."""

    def encoded(self, data: bytes, what: str) -> bytes:
        """:param what: description of the data, for errors

        :raises Refused: the data do not match the schema
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

    :raises Refused: the text has another form, or the definition is not valid
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
    # Imported only if it is used.
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
