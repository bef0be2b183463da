"""The layer between a broker and its clients' sockets, which injects faults and converts publish times.

The layer is the network of an ``Io``, so the broker is unaware of it. Frames usually pass unchanged; they are
parsed only if a fault is active or the broker's clock is ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from magnetar.broker.connections import answers
from magnetar.broker.connections.connection import Connection
from magnetar.errors import BrokerError, ServerErrorCode
from magnetar.io.interfaces import Buffer, Listener, ListeningNetwork, Network, StreamProtocol, Transport
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.errors import EntryError, FrameError
from magnetar.protocol.frames import decode_command, encode_command, encode_with_payload, split
from magnetar.protocol.hot_codec import command_bounds
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.testing.injected import Faults, InjectedRefusal

_PONG = encode_command(BaseCommand(type=BaseCommand.PONG, pong={}))
_SIZE = 4


class FaultyNetwork:
    """A network that puts a :class:`Wire` between each client's connection and the broker."""

    def __init__(self, real: Network, faults: Faults) -> None:
        self._real = real
        self._faults = faults

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> Listener:
        """Listens for clients of the broker; see :class:`magnetar.io.interfaces.ListeningNetwork`."""
        return await listen(self._real, self._faults, host, port, factory)

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """Opens a connection from the broker, into which no faults are injected; see
        :class:`magnetar.io.interfaces.ConnectingNetwork`.
        """
        return await self._real.connect(host, port, factory)


async def listen(
    real: ListeningNetwork, faults: Faults, host: str, port: int, factory: Callable[[], StreamProtocol]
) -> Listener:
    """Listens for clients of a broker; ``factory`` creates the broker's protocol object of each
    connection.
    """

    def wired() -> Wire:
        connection = factory()
        assert isinstance(connection, Connection)
        return Wire(connection, faults)

    return await real.listen(host, port, wired)


