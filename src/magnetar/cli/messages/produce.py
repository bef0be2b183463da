"""``magnetar produce TOPIC``: publishes messages from arguments, a file or standard input."""

from __future__ import annotations

import argparse
import json
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Any

from magnetar.cli.command_lines import Refused
from magnetar.cli.messages.lines import warn
from magnetar.cli.messages.run import Ends, paced, run
from magnetar.client.readable import id_text

_KEYS = ("partition_key", "partition_key_bytes", "null_partition_key")
"""The options of ``Producer.send`` for the different forms of a key; a message has at most one of them."""
Outgoing = tuple[bytes, dict[str, Any]]
"""A payload, and the keyword arguments of ``Producer.send`` for it."""


def run_produce(parsed: argparse.Namespace) -> int:
    return run(parsed, _produce)


def _produce(ends: Ends, parsed: argparse.Namespace) -> None:
    if parsed.messages and parsed.file is not None:
        raise Refused("messages are given both as arguments and in a file; use only one")
    if parsed.count is not None and not parsed.messages:
        raise Refused("--count requires messages as arguments")
    # Messages in arguments are checked before anything is sent.
    named = [_outgoing(each.encode("utf-8", "surrogateescape"), parsed) for each in parsed.messages]
    producer = ends.client.create_producer(parsed.topic)
    ends.access.warn_of_deletion(parsed.topic, lambda sentence: warn(f"warning: {sentence}"))
    repeated = chain.from_iterable(repeat(named, parsed.count or 1))
    pace = paced(parsed.rate)
    for content, options in repeated if named else _of_lines(parsed):
        next(pace)
        message_id = producer.send(content, **options)
        sys.stdout.write(f"{id_text(message_id)}\n")
        sys.stdout.flush()


def _of_lines(parsed: argparse.Namespace) -> Iterator[Outgoing]:
    if parsed.file is None:
        yield from _each(sys.stdin.buffer, parsed)
        return
    with parsed.file.open("rb") as lines:
        yield from _each(lines, parsed)


def _each(lines: Iterable[bytes], parsed: argparse.Namespace) -> Iterator[Outgoing]:
    for number, line in enumerate(lines, 1):
        try:
            yield _outgoing(line.removesuffix(b"\n"), parsed)
        except Refused as error:
            raise Refused(f"line {number}: {error}") from error


def _outgoing(text: bytes, parsed: argparse.Namespace) -> Outgoing:
    content, options = _replayed(text) if parsed.json else (text, {})
    if parsed.key is not None:
        for name in _KEYS:
            options.pop(name, None)
        options["partition_key"] = parsed.key
    if parsed.properties:
        options["properties"] = {**options.get("properties", {}), **dict(parsed.properties)}
    return content, options


def _replayed(text: bytes) -> Outgoing:
    """Parses a line that ``-o json`` printed; returns the message to publish.

    :raises Refused: the line has another form, or the message cannot be sent
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the text is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused("the text is not a JSON object")
    if found.get("encrypted"):
        raise Refused(
            "the message is encrypted and cannot be sent again, because the line lacks the encryption "
            "properties"
        )
    content: bytes
    match found:
        case {"content": None}:
            raise Refused("messages without content (null) cannot be sent by this release")
        case {"content": str(given)}:
            content = given.encode("utf-8", "surrogatepass")
        case {"hex": str(given)}:
            try:
                content = bytes.fromhex(given)
            except ValueError as error:
                raise Refused(f"the field hex is not hexadecimal: {error}") from error
        case _:
            raise Refused("the object needs a field content or hex, whose value is a string")
    return content, _options(found)


def _options(found: dict[str, object]) -> dict[str, object]:
    options: dict[str, object] = _key(found)
    if "orderingKey" in found:
        if not isinstance(found["orderingKey"], str):
            raise Refused(f"orderingKey must be a string, not {found['orderingKey']!r}")
        options["ordering_key"] = found["orderingKey"]
    properties = found.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(each, str) for each in properties.values()):
        raise Refused(f"properties must be an object whose values are strings, not {properties!r}")
    if properties:
        options["properties"] = properties
    if "eventTime" in found:
        time = found["eventTime"]
        if type(time) is not int or not 0 <= time < 2**64:
            raise Refused(f"eventTime must be a time in ms since 1970, not {time!r}")
        options["event_timestamp"] = time
    return options


def _key(found: dict[str, object]) -> dict[str, object]:
    match found:
        case {"key": None}:
            return {"null_partition_key": True}
        case {"key": str(key), "base64EncodedKey": True}:
            try:
                return {"partition_key_bytes": b64decode(key, validate=True)}
            except ValueError as error:
                raise Refused(f"the field key is not Base64: {error}") from error
        case {"base64EncodedKey": given} if given is not False:
            raise Refused(
                f"base64EncodedKey must be true or false, and requires the field key; the value is {given!r}"
            )
        case {"key": str(key)}:
            return {"partition_key": key}
        case {"key": key}:
            raise Refused(f"key must be a string or null, not {key!r}")
    return {}
