"""Formats messages for ``pulsar-client``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from magnetar.cli.messages.contents import SchemaDecoders
from magnetar.cli.messages.lines import id_text, time_text
from magnetar.client.message import Message

_HEX_WIDTH = 16
_BOUNDARY = "----- got message -----"


def shower(parsed: argparse.Namespace, contents: SchemaDecoders) -> Callable[[Message], str]:
    """Returns a function that formats a message. :param contents: decodes values with their schemas"""

    def content(message: Message) -> str:
        if parsed.schema_type == "auto_consume":
            decoded = contents.decoded(message)
            if decoded is not None:
                return json.dumps(decoded[1], ensure_ascii=False)
        return dump(message.data()) if parsed.hex else message.data().decode("utf-8", "replace")

    def shown(message: Message) -> str:
        behind = metadata(message) if parsed.print_metadata else ""
        return f"{_BOUNDARY}\n{described(message, content(message))}{behind}\n"

    return shown


def described(message: Message, content: str) -> str:
    """Returns the fields of a message, followed by the content."""
    properties = ", ".join(f"{key}={value}" for key, value in message.properties().items())
    return (
        f"publishTime:[{message.publish_timestamp()}], eventTime:[{message.event_timestamp()}], "
        f"key:[{message.partition_key() or 'null'}], properties:[{properties}], content:{content}"
    )


def metadata(message: Message) -> str:
    """Returns the text of ``--print-metadata``."""
    version = message.schema_version()
    event_time = time_text(message.event_timestamp()).replace(".000Z", "Z")
    return (
        f", event-time:{event_time}, message-id:{id_text(message.message_id())}, "
        f"producer-name:{message.producer_name()}, sequence-id:{message.sequence_id()}, "
        f"replicated-from:{message.replicated_from() or 'null'}, "
        f"redelivery-count:{message.redelivery_count()}, ordering-key:{message.ordering_key()}, "
        f"schema-version:{int.from_bytes(version, 'big', signed=True) if version else ''}"
    )


def dump(data: bytes) -> str:
    """Returns lines of 16 bytes: offset, hexadecimal, and text."""
    lines = []
    for at in range(0, len(data), _HEX_WIDTH):
        part = data[at : at + _HEX_WIDTH]
        digits = "".join(f"{byte:02X} " for byte in part).ljust(3 * _HEX_WIDTH)
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08X} {digits}{text}\n")
    return "".join(lines)
