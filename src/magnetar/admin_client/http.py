"""Requests to the admin interface, based only on the standard library."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlencode, urlsplit

from magnetar.admin_client.errors import AdminError, CannotConnect, refusal
from magnetar.admin_client.events import EVENTS_TYPE, EventStream
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials

if TYPE_CHECKING:
    import ssl

    from magnetar.io.tls import ClientTls

TIMEOUT_SECONDS = 60.0
JSON_TYPE = "application/json"
_REDIRECTS = (302, 307, 308)
_MAX_REDIRECTS = 5
_MOST_REFUSAL = 65_536
"""Maximum size of an error response that is read from an event stream, in bytes."""
_WARNING = re.compile(r'299 [^ ]+ "([^"]*)"')
"""Matches the quoted strings of a ``Warning`` header."""
_CHUNK = 256 * 1024
_ERRORS = 400
"""The lowest HTTP status of an error."""


class _NotReached(CannotConnect):
    """The server did not receive the request."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request body that is sent in pieces, because it can be too large for memory."""

    length: int
    pieces: Callable[[], Iterator[bytes]]
    """Returns the pieces of the body; each call starts at the beginning."""


Body = str | Sent | None
Take = Callable[[bytes], object]


class AdminHttp:
    """Sends requests to a broker, follows redirects, and tries the next address if an address does not
    answer.
    """

    def __init__(
        self,
        admin_url: str,
        *,
        authentication: Authentication | None = None,
        tls: ClientTls | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """:param admin_url: one or more addresses, such as ``http://host:port,host:port``
        :param authentication: the credentials of requests
        :param tls: TLS settings for ``https``; None: the system's CA certificates, with a check of host
            names
        :param timeout_seconds: maximum time to wait for each response
        :param warn: called with each warning in a response, for example about a setting that has no effect
        :raises AdminError: an address is not an HTTP URL, or a client certificate is set without TLS
        """
        self._urls = _each(admin_url)
        self._authentication = authentication
        self._tls = tls
        self._timeout = timeout_seconds
        self._context: Callable[[], ssl.SSLContext] | None = None
        self._warn = warn
        if authentication is not None and authentication.certificate and not _is_secured(self._urls[0]):
            raise AdminError("authentication by a certificate requires TLS; use an https:// URL")

    def ask(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Body = None,
        *,
        content_type: str = JSON_TYPE,
    ) -> Any:
        """Sends a request; returns a JSON response as its value, other text unchanged, and None for an empty
        response.

        :raises AdminError: the broker cannot be reached, or refused the request; the message gives the reason
        """
        status, _, data = self._exchanged(method, path, query, body, content_type)
        try:
            return _answer(status, data.decode())
        except UnicodeDecodeError as error:
            raise AdminError(f"{path}: the response is not UTF-8 text") from error

    def fetch(self, path: str, query: dict[str, str] | None = None) -> tuple[Mapping[str, str], bytes]:
        """Returns the headers (by name in lower case) and the body of a GET response.

        :raises AdminError: the broker cannot be reached, or refused the request; the message gives the reason
        """
        status, headers, data = self._exchanged("GET", path, query, None)
        if status >= _ERRORS:
            _answer(status, data.decode("utf-8", "replace"))
        return headers, data

    def download(self, path: str, take: Take) -> Mapping[str, str]:
        """Passes the body of a GET response to ``take`` in pieces; returns the headers, by name in lower
        case.

        :raises AdminError: the broker cannot be reached or refused the request, or the body is incomplete
        """
        status, headers, data = self._exchanged("GET", path, None, None, take=take)
        if status >= _ERRORS:
            _answer(status, data.decode("utf-8", "replace"))
        return headers

    def events(
        self, path: str, query: dict[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> EventStream:
        """Opens a stream of server-sent events at the first broker that answers.

        :param headers: headers in addition to the headers of every request
        :raises AdminError: the broker cannot be reached, or refused the request; the message gives the reason
        """
        target = _target(path, query)
        for _ in self._urls[1:]:
            try:
                return self._events(self._urls[0] + target, headers or {})
            except CannotConnect:
                self._urls = [*self._urls[1:], self._urls[0]]
        return self._events(self._urls[0] + target, headers or {})

    def _exchanged(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None,
        body: Body,
        content_type: str = JSON_TYPE,
        take: Take | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        target = _target(path, query)
        for _ in self._urls[1:]:
            try:
                return self._followed(method, self._urls[0] + target, body, content_type, take)
            except CannotConnect as error:
                if method != "GET" and not isinstance(error, _NotReached):
                    raise
                # Later requests start with an address that may answer.
                self._urls = [*self._urls[1:], self._urls[0]]
        return self._followed(method, self._urls[0] + target, body, content_type, take)

    def _followed(
        self, method: str, url: str, body: Body, content_type: str, take: Take | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        for _ in range(_MAX_REDIRECTS):
            status, headers, data = self._exchange(method, url, body, content_type, take)
            if self._warn is not None:
                for sentence in _WARNING.findall(headers.get("warning", "")):
                    self._warn(sentence)
            if status not in _REDIRECTS:
                return status, headers, data
            location = _checked(headers.get("location", ""))
            if _is_secured(url) and not _is_secured(location):
                raise AdminError(
                    f"{location}: the broker redirects from https to http, which is "
                    "refused; use the TLS address of all brokers"
                )
            url = location
        raise AdminError(f"the request was redirected too often, the last time to {url}")

    def _exchange(
        self, method: str, url: str, body: Body, content_type: str, take: Take | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Returns the status, the headers by name in lower case, and the body of a response."""
        connection, asked = self._connected(url)
        try:
            response = _answered(connection, method, url, body, self._headers(content_type))
            found = {name.lower(): value for name, value in response.headers.items()}
            if warnings := response.headers.get_all("Warning"):
                found["warning"] = ", ".join(warnings)
            if take is None or response.status != HTTPStatus.OK:
                return response.status, found, response.read()
            _taken(response, take)
            return response.status, found, b""
        except (OSError, HTTPException) as error:
            raise CannotConnect(f"cannot reach {asked}: {error}") from error
        finally:
            connection.close()

    def _events(self, url: str, added: Mapping[str, str]) -> EventStream:
        connection, asked = self._connected(url)
        opened = connection.sock
        going_on = False
        try:
            headers = {**self._headers(JSON_TYPE), "Accept": EVENTS_TYPE, **added}
            response = _answered(connection, "GET", url, None, headers)
            if response.status == HTTPStatus.OK and response.headers.get_content_type() == EVENTS_TYPE:
                going_on = True
                return EventStream(asked, connection, opened, response)
            refused = response.read(_MOST_REFUSAL).decode("utf-8", "replace")
        except (OSError, HTTPException) as error:
            raise CannotConnect(f"cannot reach {asked}: {error}") from error
        finally:
            if not going_on:
                connection.close()
        _answer(response.status, refused)
        raise AdminError(f"{asked}: the response is not an event stream", status=response.status)

    def _connected(self, url: str) -> tuple[HTTPConnection, str]:
        """Returns an open connection, and its address for errors."""
        parts = urlsplit(url)
        # The part before the host may contain a secret.
        asked = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        connection = self._connection(parts)
        try:
            connection.connect()
        except OSError as error:
            raise _NotReached(f"cannot reach {asked}: {error}") from error
        return connection, asked

    def _connection(self, parts: SplitResult) -> HTTPConnection:
        host = parts.hostname or ""
        if parts.scheme != "https":
            return HTTPConnection(host, parts.port, timeout=self._timeout)
        # Imported late, so that commands without TLS start fast.
        from magnetar.io.tls import ClientContext, ClientTls, TlsRefused

        if self._context is None:
            wanted = self._tls or ClientTls()
            own = self._authentication.certificate if self._authentication is not None else None
            self._context = ClientContext(replace(wanted, files=wanted.files.showing(own)))
        try:
            context = self._context()
        except TlsRefused as error:
            raise AdminError(str(error)) from error
        return HTTPSConnection(host, parts.port, timeout=self._timeout, context=context)

    def _headers(self, content_type: str) -> dict[str, str]:
        """Returns the headers of a request.

        :raises AdminError: credentials are not available
        """
        headers = {"Content-Type": content_type, "Accept": JSON_TYPE}
        if self._authentication is not None:
            try:
                headers.update(self._authentication.headers())
            except NoCredentials as error:
                raise AdminError(str(error)) from error
        return headers


def _taken(response: HTTPResponse, take: Take) -> None:
    """Passes the body of a response to ``take``.

    :raises IncompleteRead: the body is incomplete
    """
    while data := response.read(_CHUNK):
        take(data)
    if response.length:
        raise IncompleteRead(b"", response.length)


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return path + (f"?{urlencode(query)}" if query else "")


def _answered(
    connection: HTTPConnection, method: str, url: str, body: Body, headers: Mapping[str, str]
) -> HTTPResponse:
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if isinstance(body, Sent):
        length = {"Content-Length": str(body.length)}
        connection.request(method, target, body.pieces(), {**headers, **length})
    else:
        connection.request(method, target, body, dict(headers))
    return connection.getresponse()


def _each(url: str) -> list[str]:
    """Returns the addresses in a URL with several hosts.

    :raises AdminError: an address is not an HTTP URL
    """
    scheme, separator, rest = url.partition("://")
    hosts, slash, path = rest.partition("/")
    return [_checked(f"{scheme}{separator}{host.strip()}{slash}{path}") for host in hosts.split(",")]


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        there = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        there = False
    if not there:
        raise AdminError(f"{url!r} is not an admin URL; use a form like http://localhost:8080")
    return url.rstrip("/")


def _is_secured(url: str) -> bool:
    return url.lower().startswith("https:")


def _answer(status: int, text: str) -> Any:
    try:
        value = json.loads(text) if text else None
    except ValueError:
        value = text
    if status < _ERRORS:
        return value
    reason = value.get("reason") if isinstance(value, dict) else None
    raise refusal(status, str(reason or ""))
