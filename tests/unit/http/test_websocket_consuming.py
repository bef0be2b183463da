"""A consumer's WebSocket, between a consumer and a client that only remember."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from simulated_io.loop import SimulatedLoop

from magnetar.client.exceptions import UnknownError
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.http.websocket.consuming import Answered, Consuming, Terms
from magnetar.protocol.metadata import Entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


class Consumer:
    """See ``Receiving``."""

    def __init__(self) -> None:
        self.on_arrival: Callable[[], object] | None = None
        self.waiting: deque[Message] = deque()
        self.acknowledged: list[Answered] = []
        self.failure: Exception | None = None
        self.unsubscribed = self.closed = False

    def arrive(self, count: int, content: bytes = b"x") -> None:
        for _ in range(count):
            metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
            message_id = MessageId(-1, 1, len(self.waiting))
            self.waiting.append(Message("t", message_id, Entry(None, metadata, content), b"", content, 0))
        self.wake()

    def wake(self) -> None:
        if self.on_arrival is not None:
            self.on_arrival()

    def take(self) -> Message | None:
        if self.failure is not None:
            raise self.failure
        return self.waiting.popleft() if self.waiting else None

    def acknowledge_soon(self, message: Answered) -> None:
        self.acknowledged.append(message)

    def negative_acknowledge(self, message: Answered) -> None:
        raise AssertionError(message)

    def has_reached_end_of_topic(self) -> bool:
        return True

    async def unsubscribe(self) -> None:
        self.unsubscribed = True
        self.failure = UnknownError("closed")
        self.wake()

    async def close(self) -> None:
        self.closed = True


class Client:
    """As much of a WebSocket as it takes."""

    remote = "client:1"

    def __init__(self) -> None:
        self.takes = True
        self.got: list[dict[str, Any]] = []
        self.parts: list[str] = []
        self.ended: list[tuple[int, str]] = []

    def send(self, text: str) -> None:
        self.got.append(json.loads(text))

    def send_part(self, text: str, *, last: bool) -> None:
        self.parts.append(text)
        if last:
            self.send("".join(self.parts))
            self.parts.clear()

    def close(self, code: int, reason: str = "") -> None:
        self.takes = False
        self.ended.append((code, reason))


class World:
    def __init__(self, **terms: Any) -> None:
        self.loop = SimulatedLoop()
        self.consumer = Consumer()
        self.client = Client()
        self.forgotten: list[Consuming] = []
        told = Terms(("t",), "s", **terms)
        self.served = Consuming(self.loop, told, self.consumer, self.forgotten.append)
        self.served.opened(self.client)  # type: ignore[arg-type]

    def say(self, **command: Any) -> None:
        self.served.received(json.dumps(command))


def test_messages_go_out_as_they_come_and_as_many_as_may_be_unanswered() -> None:
    world = World(pending=2)
    world.consumer.arrive(3)
    assert len(world.client.got) == 2
    first = world.client.got[0]["messageId"]
    world.say(messageId=first)
    assert len(world.client.got) == 3
    assert world.consumer.acknowledged == [MessageId.deserialize(b64decode(first))]
    world.consumer.arrive(1)
    assert len(world.client.got) == 3


@pytest.mark.parametrize("several", [False, True])
def test_each_answer_makes_room_also_where_messages_have_the_same_id(several: bool) -> None:
    world = World(pending=2, several=several)
    for delivered in (2, 4, 6):
        for _ in range(2):
            # As those of topics that store nothing, and those that are delivered again.
            world.consumer.waiting.clear()
            world.consumer.arrive(1)
        assert len(world.client.got) == delivered
        for _ in range(2):
            world.say(messageId=world.client.got[-1]["messageId"])
    assert not world.client.ended


@pytest.mark.parametrize(("index", "size"), [(0, 2**31 - 1), (2**31 - 1, 0), (1 << 20, 3)])
def test_an_id_of_a_batch_that_cannot_be_is_refused_before_room_is_made_for_it(index: int, size: int) -> None:
    world = World()
    world.say(messageId=b64encode(MessageId(-1, 1, 0, index, size).serialize()).decode())
    assert [code for code, _ in world.client.ended] == [1007]
    assert not world.consumer.acknowledged


def test_those_that_pull_get_what_they_permit() -> None:
    world = World(pulls=True)
    world.consumer.arrive(5)
    assert not world.client.got
    world.say(type="permit", permitMessages=2)
    world.say(type="permit", permitMessages=1)
    assert len(world.client.got) == 3


def test_who_takes_nothing_is_sent_nothing_until_it_does() -> None:
    world = World()
    world.client.takes = False
    world.consumer.arrive(3)
    assert (len(world.client.got), len(world.consumer.waiting)) == (0, 3)
    world.client.takes = True
    world.served.go_on()
    assert len(world.client.got) == 3


def test_many_at_once_let_others_come_between() -> None:
    world = World()
    world.consumer.arrive(150)
    assert len(world.client.got) == 64
    world.consumer.wake()
    world.say(messageId=b64encode(MessageId(-1, 1, 0).serialize()).decode())
    assert len(world.client.got) == 64
    world.loop.run_for(0.0)
    assert len(world.client.got) == 150


def test_a_large_message_goes_out_in_parts_as_the_client_takes_them() -> None:
    world = World(pending=2)
    large = bytes(700_000)
    world.consumer.arrive(1, large)
    world.consumer.arrive(1)
    assert len(world.client.parts) == 1
    world.consumer.wake()
    assert len(world.client.parts) == 1
    world.client.takes = False
    world.loop.run_for(0.0)
    assert (len(world.client.parts), world.client.got) == (1, [])
    world.client.takes = True
    world.served.go_on()
    assert len(world.client.parts) == 2
    world.loop.run_for(0.0)
    assert [len(b64decode(each["payload"])) for each in world.client.got] == [len(large), 1]
    assert not world.client.ended


def test_a_large_message_is_forgotten_when_the_client_goes() -> None:
    world = World()
    world.consumer.arrive(2, bytes(700_000))
    world.served.ended()
    world.loop.run_for(0.0)
    assert (len(world.client.parts), len(world.consumer.waiting)) == (1, 1)


def test_a_consumer_that_fails_ends_it() -> None:
    world = World()
    world.consumer.failure = UnknownError("given up")
    world.consumer.wake()
    assert world.client.ended == [(1011, "given up")]


def test_a_defect_ends_it_and_reaches_nobody_else() -> None:
    world = World()
    world.consumer.failure = RuntimeError("a defect")
    world.consumer.wake()
    assert world.client.ended == [(1011, "Internal error")]


def test_who_unsubscribes_is_told_so() -> None:
    world = World()
    world.say(type="unsubscribe")
    world.loop.run_for(0.0)
    assert world.consumer.unsubscribed
    assert world.client.ended == [(1000, "Unsubscribed")]


def test_nothing_is_sent_to_who_has_gone() -> None:
    world = World()
    world.served.ended()
    world.consumer.arrive(1)
    world.loop.run_for(0.0)
    assert (world.client.got, world.consumer.closed, world.forgotten) == ([], True, [world.served])
