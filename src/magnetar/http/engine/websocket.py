"""A WebSocket (RFC 6455) on a connection that began as HTTP: receives and sends messages."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from magnetar.http.engine.hot_frames import FrameReader, text_fragment, text_frame
from magnetar.http.engine.message import Request, Response, asks_for_websocket, error_response
from magnetar.io.interfaces import Cancellable, Loop, Transport
from magnetar.lazy_dataclass import dataclass

log = logging.getLogger("magnetar.http")

_KEY_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION = "13"
_CLOSING_SECONDS = 5.0
"""Maximum time to wait for a client's answer to a close frame, in seconds."""
_MOST_SKIPPED = 1 << 20
"""If a message is too large, its rest is read and discarded up to this number of bytes."""
_PING = b"PING"

NORMAL = 1000
GOING_AWAY = 1001
UNSUPPORTED = 1003
INVALID = 1007
POLICY_VIOLATION = 1008
TOO_LARGE = 1009
INTERNAL_ERROR = 1011


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """Limits of size and idle time of one WebSocket."""

    message_bytes: int = 1 << 20
    """Maximum size of a message from the client, in bytes."""
    idle_seconds: float = 300.0
    """Maximum time without traffic in either direction, in seconds; 0: no limit."""
    ping_seconds: float = 0.0
    """Interval of pings, in seconds; 0: no pings."""


class Conversation(Protocol):
    """The application protocol of a WebSocket."""

    def opened(self, socket: WebSocket) -> None:
        """Called once the WebSocket is open."""
        ...

    def received(self, text: str) -> None: ...

    def go_on(self) -> None:
        """Called when the client reads again after it had stopped reading."""
        ...

    def ended(self) -> None:
        """Called once, when the WebSocket has ended or could not be opened."""
        ...


def upgrade(request: Request, socket: WebSocket) -> Response:
    """Returns the response that turns the connection into a WebSocket; call :func:`refusal_of` first."""
    key = request.headers["sec-websocket-key"].encode()
    accepted = base64.b64encode(hashlib.sha1(key + _KEY_SUFFIX, usedforsecurity=False).digest()).decode()
    headers = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accepted)]
    return Response(HTTPStatus.SWITCHING_PROTOCOLS, headers=headers, upgrade=socket)


