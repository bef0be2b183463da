"""Requests and responses, free of sockets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from http import HTTPStatus
from typing import Any, Protocol

from magnetar.errors import BrokerError, InvalidRequest
from magnetar.http.engine.arriving import ArrivingBody
from magnetar.http.engine.json_in_pieces import encoded, encoded_in_pieces, is_large
from magnetar.http.engine.written_number import parse_json
from magnetar.io.interfaces import Transport
from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication import PeerCertificate
from magnetar.security.principal import ANONYMOUS, Principal

JSON_TYPE = "application/json"
_LONGEST_REASON = 4096
_NULL = re.compile(rb"\s*null\s*")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: complete, or all of it but a body that is :attr:`arriving`."""

    method: str
    path: str
    """As it came, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Decoded; of repeated names the last one."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case; of repeated names the last one."""
    body: bytes | bytearray = b""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What stood in the places of the pattern's variables, decoded."""
    principal: Principal = ANONYMOUS
    """Who asks."""
    local_host: str = ""
    """The address of this machine that the client reached; empty when nobody knows."""
    local_port: int = 0
    """The port that the client reached; 0 when nobody knows."""
    secure: bool = False
    """Whether it came through TLS."""
    peer: str = ""
    """``host:port`` of the client; empty when nobody knows."""
    certificate: PeerCertificate | None = None
    """What TLS has verified of the client's certificate."""
    target: str = ""
    """Path and query as they came."""
    parse: Callable[[bytes | bytearray], Any] = parse_json
    """Makes a value of the body, or tells what became of that before."""
    arriving: ArrivingBody | None = None
    """The body, where it is read as it comes: :attr:`body` is empty then."""

    @property
    def has_body(self) -> bool:
        """Whether there is more than white space."""
        return bool(self.body) and not self.body.isspace()

    @property
    def has_value(self) -> bool:
        """Whether there is more than white space or ``null``."""
        return self.has_body and not _NULL.fullmatch(self.body)

    def flag(self, name: str, default: bool = False) -> bool:
        """A query parameter that is ``true`` or not."""
        value = self.query.get(name)
        return default if value is None else value.lower() == "true"

    def json(self) -> Any:
        """The body, parsed.

        :raises InvalidRequest: it is empty or not JSON
        """
        if not self.has_body:
            raise InvalidRequest("The request entity cannot be empty.")
        try:
            return self.parse(self.body)
        except ValueError as error:
            raise InvalidRequest(f"The body is not JSON: {error}") from error
        except RecursionError as error:
            raise InvalidRequest("The body is nested too deeply") from error


class Upgraded(Protocol):
    """What has a connection after HTTP; called as ``magnetar.io.interfaces.StreamProtocol`` is."""

    def begin(self, transport: Transport, rest: bytes) -> None:
        """The client was told.

        :param rest: what it has sent already
        """
        ...

    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None:
        """Also where there was no connection any more to begin with."""
        ...

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def close_when_idle(self) -> None:
        """The server stops."""
        ...


class Abandoned(Exception):
    """The rest of an answer is not sent: the connection ends, and the log says why."""


class Streamed(Protocol):
    """What is sent as it comes about, for as long as the client takes it."""

    async def next(self) -> bytes:
        """What is sent next, asked for once the client has taken what came before; empty: the end.

        :raises Abandoned: nothing more is sent, although this is not the end
        """
        ...

    def close(self) -> None:
        """The client is gone, or the server stops: whoever waits for the next piece gets the end."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """What is to be sent; ``pieces`` are sent one after the other, with turns of the event loop between.

    A piece may be empty: the work behind it may be interrupted there.
    """

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    pieces: Iterator[str] | Iterator[bytes] | None = None
    streamed: Streamed | None = None
    """Told of its end also when it never gets as far as being sent."""
    upgrade: Upgraded | None = None
    """Of status 101: has the connection from then on; told of its end also when it never gets that far."""


def asks_for_websocket(request: Request) -> bool:
    return request.headers.get("upgrade", "").strip().lower() == "websocket"


def json_response(value: Any, status: int = 200) -> Response:
    """What is large is encoded while it is sent."""
    if is_large(value):
        return Response(status, content_type=JSON_TYPE, pieces=encoded_in_pieces(value))
    return Response(status, encoded(value), JSON_TYPE)


def text_response(text: str, status: int = 200, content_type: str = JSON_TYPE) -> Response:
    """Bare text; Pulsar labels it JSON."""
    return Response(status, text.encode(), content_type)


def nothing() -> Response:
    return Response(HTTPStatus.NO_CONTENT)


def error_response(status: int, reason: str, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """An error in the shape that Pulsar's admin clients read; of a very long reason the beginning."""
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON] + "..."
    return Response(status, encoded({"reason": reason}), JSON_TYPE, headers)


def refusal(error: BrokerError) -> Response:
    return error_response(error.http_status, str(error))
