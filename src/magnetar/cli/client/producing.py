"""``pulsar-client produce``: parses the schemas of the command line, encodes payloads and keys, and sends
messages.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from magnetar.cli.command_lines import Refused
from magnetar.cli.messages.run import paced
from magnetar.client import Client, CryptoKeyReader
from magnetar.client.opening import ProducerArguments
from magnetar.client.schema import ProducerSchema, key_value_schema
from magnetar.protocol.key_values import join

__all__ = ["SchemaFlag", "declared"]
_KINDS = {"avro:": "AVRO", "json:": "JSON"}
_Encode = Callable[[str], bytes]


@dataclass(frozen=True)
class Prepared:
    """The messages and options of a ``produce`` command, checked without contacting a broker."""

    contents: Sequence[bytes]
    message: dict[str, object]
    """Options of each message, as keyword arguments of ``Producer.send``."""
    producer: ProducerArguments


def prepared(parsed: argparse.Namespace) -> Prepared:
    """Reads and checks the messages and the options of ``pulsar-client produce``.

    :raises Refused: there are no messages, or options contradict each other
    :raises OSError: a file cannot be read
    """
    value = declared("--value-schema", parsed.value_schema)
    contents = [value.encoded(each, f"content {number}") for number, each in enumerate(_given(parsed), 1)]
    message: dict[str, object] = {"properties": _properties(parsed.properties)}
    if parsed.disable_replication:
        message["disable_replication"] = True
    schema: ProducerSchema | None = value.schema
    encoding = parsed.key_value_encoding_type
    if encoding in ("inline", "separated"):
        key = _key_part(parsed)
        separated = encoding == "separated"
        keys = declared("--key-schema", parsed.key_schema or "string")
        encoded = None if key is None else keys.encoded(key, "the key")
        schema = key_value_schema(keys.schema, value.schema, separated=separated)
        if not separated:
            contents = [join(encoded, content) for content in contents]
        elif encoded is None:
            message["null_partition_key"] = True
        else:
            message["partition_key_bytes"] = encoded
    else:
        _no_key_part(parsed)
        if parsed.key:
            message["partition_key"] = parsed.key
    return Prepared(contents, message, _options(parsed, value, schema))


def produce(client: Client, parsed: argparse.Namespace, given: Prepared) -> str:
    """Sends all messages; returns a summary for the user."""
    producer = client.create_producer(parsed.topic, **given.producer)
    pace = paced(parsed.rate)
    for _ in range(parsed.num_produce):
        for content in given.contents:
            next(pace)
            producer.send(content, **given.message)
    return f"{parsed.num_produce * len(given.contents)} messages successfully produced"


def _options(
    parsed: argparse.Namespace, value: SchemaFlag, schema: ProducerSchema | None
) -> ProducerArguments:
    if (parsed.encryption_key_name is None) != (parsed.encryption_key_value is None):
        raise Refused(
            "--encryption-key-name and --encryption-key-value must be used together; with only one "
            "of them, messages would not be encrypted"
        )
    options: ProducerArguments = {
        "batching_enabled": not (parsed.disable_batching or parsed.chunking),
        "batching_max_publish_delay_ms": 1,
        "chunking_enabled": parsed.chunking,
    }
    if schema is not value.schema or value.encode is not None:
        options["schema"] = schema
    if parsed.encryption_key_name is not None:
        options["encryption_key"] = parsed.encryption_key_name
        options["crypto_key_reader"] = CryptoKeyReader(public_key_path=parsed.encryption_key_value)
    return options


def _given(parsed: argparse.Namespace) -> list[bytes]:
    """Returns the payloads given with ``-m``, followed by the payloads in the files given with ``-f``."""
    found: list[bytes] = []
    for text in parsed.messages:
        # Without a separator each character is a message, as with Pulsar's tool.
        parts = text.split(parsed.separator) if parsed.separator else list(text)
        # Bytes that are not valid text are sent unchanged.
        found += [part.encode("utf-8", "surrogateescape") for part in parts]
    found += [Path(name).read_bytes() for name in parsed.files]
    if not found:
        raise Refused("Please supply message content with either --messages or --files")
    return found


def _properties(given: Sequence[str]) -> dict[str, str]:
    """Parses items of the form ``key=value``, one property each. As in Pulsar's tool, a comma is part of the
    value, and what follows a second ``=`` is dropped.
    """
    found = {}
    for text in given:
        key, separator, rest = text.partition("=")
        if not separator:
            raise Refused(f"--properties: {text!r} is not a property; use KEY=VALUE")
        found[key.strip()] = rest.partition("=")[0].strip()
    return found


def _key_part(parsed: argparse.Namespace) -> bytes | None:
    """Returns the key of key/value messages, not yet encoded with the key schema; None: the key is null.

    :raises Refused: several flags give a key
    """
    named = [
        name
        for name, given in (
            ("--key-value-key", parsed.key_value_key),
            ("--key-value-key-file", parsed.key_value_key_file),
            ("--key", parsed.key),
        )
        if given is not None
    ]
    if len(named) > 1:
        raise Refused(f"{' and '.join(named)}: use only one of them")
    if parsed.key_value_key_file is not None:
        return Path(parsed.key_value_key_file).read_bytes()
    text: str | None = parsed.key if parsed.key_value_key is None else parsed.key_value_key
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _no_key_part(parsed: argparse.Namespace) -> None:
    for flag, given in (
        ("--key-value-key", parsed.key_value_key),
        ("--key-value-key-file", parsed.key_value_key_file),
        ("--key-schema", parsed.key_schema),
    ):
        if given is not None:
            raise Refused(f"{flag} requires --key-value-encoding-type separated or inline")


@dataclass(frozen=True)
class SchemaFlag:
    """A schema that a flag declares for values or keys."""

    flag: str
    schema: ProducerSchema
    encode: _Encode | None
    """Encodes a string; None: payloads are sent unchanged."""

    def encoded(self, data: bytes, what: str) -> bytes:
        """Encodes data from the command line or from a file with the schema.

        :param what: description of the data, for errors
        :raises Refused: the data do not match the schema
        """
        if self.encode is None:
            return data
        try:
            return self.encode(data.decode())
        except UnicodeDecodeError as error:
            raise Refused(
                f"{self.flag} {self.schema.kind.lower()}: {what} is not valid UTF-8: {error}"
            ) from error
        except ValueError as error:
            raise Refused(f"{self.flag}: {what}: {error}") from error


def declared(flag: str, text: str) -> SchemaFlag:
    """Returns the schema that an option declares.

    :param text: the value of the flag: ``bytes``, ``string``, or ``avro:`` or ``json:`` followed by a
        definition
    :raises Refused: the value has none of these forms, or the definition is not valid
    """
    if text == "bytes":
        return SchemaFlag(flag, ProducerSchema("BYTES"), None)
    if text == "string":
        return SchemaFlag(flag, ProducerSchema("STRING"), str.encode)
    kind = _KINDS.get(text[:5])
    if kind is None:
        raise Refused(
            f"{flag}: {text!r} is not a schema; use bytes, string, avro:DEFINITION or json:DEFINITION"
        )
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
