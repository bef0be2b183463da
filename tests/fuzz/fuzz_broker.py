"""A broker in a simulated world, with transports that a test feeds, and what must hold after each case."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuzz_guard import GOOD, guard
from world import SMALL, World

from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import handle
from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.flow.outgoing import UnsentBytes
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.io.interfaces import Buffer, StreamProtocol
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.settings import EntryCacheSettings
from magnetar.protocol.frames import decode_command, split
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from magnetar.security.rules import PulsarRules

MAX_ANSWER = 64 << 20


class Defect(AssertionError):
    """Something that must never happen did."""


class LogWatch(logging.Handler):
    """Keeps records of what a broker may only say when it has a defect: an exception nobody expected."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.bad: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.bad.append(logging.Formatter("%(message)s").format(record) + f" {record.__dict__}")


class Transport:
    """The socket of one connection: what the test feeds goes in, what the broker says is parsed.

    :param takes: whether the client reads its answers
    :param high: unsent bytes beyond which it says that it has enough, whatever it is told
    """

    def __init__(
        self, loop: Any, protocol: StreamProtocol, address: str, *, takes: bool = True, high: int = 0
    ) -> None:
        self._loop = loop
        self._protocol = protocol
        self._address = address
        self._takes = takes
        self._waiting: deque[bytes] = deque()
        self._paused = False
        self._closing = False
        self._lost = False
        self._unsent = 0
        self._told_to_wait = False
        self._fixed_high = high
        self._high = high or 64 * 1024
        self._out = b""
        self.told: Callable[[BaseCommand], None] = lambda _command: None
        protocol.connection_made(self)

    # The test's side

    @property
    def closed(self) -> bool:
        return self._closing

    def feed(self, data: bytes) -> None:
        """Bytes from the client; they wait while the broker does not read."""
        self._waiting.append(data)
        self._pump()

    def hang_up(self) -> None:
        """The client goes; what the broker did not read yet is lost with it."""
        self._lose()

    def _pump(self) -> None:
        while self._waiting and not self._paused and not self._closing:
            self._protocol.data_received(self._waiting.popleft())

    def _lose(self) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)

    def _read_answers(self, data: bytes) -> None:
        self._out += data
        behind = 0
        for _kind, start, end in split(self._out, MAX_ANSWER):
            behind = end
            command = decode_command(self._out, start)
            if command.type == BaseCommand.ERROR and command.error.message.startswith("Internal error"):
                raise Defect(f"the broker says {command}")
            self.told(command)
        self._out = self._out[behind:]

    # The broker's side

    def write(self, data: bytes | bytearray) -> None:
        if self._closing:
            return
        self._read_answers(bytes(data))
        if self._takes:
            return
        self._unsent += len(data)
        if self._unsent > self._high and not self._told_to_wait:
            self._told_to_wait = True
            self._protocol.pause_writing()

    def writelines(self, pieces: Sequence[Buffer]) -> None:
        self.write(b"".join(pieces))

    def take_answers(self) -> None:
        """The client reads all that waits for it."""
        self._unsent = 0
        if self._told_to_wait:
            self._told_to_wait = False
            if not self._lost:
                self._protocol.resume_writing()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose)

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._pump)

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None and not self._fixed_high:
            self._high = high
        if self._unsent > self._high and not self._told_to_wait:
            self._told_to_wait = True
            self._protocol.pause_writing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 1) if name == "peername" else default


@dataclass
class _Accepting:
    host: str = "127.0.0.1"
    port: int = 6650

    def close(self) -> None:
        """Nobody comes by themselves here."""


class _Network:
    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> _Accepting:
        return _Accepting()


TIGHT = {"max_pending_publishes": 4, "max_publish_buffer": 3000, "max_partial_frames": 1000}
"""Limits that are reached all the time."""