def refusal_of(request: Request) -> Response | None:
    """Returns the refusal of a request that is not a valid WebSocket handshake; None: the handshake is
    valid.
    """
    if not asks_for_websocket(request):
        asked: Sequence[tuple[str, str]] = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
        return error_response(HTTPStatus.UPGRADE_REQUIRED, "This path accepts only WebSocket requests", asked)
    if request.headers.get("sec-websocket-version", "").strip() != _VERSION:
        told = [("Sec-WebSocket-Version", _VERSION)]
        return error_response(HTTPStatus.UPGRADE_REQUIRED, "Sec-WebSocket-Version must be 13", told)
    try:
        key = base64.b64decode(request.headers.get("sec-websocket-key", ""), validate=True)
    except ValueError:
        key = b""
    if len(key) != 16:
        return error_response(HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Key must be 16 bytes in Base64")
    return None


class WebSocket:
    """The protocol of a connection that has changed from HTTP to WebSocket; called like
    ``magnetar.io.interfaces.StreamProtocol``.

    While the client does not read the server's messages, the server does not read the client's messages
    either.
    """

    def __init__(self, conversation: Conversation, loop: Loop, limits: WebSocketLimits) -> None:
        self._conversation = conversation
        self._loop = loop
        self._limits = limits
        self._reader = FrameReader(limits.message_bytes)
        self._frames = Connection(ConnectionType.SERVER)
        """wsproto's parser of frames; messages that consist of a single frame bypass the parser, because they
        do not change the parser's state.
        """
        self._transport: Transport | None = None
        self._text: list[str] = []
        self._text_size = 0
        self._behind_parts: list[str] | None = None
        """Messages that wait until the last part of another message is sent; None: no message is being sent
        in parts.
        """
        self._closing = False
        self._over = False
        self._closed_before: tuple[int, str] | None = None
        """Code and reason of a call of :meth:`close` before the handshake was complete; None: no such
        call.
        """
        self._heard = loop.time()
        self._idle: Cancellable | None = None
        self._ping: Cancellable | None = None
        self._stalled = False
        self.remote = ""
        """``host:port`` of the client."""

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent to the client."""
        return self._transport is not None and not self._closing

    # messages

    def send(self, text: str) -> None:
        """Sends a message; does nothing if the client has disconnected."""
        if self._transport is not None and not self._closing:
            if self._behind_parts is not None:
                self._behind_parts.append(text)
                return
            self._heard = self._loop.time()
            self._transport.write(text_frame(text))

    def send_part(self, text: str, *, last: bool) -> None:
        """Sends a fragment of a message; does nothing if the client has disconnected. Messages of
        :meth:`send` are sent after the last fragment; pings and close frames are sent at once.
        """
        if self._transport is not None and not self._closing:
            self._heard = self._loop.time()
            self._transport.write(text_fragment(text, self._behind_parts is None, last))
            if not last:
                self._behind_parts = self._behind_parts or []
                return
            waiting, self._behind_parts = self._behind_parts, None
            for each in waiting or ():
                self.send(each)

    @property
    def takes(self) -> bool:
        """Whether the client reads fast enough; if not, :meth:`Conversation.go_on` is called as soon as the
        client has caught up.
        """
        return not self._stalled and self._transport is not None and not self._closing

    def close(self, code: int, reason: str = "") -> None:
        """Sends a close frame, and waits some seconds for the client's close frame. If the handshake is not
        complete, sends the close frame after the handshake.
        """
        if self._transport is None and not self._over:
            self._closed_before = self._closed_before or (code, reason)
        if not self.is_open:
            return
        self._closing = True
        self._expect_nothing()
        try:
            # Longer reasons do not fit into a control frame.
            self._write(
                self._frames.send(
                    CloseConnection(code=code, reason=reason.encode()[:120].decode(errors="ignore"))
                )
            )
        except LocalProtocolError:
            self._abort()
            return
        self._idle = self._loop.call_later(_CLOSING_SECONDS, self._abort)
        # Also while the close frame waits for unsent messages.
        self._listen()

    # called by the connection

    def begin(self, transport: Transport, rest: bytes) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.remote = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
        self._heard = self._loop.time()
        if self._limits.idle_seconds > 0:
            self._idle = self._loop.call_later(self._limits.idle_seconds, self._look_whether_idle)
        if self._limits.ping_seconds > 0:
            self._ping = self._loop.call_later(self._limits.ping_seconds, self._send_ping)
        if self._closed_before is not None:
            self.close(*self._closed_before)
            return
        self._conversation.opened(self)
        if rest:
            self.data_received(rest)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        for found in self._reader.read(data):
            if isinstance(found, bytes):
                self._take_others(found)
                if self._frames.state is ConnectionState.CLOSED:
                    break
            elif found is None:
                self._refuse_large()
            elif not self._closing:
                self._conversation.received(found)

    def _take_others(self, frames: bytes) -> None:
        try:
            self._frames.receive_data(frames)
            for event in self._frames.events():
                self._take(event)
        except RemoteProtocolError as error:
            log.info("closing a WebSocket", extra={"peer": self.remote, "reason": str(error)})
            hint = error.event_hint
            code = hint.code if isinstance(hint, CloseConnection) else INVALID
            self.close(int(code), str(error))
        except LocalProtocolError:
            # The client sent data after its close frame.
            self._abort()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._expect_nothing()
        if not self._over:
            self._over = True
            self._conversation.ended()

    def pause_writing(self) -> None:
        if not self._stalled and self.is_open:
            self._stalled = True
            if self._transport is not None:
                self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._listen()
        if self.is_open:
            self._conversation.go_on()

    def _listen(self) -> None:
        if self._stalled:
            self._stalled = False
            if self._transport is not None:
                self._transport.resume_reading()

    def close_when_idle(self) -> None:
        """Closes the WebSocket, because the process is stopping."""
        self.close(GOING_AWAY, "The server stops")

    def _take(self, event: object) -> None:
        if isinstance(event, TextMessage):
            self._gather(event)
        elif isinstance(event, BytesMessage):
            self.close(UNSUPPORTED, "Messages must be JSON in text frames")
        elif isinstance(event, Ping):
            self._write(self._frames.send(event.response()))
        elif isinstance(event, CloseConnection):
            if not self._closing:
                self._write(self._frames.send(event.response()))
            self._closing = True
            if self._transport is not None:
                self._transport.close()
        else:
            assert isinstance(event, Pong)

    def _gather(self, event: TextMessage) -> None:
        if self._closing:
            return
        self._text_size += len(event.data)
        if self._text_size > self._limits.message_bytes:
            self._refuse_large()
            return
        self._text.append(event.data)
        if event.message_finished:
            text = self._text[0] if len(self._text) == 1 else "".join(self._text)
            self._text.clear()
            self._text_size = 0
            self._conversation.received(text)

    def _refuse_large(self) -> None:
        """Closes the WebSocket because a message is too large. Skips the rest of the message or, if too much
        is left, stops reading.
        """
        self._text.clear()
        self.close(TOO_LARGE, f"A message exceeds {self._limits.message_bytes} bytes")
        if self._transport is not None and self._reader.left_out > _MOST_SKIPPED:
            self._transport.pause_reading()

    # time

    def _look_whether_idle(self) -> None:
        left = self._heard + self._limits.idle_seconds - self._loop.time()
        if left <= 0:
            self._idle = None
            self.close(GOING_AWAY, "Idle Timeout")
        else:
            self._idle = self._loop.call_later(left, self._look_whether_idle)

    def _send_ping(self) -> None:
        if self.is_open:
            self._write(self._frames.send(Ping(payload=_PING)))
            self._ping = self._loop.call_later(self._limits.ping_seconds, self._send_ping)

    def _expect_nothing(self) -> None:
        for timer in (self._idle, self._ping):
            if timer is not None:
                timer.cancel()
        self._idle = self._ping = None

    # the transport

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
