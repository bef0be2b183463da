"""An HTTP/1.1 connection: parses requests one after another, and sends the responses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import h11

from magnetar.http.engine.message import Abandoned, ArrivingBody, Request, Response, Streamed, error_response
from magnetar.io.interfaces import Cancellable, Future, Transport
from magnetar.io.slices import Slice, next_turn
from magnetar.io.tasks import TaskScope
from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from magnetar.http.engine.listening import Listening
    from magnetar.http.engine.websocket import WebSocket


log = logging.getLogger("magnetar.http")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_BODILESS = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of the resources that clients use."""

    body_bytes: int = 8 << 20
    bodies_bytes: int = 64 << 20
    """Maximum memory for the bodies of all requests of the server together, in bytes."""
    head_bytes: int = 8192
    connections: int = 2048
    connections_of_address: int = 0
    """Maximum number of connections of one client address; 0: no limit for an address, only for all
    connections together.
    """
    request_seconds: float = 30.0
    """Maximum time from the first to the last byte of a request, in seconds."""
    idle_seconds: float = 60.0
    """Maximum time between two requests of a connection, in seconds."""
    stalled_seconds: float = 30.0
    """Maximum time during which a client may read nothing of a response, in seconds."""


class HttpConnection:
    """The protocol of one connection, as the event loop calls it (``magnetar.io.interfaces.StreamProtocol``).

    Requests are answered one by one; the socket is not read while a response is being sent.
    """

    def __init__(self, owner: Listening) -> None:
        self._owner = owner
        self._loop = owner.io.loop
        self._tasks = TaskScope(owner.io.loop, "an HTTP connection", lambda _work, _error: self._abort())
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=owner.limits.head_bytes)
        self._transport: Transport | None = None
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._begun = False
        """Whether a part of the next request has arrived."""
        self._answering = False
        self._closing = False
        self._deadline: Cancellable | None = None
        self._drained: Future[None] | None = None
        self._upgraded: WebSocket | None = None
        """The WebSocket that has taken over the connection; None: the connection is still HTTP."""
        self._streamed: Streamed | None = None
        """The streamed response in progress; None: no such response."""
        self._arriving: ArrivingBody | None = None
        """The body of the request in progress, if its handler reads it while it arrives; otherwise None."""

    @property
    def host(self) -> str:
        """The client's address; empty if the client disconnected before its address was known."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(peer[0]) if isinstance(peer, tuple) else ""

    # called by the event loop

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        if not self._owner.admit(self):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many HTTP connections")
            return
        self._expect(self._owner.limits.idle_seconds)

    def data_received(self, data: bytes) -> None:
        if self._upgraded is not None:
            self._upgraded.data_received(data)
            return
        if self._closing and self._arriving is None:
            return
        if not self._begun and not self._answering:
            # The limit is for the whole request, however slowly it arrives.
            self._begun = True
            self._expect(self._owner.limits.request_seconds)
        self._read(lambda: self._http.receive_data(data))

    def eof_received(self) -> bool | None:
        """Keeps a half-closed connection open, so that the client gets the response to its last request."""
        if self._upgraded is not None:
            return self._upgraded.eof_received()
        if not self._answering:
            return False
        self._closing = True
        self._cut_short()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        self._drop_body()
        self._cut_short()
        self._expect(None)
        self.resume_writing()
        self._owner.forget(self)
        if self._streamed is not None:
            self._streamed.close()
        if self._upgraded is not None:
            self._upgraded.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._upgraded is not None:
            self._upgraded.pause_writing()
        elif self._drained is None:
            self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._upgraded is not None:
            self._upgraded.resume_writing()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # called by the server

    def close_when_idle(self) -> None:
        """Closes the connection after the request in progress, or at once if no request is in progress."""
        if self._upgraded is not None:
            self._upgraded.close_when_idle()
            return
        self._closing = True
        if self._streamed is not None:
            self._streamed.close()
        if not self._answering:
            self._close()

    # reading

    def _read(self, feed: Callable[[], None]) -> None:
        try:
            feed()
            self._take_events()
        except h11.RemoteProtocolError as error:
            if self._arriving is not None:
                # The handler is running already.
                self._arriving.fail(f"Invalid request: {error}")
                self._closing = True
                return
            self._refuse(error.error_status_hint, f"Invalid request: {error}")

    def _take_events(self) -> None:
        while not self._answering or self._arriving is not None:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
                return
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return
            if isinstance(event, h11.Request):
                if not self._accept_head(event):
                    return
            elif self._arriving is not None:
                self._take_arriving(self._arriving, event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._owner.limits.body_bytes:
                    self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large")
                    return
                self._owner.bodies.grew(self.refuse_body, len(event.data))
                if self._closing:
                    return
            elif isinstance(event, h11.EndOfMessage):
                self._start_answering()

    def _take_arriving(self, arriving: ArrivingBody, event: object) -> None:
        if isinstance(event, h11.Data):
            arriving.feed(event.data)
        elif isinstance(event, h11.EndOfMessage):
            arriving.end()
            self.hold(True)

    def _accept_head(self, head: h11.Request) -> bool:
        self._head = head
        size = len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if size > self._owner.limits.head_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large")
            return False
        if _has_two_lengths(head):
            # A proxy in front of this server may have used the other length: its idea of the body may then
            # contain another request (RFC 9112, section 6.3).
            self._refuse(
                HTTPStatus.BAD_REQUEST,
                "Content-Length and Transfer-Encoding contradict each other: send one of them",
            )
            return False
        method, path = head.method.decode("ascii"), _target_of(head)[0]
        if self._owner.reads_as_it_comes(method, path):
            self._start_arriving(head)
            return True
        for name, value in head.headers:
            if name == b"content-length" and int(value) > self._owner.limits.body_bytes:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large")
                return False
        return True

    # answering

    def _start_answering(self) -> None:
        head = self._head
        if head is None or self._transport is None:
            return
        self._answering = True
        self._expect(None)
        self._transport.pause_reading()
        self._owner.bodies.complete(self.refuse_body)
        body, self._body = self._body, bytearray()
        request = _request_of(head, body, self._transport)
        self._tasks.start(self._answer(request), "answering a request")

    def _start_arriving(self, head: h11.Request) -> None:
        """Calls the handler of a request whose body has not arrived yet; the handler reads the body while it
        arrives.
        """
        if self._transport is None:
            return
        self._answering = True
        self._expect(None)
        self._arriving = ArrivingBody(self._loop, self, self._owner.limits.stalled_seconds)
        request = replace(_request_of(head, bytearray(), self._transport), arriving=self._arriving)
        self._tasks.start(self._answer(request), "answering a request")

    def hold(self, held: bool) -> None:
        """Pauses (True) or resumes (False) reading from the socket."""
        if self._transport is None:
            return
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _cut_short(self) -> None:
        """Called when the client sends no more data: fails a body that the handler is still reading."""
        if self._arriving is not None:
            self._arriving.fail("The body ended before its end")

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._owner.answer(request)
        except Exception:
            # Without an answer, nothing is read and nothing expires: the client would wait for ever.
            log.exception("answering a request failed with an internal error", extra={"path": request.path})
            self._abort()
            return
        finally:
            self._owner.bodies.gone(self.refuse_body)
        if response.upgrade is not None:
            self._upgrade(response, response.upgrade)
            return
        self._streamed = response.streamed
        try:
            if self._transport is None:
                return
            await self._send(request.method, response)
        except Abandoned as error:
            log.warning("response abandoned", extra={"path": request.path, "reason": str(error)})
            self._abort()
            return
        except h11.LocalProtocolError:
            log.exception("cannot write the response", extra={"path": request.path})
            self._abort()
            return
        except Exception:
            # The head was sent: only closing the connection can show that the answer is incomplete.
            log.exception("sending the response failed with an internal error", extra={"path": request.path})
            self._abort()
            return
        finally:
            if self._streamed is not None:
                self._streamed.close()
                self._streamed = None
        if self._arriving is not None:
            await self._arriving.leave_aside()
        if self._transport is not None:
            self._next_request()

    def _upgrade(self, response: Response, upgraded: WebSocket) -> None:
        """Sends the response with status 101, and lets the WebSocket take over the connection."""
        transport = self._transport
        if transport is None or self._closing:
            upgraded.connection_lost(None)
            self._close()
            return
        told = h11.InformationalResponse(status_code=response.status, headers=list(response.headers))
        self._write(self._http.send(told))
        self._upgraded = upgraded
        transport.resume_reading()
        upgraded.begin(transport, self._http.trailing_data[0])

    async def _send(self, method: str, response: Response) -> None:
        self._write(self._http.send(self._head_of(response)))
        if response.pieces is not None and method != "HEAD":
            await self._send_pieces(response.pieces)
        elif response.streamed is not None and method != "HEAD":
            await self._send_streamed(response.streamed)
        elif response.body and method != "HEAD":
            self._write(self._http.send(h11.Data(data=response.body)))
        self._write(self._http.send(h11.EndOfMessage()))
        await self._drain()

    async def _send_pieces(self, pieces: Iterator[str] | Iterator[bytes]) -> None:
        """Sends the pieces of a response; after each millisecond of work, lets the event loop do other
        work.
        """
        running = Slice(self._owner.io, "http")
        for piece in pieces:
            if self._transport is None:
                return
            if piece:
                data = piece.encode() if isinstance(piece, str) else piece
                self._write(self._http.send(h11.Data(data=data)))
            if running.is_over():
                running.end()
                await self._drain()
                await next_turn(self._owner.io)
                running.begin()

    async def _send_streamed(self, streamed: Streamed) -> None:
        """Sends a streamed response. Each piece is created only after the client has read the previous one,
        so that a slow client misses intermediate states. The event loop does other work between pieces, even
        if the client reads everything at once.
        """
        running = Slice(self._owner.io, "http")
        while self._transport is not None and not self._closing:
            data = await streamed.next()
            if not data:
                return
            self._write(self._http.send(h11.Data(data=data)))
            await self._drain()
            await running.rest()

    def _head_of(self, response: Response) -> h11.Response:
        headers = [
            ("Date", http_date(self._owner.io.clock.wall_ms() // 1000)),
            ("Server", "Magnetar"),
            *response.headers,
        ]
        if response.content_type is not None:
            headers.append(("Content-Type", response.content_type))
        whole = response.pieces is None and response.streamed is None
        if whole and response.status not in _BODILESS:
            headers.append(("Content-Length", str(len(response.body))))
        if self._closing:
            headers.append(("Connection", "close"))
        reason = HTTPStatus(response.status).phrase.encode()
        return h11.Response(status_code=response.status, headers=headers, reason=reason)

    def _next_request(self) -> None:
        """Continues with the next request, or closes the connection if one side requested this."""
        self._answering = self._begun = False
        self._head = self._arriving = None
        if self._closing or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._close()
            return
        self._http.start_next_cycle()
        self._expect(self._owner.limits.idle_seconds)
        if self._transport is not None:
            self._transport.resume_reading()
        self._read(lambda: None)

    def refuse_body(self) -> None:
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The bodies of all requests together are too large")

    def _drop_body(self) -> None:
        """Drops a request body that is incomplete or no longer needed."""
        if not self._answering:
            self._owner.bodies.gone(self.refuse_body)
        self._body = bytearray()

    def _refuse(self, status: int, reason: str) -> None:
        """Sends an error without calling a handler, and closes the connection."""
        self._closing = True
        self._drop_body()
        if self._transport is None:
            return
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = error_response(status, reason)
            self._write(self._http.send(self._head_of(response)))
            if self._head is None or self._head.method != b"HEAD":
                self._write(self._http.send(h11.Data(data=response.body)))
        self._close()

    # the transport

    def _write(self, data: bytes | None) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    async def _drain(self) -> None:
        """Waits while the client does not read; gives up after :attr:`HttpLimits.stalled_seconds` without
        progress.
        """
        if self._drained is None or self._transport is None:
            return
        stalled = self._loop.call_later(self._owner.limits.stalled_seconds, self._abort)
        try:
            await self._drained
        finally:
            stalled.cancel()

    def _expect(self, seconds: float | None) -> None:
        """Sets the time within which the next request, or the rest of the current one, must arrive, in
        seconds. If the time passes, the connection is closed. None: no limit.
        """
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self._loop.call_later(seconds, self._expired)

    def _expired(self) -> None:
        self._deadline = None
        if self._head is None and self._http.their_state is h11.IDLE and not self._http.trailing_data[0]:
            self._close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time")

    def _close(self) -> None:
        self._expect(None)
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _has_two_lengths(head: h11.Request) -> bool:
    names = {name for name, _value in head.headers}
    return b"content-length" in names and b"transfer-encoding" in names


def _target_of(head: h11.Request) -> tuple[str, str, str]:
    """Splits the target of a request into the path, the question mark (empty without a query) and the
    query.
    """
    path, mark, query = head.target.decode("ascii", "replace").partition("?")
    if not path.startswith("/"):
        # absolute form, as to a proxy
        path = "/" + path.partition("://")[2].partition("/")[2]
    return path, mark, query


def _request_of(head: h11.Request, body: bytearray, transport: Transport) -> Request:
    local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    path, mark, query = _target_of(head)
    return Request(
        method=head.method.decode("ascii"),
        path=path,
        target=f"{path}{mark}{query}",
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body=body,
        local_host=str(local[0]) if isinstance(local, tuple) else "",
        local_port=local[1] if isinstance(local, tuple) else 0,
        secure=transport.get_extra_info("ssl_object") is not None,
        peer=f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "",
        certificate=transport.get_extra_info("peercert"),
    )


def http_date(seconds: int) -> str:
    """Formats a time, given in seconds since 1970, as an HTTP date, which is always in English."""
    at = time.gmtime(seconds)
    return (
        f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year} "
        f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
    )
