"""Reads existing and new messages of a topic."""

from __future__ import annotations

import heapq
import secrets
from collections import deque
from collections.abc import Iterator, Sequence

from magnetar.cli.messages.filters import MessageFilter
from magnetar.cli.messages.places import Start
from magnetar.cli.messages.run import Ends
from magnetar.client import MessageId, Reader
from magnetar.client.enums import CryptoFailureAction
from magnetar.client.message import Message

_MORE = 4
"""Factor by which the number of entries grows if the last ones had too few messages."""
_AS_IT_IS: dict[str, object] = {"crypto_failure_action": CryptoFailureAction.CONSUME}


def to_the_end(ends: Ends, partitions: Sequence[str], start: Start) -> Iterator[Message]:
    """Yields messages in the order of publish times, as far as each partition is in this order."""
    readers = [_reader(ends, each, start) for each in partitions]
    if start.time_ms is not None:
        for reader in readers:
            reader.seek(start.time_ms)
    return heapq.merge(*map(_rest, readers), key=Message.publish_timestamp)


def last(ends: Ends, topic: str, number: int, wanted: MessageFilter) -> tuple[Sequence[Message], MessageId]:
    """Returns the last matching messages, and the id after which later messages follow.

    An entry may have one message, several, or none for clients, so the number of entries is increased until
    there are enough messages.

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
    """Yields existing messages from the start, then new ones, of all partitions in order of arrival."""
    place, inclusive = _place(start)
    yield from _coming(ends, topic, place, inclusive=inclusive, time_ms=start.time_ms)


def behind(ends: Ends, topic: str, message_id: MessageId) -> Iterator[Message]:
    """Yields the messages after a message, then new ones."""
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
    """Returns the message id, and whether it is inclusive."""
    if start.position is not None:
        return MessageId(-1, *start.position), True
    return (MessageId.latest if start.end == "latest" else MessageId.earliest), False


def _rest(reader: Reader) -> Iterator[Message]:
    while reader.has_message_available():
        yield reader.read_next()
