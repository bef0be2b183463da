"""One socket to a ZooKeeper server: length-prefixed packets, answers in the order of the requests."""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Clock, Future, Loop, Transport
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.zookeeper.messages import (
    AUTH_XID,
    EVENT_XID,
    OK,
    PING_XID,
    SET_WATCHES_XID,
    JuteError,
    JuteReader,
    Operation,
    greeting,
    header,
    take_event,
    take_reply,
)

if TYPE_CHECKING:
    from magnetar.metadata.zookeeper.session import ZooKeeperSession


log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
_MAX_ANSWER_BYTES = 64 << 20
"""The maximum size of an answer, enough for the names of a million children; a larger one is treated as an
error."""

Take = Callable[[JuteReader], object]
"""Reads the result of a request from the part of an answer after the header."""


@dataclass(slots=True)
class Request:
    """An operation that waits for its answer."""

    operation: Operation
    path: str
    packet: bytes
    take: Take
    future: Future[object]
    """A future that gets the result of ``take``, or an error."""
    repeatable: bool
    """Whether the operation changes nothing, so that it may be sent again on another connection."""
    asked_at: float
    xid: int = 0
    sent_at: float = 0.0


class ZooKeeperConnection:
    """The ``StreamProtocol`` of a connection. Requests of one turn of the loop are sent with one write."""

    def __init__(self, owner: ZooKeeperSession, loop: Loop, clock: Clock) -> None:
        self._owner = owner
        self._loop = loop
        self._clock = clock
        self._transport: Transport | None = None
        self._received = bytearray()
        self._waiting: deque[Request] = deque()
        self._out: list[bytes] = []
        self._greeted = False
        self._ended = False
        self._xid = 0
        self._ping_sent_at: float | None = None
        self.last_heard = clock.monotonic()

    def send(self, request: Request) -> None:
        self._xid = self._xid % 0x7FFFFFFF + 1
        request.xid = self._xid
        request.sent_at = self._clock.monotonic()
        self._waiting.append(request)
        self._write(header(request.xid, request.operation) + request.packet)

    def send_apart(self, xid: int, operation: Operation, packet: bytes) -> None:
        """Sends a request whose answer is ignored."""
        self._write(header(xid, operation) + packet)

    def ping(self) -> None:
        """Sends a ping, unless an earlier one is not answered yet."""
        if self._ping_sent_at is None:
            self._ping_sent_at = self._clock.monotonic()
            self.send_apart(PING_XID, Operation.PING, b"")

    def open(self, packet: bytes) -> None:
        """Sends ``packet``, the first request of the connection, which has no header."""
        self._write(packet)

    def end(self, reason: str) -> None:
        """Closes the socket and notifies the owner, unless the connection is closed already."""
        if self._ended:
            return
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
        unanswered = list(self._waiting)
        self._waiting.clear()
        self._owner.on_lost(unanswered, reason)

    def _write(self, packet: bytes) -> None:
        if self._ended:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += (_LENGTH.pack(len(packet)), packet)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self._ended and self._transport is not None:
            self._transport.write(b"".join(out))

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self.last_heard = self._clock.monotonic()
        self._received += data
        at, received = 0, self._received
        try:
            while len(received) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(received, at)
                if not 0 <= length <= _MAX_ANSWER_BYTES:
                    raise JuteError(f"a packet has the invalid length {length}")
                end = at + _LENGTH.size + length
                if end > len(received):
                    break
                packet = bytes(received[at + _LENGTH.size : end])
                at = end
                self._take(packet)
                if self._ended:
                    return
        except JuteError as error:
            log.error(
                "closing the connection: cannot decode a packet from ZooKeeper", extra={"reason": str(error)}
            )
            self.end(f"its answer cannot be read: {error}")
            return
        del received[:at]

    def _take(self, packet: bytes) -> None:
        if not self._greeted:
            self._greeted = True
            self._owner.on_greeting(greeting(packet))
            return
        reader = JuteReader(packet)
        reply = take_reply(reader)
        if reply.xid == EVENT_XID:
            event = take_event(reader)
            if event is not None:
                self._owner.on_event(*event)
            return
        if reply.zxid > 0:
            self._owner.on_zxid(reply.zxid)
        if reply.xid == PING_XID:
            if self._ping_sent_at is not None:
                self._owner.on_alive(self._ping_sent_at)
                self._ping_sent_at = None
            return
        if reply.xid in (AUTH_XID, SET_WATCHES_XID):
            if reply.error != OK:
                self._owner.on_refused(reply.error)
            return
        self._answer(reply.xid, reply.error, reader)

    def _answer(self, xid: int, error: int, reader: JuteReader) -> None:
        if not self._waiting or self._waiting[0].xid != xid:
            raise JuteError(f"the answer to request {xid} is out of order")
        request = self._waiting[0]
        result = request.take(reader) if error == OK else None
        self._waiting.popleft()
        self._owner.on_alive(request.sent_at)
        self._owner.on_answer(request, error, result)

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(str(exc) if exc is not None else "the server closed the connection")

    def pause_writing(self) -> None:
        """Does nothing, because callers limit the number of requests in progress."""

    def resume_writing(self) -> None:
        """Does nothing; see :meth:`pause_writing`."""
