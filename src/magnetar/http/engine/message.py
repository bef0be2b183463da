"""Requests and responses, free of sockets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.errors import BrokerError, InvalidRequest
from magnetar.http.engine.large_json import encoded, encoded_in_pieces, is_large, parse_json
from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import settle
from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication import ANONYMOUS, PeerCertificate, Principal

if TYPE_CHECKING:
    from magnetar.http.engine.connection import HttpConnection
    from magnetar.http.engine.websocket import WebSocket


JSON_TYPE = "application/json"
_LONGEST_REASON = 4096
_NULL = re.compile(rb"\s*null\s*")
MOST_BYTES = 256 * 1024
"""Unread bytes above which the socket is not read. One more read may exceed the limit."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: complete, or without its body, which is :attr:`arriving`."""

    method: str
    path: str
    """The path as received, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Decoded; of repeated names the last value."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case; of repeated names the last value."""
    body: bytes | bytearray = b""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values of the variables of the endpoint's path, decoded."""
    principal: Principal = ANONYMOUS
    """The authenticated principal."""
    local_host: str = ""
    """The local address of the connection; empty if unknown."""
    local_port: int = 0
    """The local port of the connection; 0 if unknown."""
    secure: bool = False
    """Whether the connection uses TLS."""
    peer: str = ""
    """``host:port`` of the client; empty if unknown."""
    certificate: PeerCertificate | None = None
    """The client's certificate, verified by TLS."""
    target: str = ""
    """Path and query as received."""
    parse: Callable[[bytes | bytearray], object] = parse_json
    """Parses the body, or returns or raises the result of an earlier parsing."""
    arriving: ArrivingBody | None = None
    """The body if its handler reads it while it arrives; :attr:`body` is empty then."""

    @property
    def has_body(self) -> bool:
        """Whether the body has more than white space."""
        return bool(self.body) and not self.body.isspace()

    @property
    def has_value(self) -> bool:
        """Whether the body has more than white space or ``null``."""
        return self.has_body and not _NULL.fullmatch(self.body)

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether a query parameter is ``true``."""
        value = self.query.get(name)
        return default if value is None else value.lower() == "true"

    def json(self) -> Any:
        """Returns the parsed body.

        :raises InvalidRequest: the body is empty or not JSON
        """
        if not self.has_body:
            raise InvalidRequest("The request entity cannot be empty.")
        try:
            return self.parse(self.body)
        except ValueError as error:
            raise InvalidRequest(f"The body is not JSON: {error}") from error
        except RecursionError as error:
            raise InvalidRequest("The body is nested too deeply") from error


class Abandoned(Exception):
    """The rest of an answer is not sent: the connection is closed, and the log has the reason."""


class Streamed(Protocol):
    """An answer that is created while it is sent, as long as the client reads it."""

    async def next(self) -> bytes:
        """Returns the next piece; called when the client has read the last one; empty: the end.

        :raises Abandoned: nothing more is sent, although the answer is incomplete
        """
        ...

    def close(self) -> None:
        """Ends the answer, because the client disconnected or the server is stopping; a waiting :meth:`next`
        returns the end."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """A response; ``pieces`` are sent one after the other, with turns of the event loop between them.

    A piece may be empty, to allow other work in between.
    """

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    pieces: Iterator[str] | Iterator[bytes] | None = None
    streamed: Streamed | None = None
    """Closed also if it is never sent."""
    upgrade: WebSocket | None = None
    """With status 101: takes over the connection; its end is reported also if it never does."""


def asks_for_websocket(request: Request) -> bool:
    return request.headers.get("upgrade", "").strip().lower() == "websocket"


def json_response(value: Any, status: int = 200) -> Response:
    """Returns a JSON response; a large value is encoded while it is sent."""
    if is_large(value):
        return Response(status, content_type=JSON_TYPE, pieces=encoded_in_pieces(value))
    return Response(status, encoded(value), JSON_TYPE)


def text_response(text: str, status: int = 200, content_type: str = JSON_TYPE) -> Response:
    """Returns bare text; Pulsar labels it as JSON."""
    return Response(status, text.encode(), content_type)


def nothing() -> Response:
    return Response(HTTPStatus.NO_CONTENT)


def error_response(status: int, reason: str, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """Returns an error in the form that Pulsar's admin clients read; a very long reason is cut."""
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON] + "..."
    return Response(status, encoded({"reason": reason}), JSON_TYPE, headers)


def refusal(error: BrokerError) -> Response:
    return error_response(error.http_status, str(error))


def warned(response: Response, sentences: Iterable[str]) -> Response:
    """Returns the answer with a ``Warning`` header for each sentence."""
    added = [("Warning", f'299 magnetar "{sentence}"') for sentence in sentences]
    return replace(response, headers=[*response.headers, *added])


class Arriving:
    """Bytes from one connection, read while they arrive. A slow reader slows down the sender: at most
    :data:`MOST_BYTES` and one more read from the socket wait here.

    :param hold: pauses (true) or resumes reading from the sender
    :param failure: returns the error that :meth:`next` raises, for a reason
    :param silence: the reason if nothing arrives in time, with ``{seconds}``
    """

    def __init__(
        self,
        loop: Loop,
        hold: Callable[[bool], None],
        failure: Callable[[str], Exception],
        seconds: float,
        silence: str,
    ) -> None:
        self.seconds = seconds
        """Time without a byte after which the rest counts as lost; 0: no limit."""
        self._loop = loop
        self._hold = hold
        self._failed = failure
        self._silence = silence
        self._came = bytearray()
        self._held = False
        self._over = False
        self._failure = ""
        self._waiter: Future[None] | None = None

    # called by the connection

    def feed(self, data: bytes | bytearray) -> None:
        self._came += data
        if len(self._came) > MOST_BYTES and not self._held:
            self._held = True
            self._hold(True)
        self._wake()

    def end(self) -> None:
        """Notes that everything has arrived."""
        self._over = True
        self._wake()

    def fail(self, reason: str) -> None:
        """Notes that the rest will not arrive; does nothing after the end."""
        if not self._over:
            self._failure = self._failure or reason
            self._wake()

    # called by the reader

    async def next(self) -> bytes:
        """Returns what has arrived, as soon as something has; empty: the end.

        :raises Exception: as returned by ``failure``: the sender disconnected or stopped sending
        """
        while not self._came and not self._over:
            if self._failure:
                raise self._failed(self._failure)
            await self._wait()
        data = bytes(self._came)
        self._came.clear()
        if self._held:
            self._held = False
            if not self._over:
                self._hold(False)
        return data

    async def _wait(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        silent = None
        if self.seconds:
            reason = self._silence.format(seconds=f"{self.seconds:g}")
            silent = self._loop.call_later(self.seconds, self.fail, reason)
        try:
            await waiter
        finally:
            if silent is not None:
                silent.cancel()

    def _wake(self) -> None:
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            settle(waiter)


class ArrivingBody(Arriving):
    """A body that is too large for memory: its handler reads it while it arrives.

    :param seconds: time without a byte after which the request fails, with InvalidRequest
    """

    def __init__(self, loop: Loop, socket: HttpConnection, seconds: float) -> None:
        super().__init__(loop, socket.hold, InvalidRequest, seconds, "The body did not arrive in time")

    async def leave_aside(self) -> None:
        """Reads and discards the rest, because a client that is sending does not read the answer.

        Also returns if the rest does not arrive.
        """
        with suppress(InvalidRequest):
            while await self.next():
                pass