class _Sender:
    """The transport that the broker's connection gets: intercepts writes, and passes all other calls to the
    real transport.
    """

    def __init__(self, transport: object, wire: Wire) -> None:
        self._transport = transport
        self._wire = wire

    def write(self, data: Buffer) -> None:
        """Writes data that consists of whole frames; connections never write parts of frames."""
        self._wire.sent(data)

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:
        """Joins the pieces of data, which then consist of whole frames, and writes the result."""
        self._wire.sent(b"".join(list_of_data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Wire:
    """The asyncio protocol of one client's socket."""

    def __init__(self, connection: Connection, faults: Faults) -> None:
        self._connection = connection
        self._faults = faults
        self._transport: Transport | None = None
        self._heard = b""
        self._needed = _SIZE
        self._broken = False
        """Whether the client has sent invalid frames; from then on, all bytes go to the broker unchanged."""
        self._proving = False
        """Whether advancing the clock waits until the client is authenticated again."""

    # Events of the socket

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._faults.cuts:
            transport.abort()
            return
        self._connection.connection_made(_Sender(transport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._credentials_came()
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def data_received(self, data: bytes) -> None:
        heard = self._heard = self._heard + data if self._heard else data
        if len(heard) < self._needed and not self._broken:
            return
        try:
            frames = [] if self._broken else list(split(heard, self._connection.broker.limits.max_frame))
        except FrameError:
            self._broken = True
        if self._broken:
            self._heard = b""
            self._connection.data_received(heard)
            return
        end = frames[-1][2] if frames else 0
        self._heard = rest = heard[end:]
        self._needed = _SIZE + int.from_bytes(rest[:_SIZE], "big") if len(rest) >= _SIZE else _SIZE
        if end:
            self._arrived(heard[:end], frames)

    # From the client

    def _arrived(self, heard: bytes, frames: list[tuple[int, int, int]]) -> None:
        ahead = self._faults.ahead_ms()
        if not ahead and not self._faults.refusals and not self._proving:
            self._connection.data_received(heard)
            return
        passed = [self._judged(kind, heard[begin:end], ahead) for kind, begin, end in frames]
        if found := b"".join(passed):
            self._connection.data_received(found)

    def _judged(self, kind: int, frame: bytes, ahead: int) -> bytes:
        """Returns the bytes that the broker gets instead of a client's frame.

        The result is empty if a fault refuses the frame; otherwise it is the frame, with advanced publish and
        delivery times if the broker's clock is ahead.

        :param kind: the type of the command
        :param ahead: by how many milliseconds the broker's clock is ahead
        """
        if kind == BaseCommand.AUTH_RESPONSE and self._proving:
            self._faults.loop.call_soon(self._credentials_came)
        if kind == BaseCommand.SEND:
            if self._faults.refusals and self._refuses_entry(frame):
                return b""
            return put_ahead(frame, ahead) if ahead else frame
        if kind == BaseCommand.PRODUCER and self._faults.refusals and self._refuses_producer(frame):
            return b""
        return frame

    def _refuses_entry(self, frame: bytes) -> bool:
        send = decode_command(frame, 0).send
        producer = self._connection.session.producers.get(send.producer_id)
        refusal = self._faults.refusal(producer.topic.name, producer.name) if producer is not None else None
        if refusal is None:
            return False
        error = answers.send_error(send.producer_id, send.sequence_id, refusal.code, refusal.reason)
        self.send(encode_command(error))
        return True

    def _refuses_producer(self, frame: bytes) -> bool:
        asked = decode_command(frame, 0).producer
        try:
            name = TopicName.parse(asked.topic)
        except InvalidName:
            # The broker answers invalid names itself.
            return False
        refusal = self._faults.refusal(name, asked.producer_name)
        if refusal is None:
            return False
        self.send(encode_command(answers.failure(asked.request_id, _Refused(refusal))))
        return True

    # To the client

    def sent(self, data: Buffer) -> None:
        """Passes frames of the broker on to the client, except those that faults hold back."""
        faults = self._faults
        if faults.holds or faults.advancing:
            frames = bytes(data)
            data = b"".join(
                frames[begin:end]
                for kind, begin, end in split(frames, len(frames))
                if self._passes(kind, frames, begin, end)
            )
        if data:
            self.send(data)

    def send(self, frames: Buffer) -> None:
        """Sends frames to the client; does nothing if the client has disconnected."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames)

    def _passes(self, kind: int, data: bytes, begin: int, end: int) -> bool:
        faults = self._faults
        if kind == BaseCommand.PING and faults.advancing:
            # The keep-alive runs on the broker's clock, too fast for the client to answer.
            faults.loop.call_soon(self._answer_ping)
            return False
        if kind == BaseCommand.AUTH_CHALLENGE and faults.advancing:
            self._credentials_awaited()
        if kind != BaseCommand.SEND_RECEIPT or not faults.holds:
            return True
        receipt = decode_command(data, begin).send_receipt
        producer = self._connection.session.producers.get(receipt.producer_id)
        hold = faults.hold_of(producer.topic.name, producer.name) if producer is not None else None
        if hold is None:
            return True
        hold.held.append(partial(self.send, data[begin:end]))
        if hold.seconds is not None:
            faults.loop.call_later(hold.seconds, hold.release_next)
        return False

    def _credentials_awaited(self) -> None:
        if self._faults.awaited is not None and not self._proving:
            self._proving = True
            self._faults.awaited.began()

    def _credentials_came(self) -> None:
        if self._faults.awaited is not None and self._proving:
            self._proving = False
            self._faults.awaited.ended()

    def _answer_ping(self) -> None:
        if self._transport is not None:
            self._connection.data_received(_PONG)


class _Refused(BrokerError):
    """The error of a fault that refuses requests."""

    def __init__(self, refusal: InjectedRefusal) -> None:
        super().__init__(refusal.reason)
        self._code = refusal.code

    @property
    def code(self) -> ServerErrorCode:
        return self._code


def put_ahead(frame: bytes, milliseconds: int) -> bytes:
    """Returns a SEND frame with publish and delivery times that are later by ``milliseconds``. Clients use
    the real clock; without this change, a message that is published while the broker's clock is ahead would
    already be old.

    A damaged entry is left unchanged for the broker.
    """
    _start, end = command_bounds(frame, 0)
    try:
        entry = parse_entry(frame[end:])
    except EntryError:
        return frame
    metadata = entry.metadata
    metadata.publish_time += milliseconds
    if metadata.HasField("deliver_at_time"):
        metadata.deliver_at_time += milliseconds
    return encode_with_payload(decode_command(frame, 0), build_entry(metadata, entry.payload))
