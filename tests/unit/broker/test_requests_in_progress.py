"""Clients that ask more than they take, or faster than they are answered: what they cost has a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from world import World

from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import handle
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.errors import ServerErrorCode
from magnetar.io.interfaces import Buffer
from magnetar.io.waiting import finished
from magnetar.io.wheel import TimerWheel
from magnetar.protocol.frames import decode_command, encode_command, split
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

NAMES = [f"persistent://public/default/{n:08d}-{'x' * 90}" for n in range(10_000)]
"""An answer that lists them takes more than a megabyte."""


class Peer:
    """A client in this process that takes what it is sent when the test says so."""

    def __init__(self, broker: BrokerService, *, takes: bool = True) -> None:
        self.takes = takes
        self.unsent = 0
        self.most_unsent = 0
        self.closed = False
        self._high = self._low = 0
        self._paused = False
        self._frames: list[bytes] = []
        self.connection = Connection(broker, handle)
        self.connection.connection_made(self)
        self.send(frame(BaseCommand.CONNECT, "connect", client_version="test", protocol_version=21))
        broker.io.loop.run_for(0)  # type: ignore[attr-defined]

    # The transport of its connection

    def write(self, data: bytes | bytearray) -> None:
        self._frames.append(bytes(data))
        self.unsent += 0 if self.takes else len(data)
        self.most_unsent = max(self.most_unsent, self.unsent)
        self._look()

    def writelines(self, pieces: Sequence[Buffer]) -> None:
        self.write(b"".join(pieces))

    def _look(self) -> None:
        if not self._paused and self.unsent > self._high:
            self._paused = True
            self.connection.pause_writing()
        elif self._paused and self.unsent <= self._low:
            self._paused = False
            self.connection.resume_writing()

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high, self._low = high, low
        self._look()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    # The client

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def take(self) -> None:
        """Takes all that is in its socket."""
        self.unsent = 0
        self._look()

    def received(self, kind: int) -> list[BaseCommand]:
        data = b"".join(self._frames)
        commands = [decode_command(data, start) for _, start, _ in split(data, 1 << 23)]
        return [command for command in commands if command.type == kind]

    def answers(self) -> int:
        """How many lists of topics it was sent; each is large, so that none has to be decoded."""
        return sum(len(written) // 1_000_000 for written in self._frames)


def frame(kind: BaseCommand.Type.ValueType, name: str, **fields: Any) -> bytes:
    command = BaseCommand(type=kind)
    getattr(command, name).SetInParent()
    for field, value in fields.items():
        setattr(getattr(command, name), field, value)
    return encode_command(command)


def list_frame(number: int, namespace: str = "public/default") -> bytes:
    return frame(
        BaseCommand.GET_TOPICS_OF_NAMESPACE, "getTopicsOfNamespace", request_id=number, namespace=namespace
    )


def partitions_frame(number: int) -> bytes:
    topic = f"persistent://public/default/t{number}"
    return frame(BaseCommand.PARTITIONED_METADATA, "partitionMetadata", topic=topic, request_id=number)


def lookup_frame(number: int) -> bytes:
    topic = f"persistent://public/default/t{number}"
    return frame(BaseCommand.LOOKUP, "lookupTopic", topic=topic, request_id=number)


class Brokers:
    def __init__(self, **settings: Any) -> None:
        self.world = World()
        self.loop = self.world.simulation.loop
        io = self.world.simulation.io
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        topic = TopicSettings(DispatchSettings())
        known = BrokerSettings("standalone", urls[1], urls[0], topic, keep_alive_seconds=30, **settings)
        self.broker = BrokerService(io, TimerWheel(io.loop), self.world.metadata, self.world.managed, known)
        self.listings = 0
        self.held: Any = None

    def has_many_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def names(_namespace: object) -> list[str]:
            self.listings += 1
            return list(NAMES)

        monkeypatch.setattr(self.broker.namespaces, "persistent_topics", names)

    def hold(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """From now on the metadata does not answer until :meth:`let_go`; what was asked of it."""
        asked: list[int] = []
        self.held = self.loop.create_future()

        async def check(_namespace: object) -> None:
            asked.append(1)
            await finished(self.loop, self.held)

        monkeypatch.setattr(self.broker.namespaces, "check", check)
        return asked

    def let_go(self) -> None:
        self.held.set_result(None)

    def until(self, done: Callable[[], bool], most: int = 20_000) -> None:
        for _ in range(most):
            if done():
                return
            self.loop.run_for(0.001)
        raise AssertionError("it never came to an end")


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    yield brokers
    assert brokers.broker.lookups.pending == 0


@pytest.mark.parametrize("one", [list_frame, partitions_frame, lookup_frame])
def test_requests_in_progress_on_a_connection_are_bounded(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, one: Callable[[int], bytes]
) -> None:
    asked = brokers.hold(monkeypatch)
    hasty, other = Peer(brokers.broker), Peer(brokers.broker)
    hasty.send(b"".join(one(number) for number in range(600)))
    brokers.loop.run_for(5)
    assert 0 < len(asked) <= 256
    before = len(asked)
    other.send(lookup_frame(1))
    brokers.loop.run_for(1)
    assert len(asked) == before + 1, "another connection is read"
    brokers.let_go()
    kinds = {
        list_frame: BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        partitions_frame: BaseCommand.PARTITIONED_METADATA_RESPONSE,
        lookup_frame: BaseCommand.LOOKUP_RESPONSE,
    }
    brokers.until(lambda: len(hasty.received(kinds[one])) == 600)


def test_large_requests_in_progress_are_bounded_by_their_bytes(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = brokers.hold(monkeypatch)
    hasty = Peer(brokers.broker)
    large = "persistent://public/default/" + "x" * 500
    metadata = frame(
        BaseCommand.LOOKUP, "lookupTopic", topic=large, request_id=1, original_principal="p" * 500_000
    )
    for _ in range(50):
        hasty.send(metadata)
    brokers.loop.run_for(5)
    assert 0 < len(asked) <= 3
    brokers.let_go()
    brokers.until(lambda: len(hasty.received(BaseCommand.LOOKUP_RESPONSE)) == 50, 100)


def test_a_client_that_waits_for_the_broker_is_not_taken_for_dead(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.hold(monkeypatch)
    hasty = Peer(brokers.broker)
    hasty.send(b"".join(lookup_frame(number) for number in range(1_000)))
    brokers.loop.run_for(300)
    assert not hasty.closed
    brokers.let_go()
    brokers.until(lambda: len(hasty.received(BaseCommand.LOOKUP_RESPONSE)) == 1_000, 100)


def test_who_asks_for_lists_and_takes_none_costs_little(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.has_many_topics(monkeypatch)
    greedy, other = Peer(brokers.broker, takes=False), Peer(brokers.broker)
    greedy.send(b"".join(list_frame(number) for number in range(1_000)))
    brokers.loop.run_for(5)
    assert greedy.most_unsent < 4_000_000
    assert brokers.listings < 10
    other.send(list_frame(1))
    brokers.until(lambda: other.answers() == 1)
    for taken in range(1, 21):
        greedy.take()
        brokers.until(lambda taken=taken: greedy.answers() > taken)  # type: ignore[misc]
    brokers.loop.run_for(300)
    assert greedy.closed, "it showed no sign of life"
    greedy.connection.connection_lost(None)
    brokers.until(lambda: brokers.broker.lookups.pending == 0)


def test_who_asks_at_the_same_time_shares_a_list(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers.has_many_topics(monkeypatch)
    peers = [Peer(brokers.broker) for _ in range(20)]
    for peer in peers:
        peer.send(list_frame(1))
    brokers.until(lambda: all(peer.answers() for peer in peers))
    assert brokers.listings < 10


def test_a_list_holds_what_was_made_before_it_was_asked_for(brokers: Brokers) -> None:
    """Even if another list is being made at that time."""
    service = brokers.broker
    namespaces = service.namespaces
    listed = namespaces.persistent_topics
    made = brokers.loop.create_future()

    async def slow(namespace: Any) -> list[str]:
        names = await listed(namespace)
        if not made.done():
            made.set_result(None)
            waiter = brokers.loop.create_future()
            brokers.loop.call_later(1, waiter.set_result, None)
            await waiter
        return names

    namespaces.persistent_topics = slow  # type: ignore[method-assign]
    early = brokers.loop.create_task(service.topic_names("public/default"))
    brokers.until(made.done)
    name = service.parse_topic("persistent://public/default/new")
    brokers.world.run(service.topics.load(name, create=True))
    late = brokers.loop.create_task(service.topic_names("public/default"))
    assert list(brokers.world.run(late)) == [str(name)]
    assert list(brokers.world.run(early)) == []


def test_lookups_in_progress_are_bounded_whatever_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(max_lookups=3)
    brokers.hold(monkeypatch)
    for first in (list_frame, partitions_frame, lookup_frame):
        Peer(brokers.broker).send(first(1))
    brokers.loop.run_for(1)
    assert brokers.broker.lookups.pending == 3
    late = Peer(brokers.broker)
    for one in (list_frame, partitions_frame, lookup_frame):
        late.send(one(7))
    brokers.loop.run_for(1)
    too_many = int(ServerErrorCode.TOO_MANY_REQUESTS)
    assert [c.error.error for c in late.received(BaseCommand.ERROR)] == [too_many]
    found = late.received(BaseCommand.PARTITIONED_METADATA_RESPONSE)
    assert [c.partitionMetadataResponse.error for c in found] == [too_many]
    found = late.received(BaseCommand.LOOKUP_RESPONSE)
    assert [c.lookupTopicResponse.error for c in found] == [too_many]
    brokers.let_go()
    brokers.until(lambda: brokers.broker.lookups.pending == 0, 100)


def test_producers_that_wait_for_exclusive_access_do_not_hold_up_their_connection(brokers: Brokers) -> None:
    """The one they wait for may be of the same connection."""
    peer = Peer(brokers.broker)
    topic = "persistent://public/default/exclusive"
    for number in range(400):
        fields = {"topic": topic, "producer_id": number, "request_id": number}
        peer.send(frame(BaseCommand.PRODUCER, "producer", producer_access_mode=2, **fields))
        if number == 0:
            brokers.until(lambda: bool(peer.received(BaseCommand.PRODUCER_SUCCESS)))
    brokers.until(lambda: len(peer.received(BaseCommand.PRODUCER_SUCCESS)) == 400, 100)
    peer.send(frame(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0, request_id=1000))
    brokers.until(lambda: bool(peer.received(BaseCommand.SUCCESS)), 100)

    def ready() -> int:
        found = peer.received(BaseCommand.PRODUCER_SUCCESS)
        return sum(command.producer_success.producer_ready for command in found)

    brokers.until(lambda: ready() == 2, 1000)
