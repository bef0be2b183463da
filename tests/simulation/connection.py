"""A scripted client's connection: frames in and out, nothing clever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from google.protobuf.message import Message
from simulated_io import SimulatedHost, SimulatedLoop

from magnetar.protocol.frames import encode_command, encode_with_payload, split
from magnetar.protocol.pulsar_api_pb2 import AuthData, BaseCommand, FeatureFlags
from simulation.guard import METHOD
from simulation.trace import Trace, Violation

_MAX_FRAME = 6 << 20
_FIELDS = {int(number): field.name for number, field in BaseCommand.DESCRIPTOR.fields_by_number.items()}
_FROM_BROKER = 2**64 - 1
_TO_CONSUMERS = (
    BaseCommand.MESSAGE,
    BaseCommand.CLOSE_CONSUMER,
    BaseCommand.REACHED_END_OF_TOPIC,
    BaseCommand.ACTIVE_CONSUMER_CHANGE,
)


class Gone(Exception):
    """The connection has ended, or what was asked was not answered in time."""


class Refused(Exception):
    """The broker answered with an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Attached(Protocol):
    """A producer or consumer of a connection."""

    def received(self, kind: int, message: Any, entry: bytes) -> None: ...
    def disconnected(self) -> None: ...


def command(kind: int, **fields: Any) -> BaseCommand:
    """A command of a kind with the fields of its message."""
    built = BaseCommand(type=kind)  # type: ignore[arg-type]
    message = getattr(built, _FIELDS[kind])
    message.SetInParent()
    for name, value in fields.items():
        if isinstance(value, Message):
            getattr(message, name).CopyFrom(value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return built


class Connection:
    """:param steps: counts what has happened in the whole world so far"""

    def __init__(
        self, name: str, loop: SimulatedLoop, trace: Trace, steps: Callable[[], int], timeout: float
    ) -> None:
        self.name = name
        self.producers: dict[int, Attached] = {}
        self.consumers: dict[int, Attached] = {}
        self.closed = False
        self.barrier = -1
        """The broker had seen everything that happened up to this step when it sent what arrives now."""
        self.answers_pings = True
        self._loop = loop
        self._trace = trace
        self._steps = steps
        self._timeout = timeout
        self._transport: Any = None
        self._buffer = b""
        self._requests: dict[int, tuple[Any, int]] = {}
        self._pongs: list[tuple[Any, int]] = []
        self._connected: Any = loop.create_future()
        self._next_request = 0
        self._next_id = 0

    @classmethod
    async def open(
        cls,
        name: str,
        host: SimulatedHost,
        trace: Trace,
        steps: Callable[[], int],
        address: tuple[str, int],
        patience: float,
    ) -> Connection:
        """:raises Gone: it cannot be made"""
        connection = cls(name, host.loop, trace, steps, patience)
        try:
            await host.connect(*address, lambda: connection)
        except OSError as error:
            raise Gone(str(error)) from error
        connection.send(
            command(
                BaseCommand.CONNECT,
                client_version="scripted",
                protocol_version=21,
                auth_method_name=METHOD,
                auth_data=name.encode(),
                feature_flags=FeatureFlags(supports_auth_refresh=True),
            )
        )
        await connection._within(connection._connected)
        return connection

    # The transport's side

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data
        end = 0
        for kind, begin, after in split(buffer, _MAX_FRAME):
            length = int.from_bytes(buffer[begin + 4 : begin + 8], "big")
            body = BaseCommand.FromString(buffer[begin + 8 : begin + 8 + length])
            end = after
            if not self.closed:
                self._received(kind, getattr(body, _FIELDS[kind]), buffer[begin + 8 + length : after])
        self._buffer = buffer[end:]

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """What a scripted client sends is little."""

    def resume_writing(self) -> None:
        """See :meth:`pause_writing`."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._trace.note(self.name, "disconnected")
        waiting = [future for future, _step in (*self._requests.values(), *self._pongs)]
        for future in (*waiting, self._connected):
            if not future.done():
                future.set_exception(Gone("disconnected"))
                # Not everybody who asked still waits.
                future.exception()
        self._requests.clear()
        self._pongs.clear()
        for attached in (*self.producers.values(), *self.consumers.values()):
            attached.disconnected()

    # What arrives

    def _received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind in (BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER):
            self._to(self.producers, message.producer_id, kind, message, entry)
        elif kind in _TO_CONSUMERS:
            self._to(self.consumers, message.consumer_id, kind, message, entry)
        elif kind == BaseCommand.PING:
            if self.answers_pings:
                self.send(command(BaseCommand.PONG))
        elif kind == BaseCommand.PONG:
            if self._pongs:
                self._settle(*self._pongs.pop(0), message)
        elif kind == BaseCommand.AUTH_CHALLENGE:
            if self.answers_pings:
                proof = AuthData(auth_method_name=METHOD, auth_data=self.name.encode())
                self.send(command(BaseCommand.AUTH_RESPONSE, response=proof))
        elif kind == BaseCommand.CONNECTED:
            self._connected.set_result(message)
        elif kind == BaseCommand.ERROR and message.request_id == _FROM_BROKER:
            self._trace.note(self.name, "refused:", message.message)
        else:
            self._answered(kind, message)

    def _to(self, attached: dict[int, Attached], number: int, kind: int, message: Any, entry: bytes) -> None:
        found = attached.get(number)
        if found is not None:
            found.received(kind, message, entry)

    def _answered(self, kind: int, message: Any) -> None:
        if kind == BaseCommand.PRODUCER_SUCCESS and not message.producer_ready:
            return
        request = self._requests.pop(message.request_id, None)
        if request is None:
            raise Violation(f"{self.name}: an answer of kind {kind} that nobody asked for: {message}")
        future, step = request
        if kind == BaseCommand.ERROR:
            self.barrier = max(self.barrier, step)
            if not future.done():
                future.set_exception(Refused(message.error, message.message))
                future.exception()
            return
        self._settle(future, step, message)

    def _settle(self, future: Any, step: int, message: Any) -> None:
        self.barrier = max(self.barrier, step)
        if not future.done():
            future.set_result(message)

    # What is sent

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def send(self, built: BaseCommand, entry: bytes | None = None) -> None:
        if not self.closed:
            frame = encode_command(built) if entry is None else encode_with_payload(built, entry)
            self._transport.write(frame)

    def send_bytes(self, data: bytes) -> None:
        if not self.closed:
            self._transport.write(data)

    def begin(self, kind: int, **fields: Any) -> Any:
        """Sends a request; a future of its answer."""
        future = self._loop.create_future()
        if self.closed:
            future.set_exception(Gone("disconnected"))
            future.exception()
            return future
        self._next_request += 1
        self._requests[self._next_request] = (future, self._steps())
        self.send(command(kind, request_id=self._next_request, **fields))
        return future

    async def ask(self, kind: int, *, patience: float | None = None, **fields: Any) -> Any:
        """:param patience: seconds to wait, if not the usual ones

        :raises Gone: no answer came; the connection is closed then

        :raises Refused: the answer is an error
        """
        return await self._within(self.begin(kind, **fields), patience)

    async def ping(self) -> None:
        """Returns when the broker has seen all that was sent."""
        future = self._loop.create_future()
        if self.closed:
            raise Gone("disconnected")
        self._pongs.append((future, self._steps()))
        self.send(command(BaseCommand.PING))
        await self._within(future)

    async def _within(self, future: Any, patience: float | None = None) -> Any:
        timer = self._loop.call_later(patience or self._timeout, self.abort)
        try:
            return await future
        finally:
            timer.cancel()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        if not self.closed:
            self._transport.close()
            self._end()

    def abort(self) -> None:
        if not self.closed:
            if self._transport is not None:
                self._transport.abort()
            self._end()
