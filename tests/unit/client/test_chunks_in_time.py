"""Messages of which some chunks never come: what becomes of the others, and when."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest
from simulated_io.loop import SimulatedLoop

from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.enums import ConsumerType
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.reader import Reader
from magnetar.io.interfaces import ClientIo
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandMessage, MessageIdData, MessageMetadata

_TOPIC = "persistent://public/default/t"
_CHUNKS = 3
_MINUTE = 60.0
"""As Pulsar's clients wait where they are not told otherwise."""


class Outside:
    """Clock, chance and a connection that notes what is sent."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._random = Random(1)
        self.wire = self
        self.closed = False
        self.acknowledged: list[int] = []
        self.asked_again: list[int] = []

    def wall_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def fraction(self) -> float:
        return self._random.random()

    def token(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def send(self, sent: BaseCommand | bytearray) -> None:
        command = sent if isinstance(sent, BaseCommand) else BaseCommand.FromString(bytes(sent[8:]))
        self.acknowledged += [each.entryId for each in command.ack.message_id]
        self.asked_again += [each.entryId for each in command.redeliverUnacknowledgedMessages.message_ids]


class Consuming:
    """A consumer on a shared subscription, and chunks that it is given."""

    def __init__(self, **options: Any) -> None:
        self.loop = SimulatedLoop()
        outside: Any = Outside(self.loop)
        self.outside: Outside = outside
        io = ClientIo(loop=self.loop, clock=outside, randomness=outside, network=outside)
        services = Client("pulsar://broker", io=io).services
        known = ConsumerOptions(consumer_type=ConsumerType.Shared, ack_group_time_ms=0, **options)
        self.consumer = Consumer(services, _TOPIC, "s", known)
        self.consumer._attachment.connection = outside
        self._entries = count()

    def comes(self, uuid: str, chunk: int, published_seconds_ago: float = 0.0) -> None:
        """Each is an entry, from 0 on."""
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=self.outside.wall_ms() - int(published_seconds_ago * 1000),
            uuid=uuid,
            chunk_id=chunk,
            num_chunks_from_msg=_CHUNKS,
            total_chunk_msg_size=2 * _CHUNKS,
        )
        place = MessageIdData(ledgerId=1, entryId=next(self._entries))
        command = CommandMessage(consumer_id=1, message_id=place)
        self.consumer.message(command, build_entry(metadata, b"%d," % chunk), True)

    def take(self) -> Message | None:
        return self.consumer.take()

    def wait(self, seconds: float) -> None:
        self.loop.run_for(seconds)


def test_chunks_whose_message_is_not_whole_in_time_are_acknowledged() -> None:
    """The time runs from the first one."""
    consuming = Consuming()
    consuming.comes("a", 0)
    assert consuming.take() is None
    consuming.wait(_MINUTE / 2)
    consuming.comes("a", 1)
    consuming.comes("b", 0)
    assert consuming.take() is None
    consuming.wait(_MINUTE / 2 - 0.1)
    assert consuming.outside.acknowledged == []
    consuming.wait(0.2)
    assert consuming.outside.acknowledged == [0, 1]
    consuming.comes("b", 1)
    consuming.comes("b", 2)
    message = consuming.take()
    assert message is not None
    assert message.data() == b"0,1,2,"
    consuming.wait(2 * _MINUTE)
    assert consuming.outside.acknowledged == [0, 1], "what is whole is for whoever takes it to acknowledge"


def test_a_message_that_begins_again_has_its_time_again() -> None:
    consuming = Consuming(expire_time_of_incomplete_chunked_message_ms=1000)
    consuming.comes("a", 0)
    assert consuming.take() is None
    consuming.wait(0.7)
    consuming.comes("a", 0)
    assert consuming.take() is None
    consuming.wait(0.7)
    assert consuming.outside.acknowledged == []
    consuming.wait(0.7)
    assert consuming.outside.acknowledged == [1]


def test_with_zero_they_are_waited_for_without_end() -> None:
    consuming = Consuming(expire_time_of_incomplete_chunked_message_ms=0)
    consuming.comes("a", 0)
    assert consuming.take() is None
    consuming.wait(100 * _MINUTE)
    consuming.comes("a", 1, published_seconds_ago=50 * _MINUTE)
    consuming.comes("a", 2)
    assert consuming.take() is not None
    consuming.comes("b", 2, published_seconds_ago=50 * _MINUTE)
    assert consuming.take() is None
    assert consuming.outside.acknowledged == []


def test_chunks_that_have_come_in_time_count_though_nobody_took_messages_then() -> None:
    consuming = Consuming()
    consuming.comes("a", 0)
    assert consuming.take() is None
    consuming.comes("a", 1)
    consuming.comes("a", 2)
    consuming.wait(2 * _MINUTE)
    message = consuming.take()
    assert message is not None
    assert (message.data(), consuming.outside.acknowledged) == (b"0,1,2,", [])


def test_a_chunk_without_those_before_it_is_acknowledged_once_it_is_old() -> None:
    """Until then they may still be delivered, here or elsewhere, and it again with them."""
    consuming = Consuming(unacked_messages_timeout_ms=1000)
    consuming.wait(2 * _MINUTE)
    consuming.comes("a", 1, published_seconds_ago=_MINUTE - 1)
    consuming.comes("b", 2, published_seconds_ago=_MINUTE + 1)
    assert consuming.take() is None
    assert consuming.outside.acknowledged == [1]
    consuming.wait(1.1)
    assert consuming.outside.asked_again == [0], "nobody has acknowledged it in the time for that"


def test_a_chunk_without_those_before_it_takes_nobodys_place() -> None:
    consuming = Consuming(max_pending_chunked_message=1, auto_ack_oldest_chunked_message_on_queue_full=True)
    consuming.comes("a", 0)
    consuming.comes("b", 1)
    consuming.comes("a", 1)
    consuming.comes("a", 2)
    assert consuming.take() is not None
    assert consuming.outside.acknowledged == []


@pytest.mark.parametrize(("acknowledges", "acknowledged", "asked_again"), [(True, [0], []), (False, [], [0])])
def test_what_is_given_up_for_want_of_room(
    acknowledges: bool, acknowledged: list[int], asked_again: list[int]
) -> None:
    consuming = Consuming(
        max_pending_chunked_message=1,
        auto_ack_oldest_chunked_message_on_queue_full=acknowledges,
        unacked_messages_timeout_ms=1000,
    )
    consuming.comes("a", 0)
    consuming.comes("b", 0)
    assert consuming.take() is None
    consuming.wait(1.1)
    assert consuming.outside.acknowledged == acknowledged
    assert consuming.outside.asked_again == asked_again


def test_who_has_ended_acknowledges_nothing_any_more() -> None:
    consuming = Consuming()
    consuming.comes("a", 0)
    assert consuming.take() is None
    consuming.consumer._end()
    consuming.consumer._attachment.connection = None
    consuming.wait(2 * _MINUTE)
    assert consuming.outside.acknowledged == []
    assert not consuming.consumer._queue.chunks._open


def test_readers_are_told_as_consumers_are() -> None:
    consuming = Consuming()
    services = consuming.consumer._services
    reader = Reader(services, _TOPIC, MessageId.earliest, expire_time_of_incomplete_chunked_message_ms=5)
    assert reader._consumer._options.expire_time_of_incomplete_chunked_message_ms == 5
