"""An HTTP request to a broker, on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import h11

from magnetar.http.engine.message import Abandoned, Arriving
from magnetar.io.interfaces import ConnectingNetwork, Future, Loop, Transport
from magnetar.io.waiting import fail, nobody_waits, settle
from magnetar.lazy_dataclass import dataclass

MAX_ANSWER_BYTES = 256 << 20
"""Maximum size of a response in bytes; a list of a million topics has about 100 MB."""
EVENTS_TYPE = "text/event-stream"
"""The content type of responses that are passed on while they arrive."""
_PORTS = {"http": 80, "https": 443}
Headers = Sequence[tuple[str, str]]


class NotAnswered(Exception):
    """The server at an address does not answer, or its answer is not HTTP."""


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    status: int
    headers: Headers
    """Headers with names in lower case."""
    body: bytes
    events: ArrivingEvents | None = None
    """The body, if it is passed on while it arrives; :attr:`body` is then empty. The receiver must close
    this object.
    """

    def header(self, name: str) -> str:
        """Returns the first header with this name; empty: the response has no such header."""
        return next((value for known, value in self.headers if known == name), "")


class ArrivingEvents(Arriving):
    """The server-sent events of a broker: see :class:`magnetar.http.engine.message.Streamed`."""

    def __init__(self, loop: Loop, exchange: Exchange) -> None:
        super().__init__(loop, exchange.hold, Abandoned, 0.0, "the broker sent nothing for {seconds} s")
        self.ended: Callable[[], object] | None = None
        """Called once, when nothing more is passed on."""
        self._exchange = exchange

    def close(self) -> None:
        self.end()
        self._exchange.close()
        ended, self.ended = self.ended, None
        if ended is not None:
            ended()


class Exchange:
    """A request and its response, as the protocol of :class:`magnetar.io.interfaces.Network`."""

    def __init__(self, loop: Loop, method: str, target: str, headers: Headers, body: bytes) -> None:
        self.answer: Future[BrokerResponse] = loop.create_future()
        """The future of the response; it fails with NotAnswered if no response arrives."""
        self.answer.add_done_callback(nobody_waits)
        self._loop = loop
        self._http = h11.Connection(h11.CLIENT)
        self._request = h11.Request(method=method, target=target, headers=list(headers))
        self._sent_body = body
        self._transport: Transport | None = None
        self._head: h11.Response | None = None
        self._body = bytearray()
        self._events: ArrivingEvents | None = None

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        data = self._http.send(self._request) or b""
        if self._sent_body:
            data += self._http.send(h11.Data(data=self._sent_body)) or b""
        transport.write(data + (self._http.send(h11.EndOfMessage()) or b""))

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def eof_received(self) -> bool:
        self._feed(b"")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection has ended{f': {exc}' if exc else ''}")

    def pause_writing(self) -> None:
        """Does nothing: the whole request is already queued."""

    def resume_writing(self) -> None:
        """Does nothing: see :meth:`pause_writing`."""

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def hold(self, held: bool) -> None:
        """Pauses reading from the broker if ``held`` is True, otherwise resumes reading."""
        if self._transport is None or self._transport.is_closing():
            return
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _feed(self, data: bytes) -> None:
        if self.answer.done() and self._events is None:
            return
        try:
            self._http.receive_data(data)
            self._take()
        except h11.RemoteProtocolError as error:
            self._fail(f"the answer is not HTTP: {error}")

    def _fail(self, reason: str) -> None:
        if self._events is not None:
            self._events.fail(reason)
        fail(self.answer, NotAnswered(reason))

    def _take(self) -> None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return
            if isinstance(event, h11.Response):
                self._head = event
                self._pass_on_events(event)
            elif isinstance(event, h11.Data):
                if self._events is not None:
                    self._events.feed(event.data)
                    continue
                self._body += event.data
                if len(self._body) > MAX_ANSWER_BYTES:
                    fail(self.answer, NotAnswered(f"the response exceeds {MAX_ANSWER_BYTES} bytes"))
                    return
            elif isinstance(event, h11.EndOfMessage) and self._head is not None:
                if self._events is not None:
                    self._events.end()
                else:
                    body = bytes(self._body)
                    settle(self.answer, BrokerResponse(self._head.status_code, _headers_of(self._head), body))
                return

    def _pass_on_events(self, head: h11.Response) -> None:
        headers = _headers_of(head)
        response = BrokerResponse(head.status_code, headers, b"")
        if response.header("content-type").partition(";")[0].strip().lower() == EVENTS_TYPE:
            self._events = ArrivingEvents(self._loop, self)
            settle(self.answer, BrokerResponse(head.status_code, headers, b"", self._events))


def _headers_of(head: h11.Response) -> Headers:
    return [(name.decode(), value.decode("latin-1")) for name, value in head.headers]


@dataclass(frozen=True, slots=True)
class WebNetworks:
    """The networks for ``http`` and ``https`` URLs."""

    plain: ConnectingNetwork
    tls: ConnectingNetwork

    async def exchange(
        self, loop: Loop, method: str, url: str, headers: Headers, body: bytes
    ) -> BrokerResponse:
        """Sends a request; returns the whole response, or the head of a response whose events arrive later.

        :param headers: the headers, except ``Host``
        :raises NotAnswered: the address does not answer
        :raises OSError: the address cannot be reached
        :raises TlsRefused: the files for TLS cannot be used
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise NotAnswered(f"{url[:300]!r} is not a valid URL: {error}") from error
        if parts.scheme not in _PORTS or not parts.hostname:
            raise NotAnswered(f"{url[:300]!r} is not a valid HTTP URL")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        made: list[Exchange] = []

        def factory() -> Exchange:
            made.append(Exchange(loop, method, target, [("Host", parts.netloc), *headers], body))
            return made[-1]

        network = self.tls if parts.scheme == "https" else self.plain
        try:
            await network.connect(parts.hostname, port or _PORTS[parts.scheme], factory)
            answer: BrokerResponse = await made[-1].answer
            if answer.events is not None:
                made.clear()
            return answer
        finally:
            for each in made:
                each.close()
