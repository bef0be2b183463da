"""Messages of a topic that are there, and those that come."""

from __future__ import annotations

import heapq
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from magnetar.cli.messages.filters import MessageFilter
from magnetar.cli.messages.places import Start
from magnetar.cli.messages.run import Ends
from magnetar.client import MessageId, Reader
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.message import Message

_MORE = 4
"""So many times as many entries are looked at when there was too little in the last ones."""
_AS_IT_IS: dict[str, Any] = {"crypto_failure_action": CryptoFailureAction.CONSUME}


def to_the_end(ends: Ends, partitions: Sequence[str], start: Start) -> Iterator[Message]:
    """In the order of their publish times, as far as each partition keeps to it."""
    readers = [_reader(ends, each, start) for each in partitions]
    if start.time_ms is not None:
        for reader in readers:
            reader.seek(start.time_ms)
    return heapq.merge(*map(_rest, readers), key=Message.publish_timestamp)


def last(ends: Ends, topic: str, number: int, wanted: MessageFilter) -> tuple[Sequence[Message], MessageId]:
    """The last messages that are wanted, and the id behind which others follow.

    An entry has a message or several, or none for clients: so many entries from the end are read, or more.

    :param topic: with one partition
    :raises AdminError: it is not to be had where they begin
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
    """What is there from the start on, and what comes; of all partitions, as it arrives."""
    place, inclusive = _place(start)
    yield from _coming(ends, topic, place, inclusive=inclusive, time_ms=start.time_ms)


def behind(ends: Ends, topic: str, message_id: MessageId) -> Iterator[Message]:
    """What follows a message, and what comes."""
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
        **_AS_IT_IS,
    )
    if time_ms is not None:
        consumer.seek(time_ms)
    while True:
        yield consumer.receive()


def _reader(ends: Ends, topic: str, start: Start) -> Reader:
    place, inclusive = _place(start)
    return ends.client.create_reader(
        topic, place, start_message_id_inclusive=inclusive, crypto_key_reader=ends.private_key, **_AS_IT_IS
    )


def _place(start: Start) -> tuple[MessageId, bool]:
    """And whether the message there is one of them."""
    if start.position is not None:
        return MessageId(-1, *start.position), True
    return (MessageId.latest if start.end == "latest" else MessageId.earliest), False


def _rest(reader: Reader) -> Iterator[Message]:
    while reader.has_message_available():
        yield reader.read_next()
