"""Requests and responses, independent of sockets."""

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
"""If a handler has left this number of bytes unread, the socket is no longer read; the last read can exceed
the number.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its complete body, or with a body that is still arriving (:attr:`arriving`)."""

    method: str
    path: str
    """The path as received, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Decoded query parameters; of repeated names, the last value counts."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers with names in lower case; of repeated names, the last value counts."""
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
    """Parses the body. Once the body has been parsed, another function replaces this one: it returns the same
    result, or raises the same error, without parsing again.
    """
    arriving: ArrivingBody | None = None
    """The body if the handler reads it while it arrives; :attr:`body` is then empty."""

    @property
    def has_body(self) -> bool:
        """Whether the body contains more than white space."""
        return bool(self.body) and not self.body.isspace()

    @property
    def has_value(self) -> bool:
        """Whether the body contains more than white space or ``null``."""
        return self.has_body and not _NULL.fullmatch(self.body)

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether the query parameter ``name`` is ``true`` (in upper or lower case); ``default`` if it is
        absent.
        """
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
    """Raised by a response whose rest cannot be sent: the connection is closed, and the reason is logged."""


class Streamed(Protocol):
    """The body of a response that is created piece by piece while it is sent, as long as the client reads."""

    async def next(self) -> bytes:
        """Returns the next piece, or empty bytes at the end; called when the client has read the previous
        piece.

        :raises Abandoned: the response cannot be completed
        """
        ...

    def close(self) -> None:
        """Ends the response, because the client disconnected or the server is stopping; a waiting
        :meth:`next` returns empty bytes.
        """
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """A response.

    If ``pieces`` is set, they are sent one after another, and the event loop does other work in between; an
    empty piece sends nothing and only gives the event loop this opportunity.
    """

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    pieces: Iterator[str] | Iterator[bytes] | None = None
    streamed: Streamed | None = None
    """A body that is created while it is sent; it is closed also if it is never sent."""
    upgrade: WebSocket | None = None
    """For status 101: the WebSocket that takes over the connection. The WebSocket is notified of its end even
    if it never takes over the connection.
    """


def asks_for_websocket(request: Request) -> bool:
    return request.headers.get("upgrade", "").strip().lower() == "websocket"


def json_response(value: Any, status: int = 200) -> Response:
    """Returns a JSON response; a large value is encoded while it is sent."""
    if is_large(value):
        return Response(status, content_type=JSON_TYPE, pieces=encoded_in_pieces(value))
    return Response(status, encoded(value), JSON_TYPE)


def text_response(text: str, status: int = 200, content_type: str = JSON_TYPE) -> Response:
    """Returns a response whose body is the text itself, without quotation marks; the default content type is
    JSON, as in Pulsar.
    """
    return Response(status, text.encode(), content_type)


def nothing() -> Response:
    return Response(HTTPStatus.NO_CONTENT)


def error_response(status: int, reason: str, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """Returns an error in the form that Pulsar's admin clients read; very long reasons are truncated."""
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON] + "..."
    return Response(status, encoded({"reason": reason}), JSON_TYPE, headers)


def refusal(error: BrokerError) -> Response:
    return error_response(error.http_status, str(error))


def warned(response: Response, sentences: Iterable[str]) -> Response:
    """Returns the response with a ``Warning`` header for each sentence."""
    added = [("Warning", f'299 magnetar "{sentence}"') for sentence in sentences]
    return replace(response, headers=[*response.headers, *added])


class Arriving:
    """Bytes from one connection that are read while they arrive.

    A slow reader slows down the sender: only about :data:`MOST_BYTES` are buffered.

    :param hold: pauses (True) or resumes (False) reading from the sender
    :param failure: creates, from a reason, the exception that :meth:`next` raises
    :param silence: the reason if nothing arrives in time; ``{seconds}`` in it is replaced by the time limit
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
        """If nothing arrives for this time, in seconds, :meth:`next` fails; 0: no limit."""
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
        """Marks the data as complete."""
        self._over = True
        self._wake()

    def fail(self, reason: str) -> None:
        """Marks the data as incomplete; does nothing after the end."""
        if not self._over:
            self._failure = self._failure or reason
            self._wake()

    # called by the reader

    async def next(self) -> bytes:
        """Waits until bytes have arrived, and returns all of them; empty at the end.

        :raises Exception: the sender has disconnected or stopped sending; the class is chosen by ``failure``
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

    :param seconds: time without data after which the request fails with InvalidRequest
    """

    def __init__(self, loop: Loop, socket: HttpConnection, seconds: float) -> None:
        super().__init__(loop, socket.hold, InvalidRequest, seconds, "The body did not arrive in time")

    async def leave_aside(self) -> None:
        """Reads and discards the rest of the body, because a client that is sending does not read the
        response. Also returns if the rest does not arrive.
        """
        with suppress(InvalidRequest):
            while await self.next():
                pass
