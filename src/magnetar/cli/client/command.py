"""``pulsar-client produce``, ``consume`` and ``read``."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from magnetar.cli.cluster_access import AccessRefused, cluster_access
from magnetar.client import (
    Client,
    CompressionType,
    ConsumerType,
    InitialPosition,
    MessageId,
    PulsarException,
    Timeout,
)
from magnetar.client.message import Message
from magnetar.client.schema import ProducerSchema

_POLL_MS = 5_000
_BOUNDARY = "----- got message -----"
_HEX_WIDTH = 16
_ID = re.compile(r"(\d{1,18}):(\d{1,18})")


class _Refused(Exception):
    """The command line cannot be carried out; the text says why."""


def perform(parsed: argparse.Namespace) -> int:
    """Does what was asked; the exit code: 0 well, 1 failed, 130 interrupted."""
    try:
        access = cluster_access(
            {
                "brokerServiceUrl": parsed.url,
                "authPlugin": parsed.auth_plugin,
                "authParams": parsed.auth_params,
                "tlsTrustCertsFilePath": parsed.tlsTrustCertsFilePath,
            }
        )
        work = {"produce": _produce, "consume": _consume, "read": _read}[parsed.command]
        contents = _contents(parsed) if parsed.command == "produce" else []
        with Client(
            access.service_url, listener_name=parsed.listener_name, **access.client_options()
        ) as client:
            done = work(client, parsed, contents)
    except (AccessRefused, PulsarException, _Refused, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.stderr.write(f"pulsar-client: {_said(error)}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stderr.write(f"{done}\n")
    return 0


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, PulsarException) else str(error)


def _contents(parsed: argparse.Namespace) -> list[bytes]:
    """Those of -m, then those of -f.

    :raises _Refused: there are none
    :raises OSError: a file cannot be read
    """
    found: list[bytes] = []
    for text in parsed.messages:
        parts = text.split(parsed.separator) if parsed.separator else [text]
        # What was no text when it was typed goes out as it was.
        found += [part.encode("utf-8", "surrogateescape") for part in parts]
    found += [Path(name).read_bytes() for name in parsed.files]
    if not found:
        raise _Refused("Please supply message content with either --messages or --files")
    if parsed.value_schema == "string":
        for number, content in enumerate(found, 1):
            _check_text(content, number)
    return found


def _check_text(content: bytes, number: int) -> None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"--value-schema string: content {number} is no text: {error}") from error


def _properties(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in (part for texts in given for part in texts.split(",") if part):
        key, separator, value = text.partition("=")
        if not separator:
            raise _Refused(f"--properties: {text!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def _produce(client: Client, parsed: argparse.Namespace, contents: list[bytes]) -> str:
    options: dict[str, Any] = {"properties": _properties(parsed.properties)}
    if parsed.key:
        options["partition_key"] = parsed.key
    if parsed.disable_replication:
        options["disable_replication"] = True
    producer = client.create_producer(
        parsed.topic,
        batching_enabled=not parsed.disable_batching,
        batching_max_publish_delay_ms=1,
        compression_type=CompressionType.NONE,
        schema=ProducerSchema("STRING") if parsed.value_schema == "string" else None,
    )
    pace = paced(parsed.rate)
    for _ in range(parsed.num_produce):
        for content in contents:
            next(pace)
            producer.send(content, **options)
    return f"{parsed.num_produce * len(contents)} messages successfully produced"


def _consume(client: Client, parsed: argparse.Namespace, _contents: list[bytes]) -> str:
    consumer = client.subscribe(
        parsed.topic,
        parsed.subscription_name,
        consumer_type=ConsumerType[parsed.subscription_type.replace("_", "")],
        initial_position=InitialPosition[parsed.subscription_position],
        durable=parsed.subscription_mode == "Durable",
        replicate_subscription_state_enabled=parsed.replicated,
    )
    taken = 0
    for message in _printed(consumer.receive, parsed):
        consumer.acknowledge(message)
        taken += 1
    return f"{taken} messages successfully consumed"


def _read(client: Client, parsed: argparse.Namespace, _contents: list[bytes]) -> str:
    if len(client.get_topic_partitions(parsed.topic)) > 1:
        raise _Refused("read: the topic has several partitions; name one of them")
    reader = client.create_reader(
        parsed.topic,
        _message_id(parsed.start_message_id),
        start_message_id_inclusive=parsed.start_message_id_inclusive,
    )
    taken = sum(1 for _ in _printed(reader.read_next, parsed))
    return f"{taken} messages successfully read"


def _message_id(text: str) -> MessageId:
    """:raises _Refused: it is none"""
    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    found = _ID.fullmatch(text)
    if found is None:
        raise _Refused(f"--start-message-id: {text!r} is not earliest, latest or LEDGER:ENTRY")
    return MessageId(-1, int(found[1]), int(found[2]))


def _printed(receive: Callable[[int], Message], parsed: argparse.Namespace) -> Iterator[Message]:
    """As many as are wanted, each when it was printed, unless that is to be left out."""
    pace = paced(parsed.rate)
    taken = 0
    while parsed.num_messages == 0 or taken < parsed.num_messages:
        try:
            message = receive(_POLL_MS)
        except Timeout:
            continue
        next(pace)
        if not parsed.hide_content:
            sys.stdout.write(f"{_BOUNDARY}\n{described(message, in_hex=parsed.hex)}\n")
            sys.stdout.flush()
        yield message
        taken += 1


def paced(rate: float) -> Iterator[None]:
    """Each next one waits for its turn; ``rate`` a second, 0: no bound."""
    due = time.monotonic()
    while True:
        if rate:
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - 1) + 1 / rate
        yield


def described(message: Message, *, in_hex: bool) -> str:
    """A message as Pulsar's command prints it."""
    content = dump(message.data()) if in_hex else message.data().decode("utf-8", "replace")
    properties = ", ".join(f"{key}={value}" for key, value in message.properties().items())
    return (
        f"publishTime:[{message.publish_timestamp()}], eventTime:[{message.event_timestamp()}], "
        f"key:[{message.partition_key() or 'null'}], properties:[{properties}], content:{content}"
    )


def dump(data: bytes) -> str:
    """Lines of 16 bytes: where they begin, in hexadecimal, and as text."""
    lines = []
    for at in range(0, len(data), _HEX_WIDTH):
        part = data[at : at + _HEX_WIDTH]
        digits = "".join(f"{byte:02X} " for byte in part).ljust(3 * _HEX_WIDTH)
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08X} {digits}{text}\n")
    return "".join(lines)