class FuzzedBroker:
    """One life of a broker.

    :param tight: all its limits are small
    :param guarded: it asks who clients are, and whether they may
    """

    def __init__(self, *, tight: bool, guarded: bool = False) -> None:
        self._tight = tight
        cache = EntryCacheSettings(1024) if tight else None
        self.world = World(settings=SMALL, cache=cache)
        self.loop = self.world.simulation.loop
        self.log = LogWatch()
        logging.getLogger("magnetar").addHandler(self.log)
        io = replace(self.world.simulation.io, network=_Network())  # type: ignore[arg-type]
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        dispatch = DispatchSettings(
            max_unacked_per_consumer=20 if tight else 50_000,
            max_unacked_per_subscription=50 if tight else 200_000,
        )
        limits: dict[str, Any] = dict(TIGHT) if tight else {}
        known = BrokerSettings(
            "standalone",
            urls[1],
            urls[0],
            TopicSettings(dispatch, batch_index_acks=True),
            max_message_size=20_000,
            **limits,
        )
        self.wheel = TimerWheel(io.loop)
        stores = self.world.metadata, self.world.managed
        if guarded:
            self.broker = BrokerService(
                io,
                self.wheel,
                *stores,
                known,
                guard(io),
                authorizer=lambda grants: PulsarRules(grants, lambda: frozenset({GOOD})),
            )
        else:
            self.broker = BrokerService(io, self.wheel, *stores, known)
        if tight:
            self.broker.limits.unsent = UnsentBytes(io.clock, 5_000)
        self.world.run(self.broker.start("127.0.0.1", 6650, self._accept))
        self.good = GoodClient(self)
        self.watch_permits()

    def _accept(self) -> Connection:
        return Connection(self.broker, handle)

    def connect(self, address: str = "10.0.0.1", *, takes: bool = True) -> Transport:
        return Transport(self.loop, self._accept(), address, takes=takes, high=2_000 if self._tight else 0)

    def wait(self, seconds: float) -> None:
        self.loop.run_for(seconds)

    @staticmethod
    def watch_permits() -> None:
        """From now on every consumer that is sent something without a permit is a defect."""
        sent = Consumer._sent
        if getattr(sent, "watched", False):
            return

        def watched(self: Consumer[Any], entries: int, messages: int, size: int) -> None:
            if self.permits <= 0 or messages <= 0 or self.closed:
                raise Defect(f"{entries} entries, {messages} messages with {self.permits} permits")
            sent(self, entries, messages, size)

        watched.watched = True  # type: ignore[attr-defined]
        Consumer._sent = watched  # type: ignore[method-assign]

    # What must hold

    def check_log(self) -> None:
        if self.log.bad:
            raise Defect("the broker logged: " + "\n".join(self.log.bad))

    def check_counts(self) -> None:
        """At any time."""
        self.check_log()
        broker = self.broker
        counts = (
            broker.limits.publish_buffer.used,
            broker.limits.partial_frames.used,
            broker.limits.unsent.used,
        )
        if min(counts) < 0:
            raise Defect(f"negative: {counts}")
        for topic in broker.topics.loaded.values():
            for producer in topic.producers.values():
                if producer.pending < 0 or producer.closed:
                    raise Defect(f"producer {producer.name}: {producer.pending} pending, {producer.closed}")
            for subscription in topic.subscriptions.values():
                self._check_subscription(topic.full_name, subscription)
        for connection in broker.connections.all:
            unstored, pending = connection.non_persistent_pending, connection.pending_publishes
            if not 0 <= unstored <= pending:
                raise Defect(f"{unstored} of non-persistent topics, {pending} pending")

    @staticmethod
    def _check_subscription(topic: str, subscription: Any) -> None:
        cursor = getattr(subscription, "cursor", None)
        if cursor is None and subscription.closing:
            raise Defect(f"{topic} {subscription.name}: ended, and still there")
        if (
            cursor is not None
            and cursor.mark_delete[1] >= 0
            and cursor.mark_delete > subscription.topic.max_read_position
        ):
            raise Defect(f"{topic} {subscription.name}: consumed up to {cursor.mark_delete}")
        unacked = 0
        for consumer in subscription.consumers:
            counts = [
                consumer.messages_held(ledger_id, entry_id)
                for ledger_id, entries in consumer.pending.items()
                for entry_id in entries
            ]
            held = sum(counts)
            if consumer.unacked != held or any(count < 0 for count in counts):
                raise Defect(f"{topic}: {consumer.unacked} unacknowledged, {consumer.pending} held")
            unacked += held
            if consumer.closed:
                raise Defect(f"{topic} {subscription.name}: a closed consumer stays")
        told = getattr(subscription.dispatcher, "unacked", 0)
        if told != unacked:
            raise Defect(f"{topic} {subscription.name}: {told} unacknowledged, {unacked} held")

    def check_quiet(self) -> None:
        """When every client but the good one has gone, and what was under way has come to its end."""
        broker = self.broker
        if broker.limits.publish_buffer.used or broker.limits.partial_frames.used:
            raise Defect(
                f"left over: {broker.limits.publish_buffer.used} {broker.limits.partial_frames.used}"
            )
        if broker.lookups.pending or broker.topics.loading_count:
            raise Defect(f"under way: {broker.lookups.pending} lookups, {broker.topics.loading_count} loads")
        if broker.limits.unsent.used or len(broker.limits.unsent.members) != 1:
            raise Defect(
                f"{broker.limits.unsent.used} unsent of {len(broker.limits.unsent.members)} connections"
            )
        if len(broker.connections.all) != 1:
            raise Defect(f"{len(broker.connections.all)} connections")
        for topic in broker.topics.loaded.values():
            if topic.full_name == GoodClient.TOPIC:
                continue
            if topic.producers or topic.access.waiting or topic.access.owner is not None:
                raise Defect(f"{topic.full_name} keeps producers: {topic.producers} {topic.access.owner}")
            for subscription in topic.subscriptions.values():
                if subscription.consumers:
                    raise Defect(f"{topic.full_name} {subscription.name} keeps consumers")
                if not subscription.durable and getattr(subscription, "awaiting_return", None) is None:
                    raise Defect(f"{topic.full_name} keeps the reader {subscription.name}")

    def close(self) -> None:
        """A clean stop; then nothing of it is left."""
        self.world.run(self.broker.stop())
        self.world.wait(1)
        self.check_log()
        logging.getLogger("magnetar").removeHandler(self.log)
        self.world.simulation.abandon()


