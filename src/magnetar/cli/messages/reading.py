"""``magnetar tail`` and ``magnetar consume``: read and filter the messages of a topic."""

from __future__ import annotations

import argparse
import heapq
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from magnetar.cli.command_lines import Refused
from magnetar.cli.messages.flags import Start
from magnetar.cli.messages.run import Ends, run
from magnetar.client import ConsumerType, InitialPosition, MessageId, Reader
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.message import Message

_MORE = 4
"""Factor by which the number of read entries grows if the last attempt found too few messages."""


def to_the_end(ends: Ends, partitions: Sequence[str], start: Start) -> Iterator[Message]:
    """Yields the messages from the start position to the current end of the topic, merged by publish time;
    the messages of each partition stay in order.
    """
    readers = [_reader(ends, each, start) for each in partitions]
    if start.time_ms is not None:
        for reader in readers:
            reader.seek(start.time_ms)
    return heapq.merge(*map(_rest, readers), key=Message.publish_timestamp)


def last(ends: Ends, topic: str, number: int, wanted: MessageFilter) -> tuple[Sequence[Message], MessageId]:
    """Returns the last ``number`` messages that match ``wanted``, and the id of the topic's last message. An
    entry can contain several messages or none, so the function reads more and more entries until they contain
    enough messages.

    :param topic: a topic with one partition
    :raises AdminError: the start position cannot be determined
    """
    entries = number
    while True:
        position = ends.admin.entry_from_the_end(topic, entries)
        reader = _reader(ends, topic, Start(end="earliest") if position is None else Start(position=position))
        found: deque[Message] = deque(maxlen=number)
        end = MessageId.earliest
        for message in _rest(reader):
            end = message.message_id()
            if wanted.has(message):
                found.append(message)
        reader.close()
        if position is None or len(found) == number:
            return found, end
        entries *= _MORE


def followed(ends: Ends, topic: str, start: Start) -> Iterator[Message]:
    """Yields the messages from the start position on, and then new messages as they arrive; messages of
    different partitions are in the order of arrival.
    """
    place, inclusive = _place(start)
    yield from _coming(ends, topic, place, inclusive=inclusive, time_ms=start.time_ms)


def behind(ends: Ends, topic: str, message_id: MessageId) -> Iterator[Message]:
    """Yields the messages after ``message_id``, and then new messages as they arrive."""
    yield from _coming(ends, topic, message_id)


def _coming(
    ends: Ends, topic: str, place: MessageId, *, inclusive: bool = False, time_ms: int | None = None
) -> Iterator[Message]:
    name = f"tail-{secrets.token_hex(5)}"
    consumer = ends.client.subscribe(
        topic,
        name,
        durable=False,
        start_message_id=place,
        start_message_id_inclusive=inclusive,
        crypto_key_reader=ends.private_key,
        crypto_failure_action=CryptoFailureAction.CONSUME,
    )
    if time_ms is not None:
        consumer.seek(time_ms)
    while True:
        yield consumer.receive()


def _reader(ends: Ends, topic: str, start: Start) -> Reader:
    place, inclusive = _place(start)
    return ends.client.create_reader(
        topic,
        place,
        start_message_id_inclusive=inclusive,
        crypto_key_reader=ends.private_key,
        crypto_failure_action=CryptoFailureAction.CONSUME,
    )


def _place(start: Start) -> tuple[MessageId, bool]:
    """Returns the message id to start at, and whether the message with this id is itself read."""
    if start.position is not None:
        return MessageId(-1, *start.position), True
    return (MessageId.latest if start.end == "latest" else MessageId.earliest), False


def _rest(reader: Reader) -> Iterator[Message]:
    while reader.has_message_available():
        yield reader.read_next()


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Conditions for messages; a message must meet all of them."""

    key: str | None = None
    """A pattern (glob) for keys, which messages without a key never match; None: any key or none."""
    properties: Sequence[tuple[str, str]] = ()
    """Names of properties, each with a pattern (glob) for its value."""
    since_ms: int = 0
    until_ms: int | None = None
    """Exclusive end of the publish times, in milliseconds since 1970; None: no end."""

    def has(self, message: Message) -> bool:
        published = message.publish_timestamp()
        if published < self.since_ms or (self.until_ms is not None and published >= self.until_ms):
            return False
        if self.key is not None and not (
            message.has_partition_key() and fnmatchcase(message.partition_key(), self.key)
        ):
            return False
        if not self.properties:
            return True
        given = message.properties()
        return all(name in given and fnmatchcase(given[name], glob) for name, glob in self.properties)


def run_tail(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar tail TOPIC``; returns the exit code."""
    return run(parsed, _tail)


def _tail(ends: Ends, parsed: argparse.Namespace) -> None:
    if parsed.until is not None and parsed.until > time.time() * 1000:
        raise Refused("--until must be a time in the past")
    follow = not parsed.no_follow and parsed.until is None
    start = parsed.start or Start(end="latest" if follow else "earliest")
    wanted = MessageFilter(parsed.key, parsed.properties, start.time_ms or 0, parsed.until)
    write = ends.printer(parsed)
    partitions = ends.client.get_topic_partitions(parsed.topic, create=False)
    if start.position is not None and len(partitions) > 1:
        raise Refused("LEDGER:ENTRY is a position in one partition; give the name of that partition")
    if parsed.last is not None:
        found = _last(ends, partitions, parsed.last, wanted, follow=follow)
    elif follow:
        found = followed(ends, parsed.topic, start)
    else:
        found = to_the_end(ends, partitions, start)
    for message in found:
        if wanted.has(message):
            write(message)


def _last(
    ends: Ends, partitions: Sequence[str], number: int, wanted: MessageFilter, *, follow: bool
) -> Iterator[Message]:
    if follow and len(partitions) > 1:
        raise Refused(
            "the last messages of several partitions cannot be followed; use --no-follow or give "
            "the name of one partition"
        )
    each = [last(ends, partition, number, wanted) for partition in partitions]
    found = sorted((message for messages, _ in each for message in messages), key=Message.publish_timestamp)
    yield from found[-number:]
    if follow:
        yield from behind(ends, partitions[0], each[0][1])


def run_consume(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar consume TOPIC -s SUBSCRIPTION``; returns the exit code."""
    return run(parsed, _consume)


def _consume(ends: Ends, parsed: argparse.Namespace) -> None:
    write = ends.printer(parsed)
    consumer = ends.client.subscribe(
        parsed.topic,
        parsed.subscription,
        consumer_type=ConsumerType[parsed.type.replace("_", "")],
        initial_position=InitialPosition.Earliest if parsed.earliest else InitialPosition.Latest,
        batch_index_ack_enabled=True,
        crypto_key_reader=ends.private_key,
    )
    taken = 0
    while not parsed.count or taken < parsed.count:
        message = consumer.receive()
        write(message)
        if not parsed.no_ack:
            consumer.acknowledge(message)
        taken += 1
