"""``magnetar tail TOPIC``."""

from __future__ import annotations

import argparse
import heapq
import secrets
import time
from collections.abc import Iterator
from typing import Any

from magnetar.cli.messages.filters import Wanted
from magnetar.cli.messages.places import Start
from magnetar.cli.messages.run import Ends, Refused, run
from magnetar.client import Client, MessageId, Reader
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.message import Message


def run_tail(parsed: argparse.Namespace) -> int:
    return run(parsed, _tail)


def _tail(ends: Ends, parsed: argparse.Namespace) -> None:
    if parsed.until is not None and parsed.until > time.time() * 1000:
        raise Refused("--until is a time that has not come yet")
    follow = not parsed.no_follow and parsed.until is None
    start = parsed.start or Start(end="latest" if follow else "earliest")
    wanted = Wanted(parsed.key, parsed.properties, start.time_ms or 0, parsed.until)
    write = ends.printer(parsed)
    partitions = ends.client.get_topic_partitions(parsed.topic)
    if start.position is not None and len(partitions) > 1:
        raise Refused("a LEDGER:ENTRY is of one partition; name that one")
    if follow:
        found = _followed(ends.client, parsed.topic, start)
    else:
        found = _to_the_end(ends.client, partitions, start)
    for message in found:
        if wanted.has(message):
            write(message)


def _from(start: Start) -> tuple[MessageId, dict[str, Any]]:
    options: dict[str, Any] = {
        "start_message_id_inclusive": start.position is not None,
        "crypto_failure_action": CryptoFailureAction.CONSUME,
    }
    if start.position is not None:
        return MessageId(-1, *start.position), options
    return (MessageId.latest if start.end == "latest" else MessageId.earliest), options


def _to_the_end(client: Client, partitions: list[str], start: Start) -> Iterator[Message]:
    """In the order of their publish times, as far as each partition keeps to it."""
    place, options = _from(start)
    readers = [client.create_reader(each, place, **options) for each in partitions]
    if start.time_ms is not None:
        for reader in readers:
            reader.seek(start.time_ms)
    return heapq.merge(*map(_rest, readers), key=Message.publish_timestamp)


def _rest(reader: Reader) -> Iterator[Message]:
    while reader.has_message_available():
        yield reader.read_next()


def _followed(client: Client, topic: str, start: Start) -> Iterator[Message]:
    """What is there from the start on, and what comes; of all partitions, as it arrives."""
    place, options = _from(start)
    name = f"tail-{secrets.token_hex(5)}"
    consumer = client.subscribe(topic, name, durable=False, start_message_id=place, **options)
    if start.time_ms is not None:
        consumer.seek(start.time_ms)
    while True:
        yield consumer.receive()