def framed(command: BaseCommand, entry: bytes = b"") -> bytes:
    body = command.SerializeToString()
    size = (len(body) + 4 + len(entry)).to_bytes(4, "big")
    return size + len(body).to_bytes(4, "big") + body + entry


class GoodClient:
    """Publishes, receives and acknowledges on a topic of its own."""

    TOPIC = "persistent://public/default/good"

    def __init__(self, fuzzed: FuzzedBroker) -> None:
        self._fuzzed = fuzzed
        self._sent = 0
        self._told: list[BaseCommand] = []
        self._transport = fuzzed.connect("10.0.0.9")
        self._transport.told = self._hear
        self._say(BaseCommand(type=BaseCommand.CONNECT, connect={"client_version": "good"}))
        producer = {"topic": self.TOPIC, "producer_id": 1, "request_id": 1}
        self._say(BaseCommand(type=BaseCommand.PRODUCER, producer=producer))
        subscribe = {
            "topic": self.TOPIC,
            "subscription": "s",
            "consumer_id": 1,
            "request_id": 2,
            "subType": 0,
        }
        self._say(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe))
        fuzzed.wait(1)
        self._say(BaseCommand(type=BaseCommand.FLOW, flow={"consumer_id": 1, "messagePermits": 1}))
        self._told.clear()

    def _hear(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.PING:
            self._say(BaseCommand(type=BaseCommand.PONG, pong={}))
        else:
            self._told.append(command)

    def _say(self, command: BaseCommand, entry: bytes = b"") -> None:
        self._transport.feed(framed(command, entry))

    def exchange(self) -> None:
        """One message there and back; :raises Defect: it was disturbed"""
        self._sent += 1
        metadata = MessageMetadata(producer_name="g", sequence_id=self._sent, publish_time=1)
        send = BaseCommand(type=BaseCommand.SEND, send={"producer_id": 1, "sequence_id": self._sent})
        self._say(send, build_entry(metadata, b"payload"))
        for _ in range(100):
            if len(self._told) >= 2:
                break
            self._fuzzed.wait(0.05)
        kinds = {int(command.type): command for command in self._told}
        receipt, message = kinds.get(BaseCommand.SEND_RECEIPT), kinds.get(BaseCommand.MESSAGE)
        if len(self._told) != 2 or receipt is None or message is None:
            raise Defect(f"the good client was told {self._told}")
        if receipt.send_receipt.sequence_id != self._sent:
            raise Defect(f"a receipt for {receipt.send_receipt.sequence_id}, not {self._sent}")
        came, stored = message.message.message_id, receipt.send_receipt.message_id
        if (came.ledgerId, came.entryId) != (stored.ledgerId, stored.entryId):
            raise Defect(f"{came} came, {stored} was sent")
        self._told.clear()
        ack = BaseCommand(type=BaseCommand.ACK, ack={"consumer_id": 1, "ack_type": 0})
        ack.ack.message_id.add().CopyFrom(message.message.message_id)
        self._say(ack)
        self._say(BaseCommand(type=BaseCommand.FLOW, flow={"consumer_id": 1, "messagePermits": 1}))
