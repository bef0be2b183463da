"""A broker in a simulated world, run turn by turn, and clients in the same process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simulated_io import SimulatedDisk
from world import World

from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import handle
from magnetar.broker.connections.session import SessionState
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.io.interfaces import Buffer, Loop
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import LedgerStore
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.protocol.frames import decode_command, encode_command, encode_with_payload, split
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from magnetar.security.authentication import Authenticator
from magnetar.security.authorization import Authorizer
from magnetar.security.rules import Grants

TOPIC = "persistent://public/default/many"
PAYLOAD = bytes(1000)


class Peer:
    """A client in this process: what it sends is there at once, what it is sent is kept."""

    def __init__(self, world: Brokers, *, connect: bool = True) -> None:
        """:param connect: whether it goes through the handshake at once"""
        self.world = world
        self.size = 0
        self._written = b""
        self._commands: list[BaseCommand] = []
        self.reading = True
        self.may_be_closed = False
        self.closed = False
        self.connection = Connection(world.broker, handle)
        self.connection.connection_made(self)
        if connect:
            self.send(BaseCommand.CONNECT, "connect", client_version="test", protocol_version=21)
            world.until(lambda: self.connection.session.state is SessionState.OPEN and self.reading)

    # The transport of its connection

    def write(self, data: bytes | bytearray) -> None:
        self.size += len(data)
        self._written += data
        self.world.written += len(data)

    def writelines(self, pieces: Sequence[Buffer]) -> None:
        self.write(b"".join(pieces))

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high > low

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        assert self.may_be_closed, "the broker closed a connection"
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    # The client

    def send(self, kind: BaseCommand.Type.ValueType, name: str, **fields: Any) -> None:
        self.connection.data_received(frame(kind, name, **fields))

    def told(self) -> list[BaseCommand]:
        """All it was sent since it was to forget, in order."""
        data, self._written = self._written, b""
        self._commands += [decode_command(data, start) for _, start, _ in split(data, 1 << 23)]
        return self._commands

    def received(self, kind: int) -> list[BaseCommand]:
        return [command for command in self.told() if command.type == kind]

    def forget(self) -> None:
        self.size = 0
        self._written = b""
        self._commands.clear()

    def count(self, kind: int) -> int:
        return len(self.received(kind))


def frame(kind: BaseCommand.Type.ValueType, name: str, **fields: Any) -> bytes:
    command = BaseCommand(type=kind)
    getattr(command, name).SetInParent()
    for field, value in fields.items():
        setattr(getattr(command, name), field, value)
    return encode_command(command)


def subscribe_frame(number: int, subscription: str, kind: int, topic: str = TOPIC) -> bytes:
    return frame(
        BaseCommand.SUBSCRIBE,
        "subscribe",
        topic=topic,
        subscription=subscription,
        subType=kind,
        consumer_id=number,
        request_id=number,
        consumer_name=f"c{number}",
        initialPosition=1,
    )


def send_frame(sequence_id: int, payload: bytes = PAYLOAD) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = sequence_id
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    return encode_with_payload(command, build_entry(metadata, payload))


class Brokers:
    def __init__(
        self,
        authenticator: Authenticator | None = None,
        keep_alive: float = 1e6,
        authorizer: Authorizer | None = None,
        make_authorizer: Callable[[Grants], Authorizer] | None = None,
        dispatch: DispatchSettings | None = None,
        disk: SimulatedDisk | None = None,
        ledgers: ManagedLedgerSettings | None = None,
        wrap: Callable[[LedgerStore, Loop], LedgerStore] | None = None,
        topic: TopicSettings | None = None,
        **settings: Any,
    ) -> None:
        """:param disk: what a life before left
        :param wrap: puts something between the managed ledgers and the ledger store
        :param settings: of the broker
        """
        self.written = 0
        self.turns: list[int] = []
        """Bytes written in each turn of the loop that is watched."""
        self.world = World(disk, settings=ledgers or ManagedLedgerSettings(), wrap=wrap)
        self.loop = self.world.simulation.loop
        io = self.world.simulation.io
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        topic = topic or TopicSettings(dispatch or DispatchSettings())
        known = BrokerSettings(
            "standalone", urls[1], urls[0], topic, keep_alive_seconds=keep_alive, **settings
        )
        stores = self.world.metadata, self.world.managed
        if authorizer is not None:
            make_authorizer = lambda _grants: authorizer  # noqa: E731
        self.broker = BrokerService(
            io, TimerWheel(io.loop), *stores, known, authenticator, None, make_authorizer
        )

    def one_turn(self) -> None:
        """Runs what is ready, and what that makes ready stays for the next turn."""
        before = self.written
        passed = self.loop.create_future()
        self.loop.call_soon(passed.set_result, None)
        self.loop.run_until(passed)
        self.turns.append(self.written - before)

    def until(self, done: Any, most: int = 5000) -> int:
        """Runs turn by turn; how many it took."""
        for turn in range(most):
            if done():
                return turn
            self.one_turn()
            if not self.loop.timeline.ready and not done():
                self.loop.timeline.advance()
        raise AssertionError("it never came to an end")

    def publisher(self, topic: str = TOPIC) -> Peer:
        peer = Peer(self)
        peer.send(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=1, request_id=1)
        self.until(lambda: peer.count(BaseCommand.PRODUCER_SUCCESS))
        return peer

    def subscribed(self, subscription: str, kind: int = 0, topic: str = TOPIC, number: int = 1) -> Peer:
        peer = Peer(self)
        peer.connection.data_received(subscribe_frame(number, subscription, kind, topic))
        self.until(lambda: peer.count(BaseCommand.SUCCESS))
        return peer

    def publish(self, peer: Peer, count: int, payload: bytes = PAYLOAD) -> None:
        peer.forget()
        peer.connection.data_received(b"".join(send_frame(n, payload) for n in range(count)))
        self.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == count)
