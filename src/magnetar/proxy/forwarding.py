"""Forwards HTTP requests to brokers and to other servers in the settings, or redirects clients to a broker.

The proxy follows redirects of brokers itself, because its clients cannot reach brokers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import unquote, urljoin, urlsplit

from magnetar.client.exceptions import Timeout
from magnetar.client.timing import within
from magnetar.config.proxy import ReverseProxy
from magnetar.http.engine.message import Request, Response, error_response
from magnetar.io.interfaces import Loop
from magnetar.io.tls import TlsRefused
from magnetar.lazy_dataclass import dataclass
from magnetar.proxy.brokers import AllowedTargets, Brokers, TargetDenied, brokers_of_page, is_web_of
from magnetar.proxy.web_client import ArrivingEvents, BrokerResponse, NotAnswered, WebNetworks
from magnetar.security.authentication import Principal

log = logging.getLogger(__name__)
_BROKERS_PATHS = ("/admin", "/lookup")
_PAGE_PATHS = ("/dashboard", "/openapi", "/openapi.json", "/admin/v2/magnetar")
"""Paths of pages, and of the data about the answering broker that pages show."""
_PAGE_FILE = re.compile(r"/|/openapi(\.json)?|/(dashboard|openapi)/\w+\.(js|css|svg)", re.ASCII)
"""Files that brokers send without authentication, because a browser requests them before its user can
authenticate.
"""
BROKER_HEADER = "Magnetar-Broker"
"""In a request of the page or of ``magnetar top``: ``host:port`` of the broker that shall answer. In a
response: ``host:port`` of the broker to which the proxy sent the page's request first.
"""
_FUNCTIONS = ("function", "source", "sink", "worker", "worker-stats", "functions", "sources", "sinks")
_REDIRECTS = (301, 302, 307, 308, 421)
"""Statuses of redirects; 421, with the owner's address, tells a page that another broker owns a topic."""
_MAX_REDIRECTS = 8
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "expect",
        BROKER_HEADER.lower(),
    }
)
_OURS = _HOP_BY_HOP | {"date", "server", "content-type"}
"""Response headers that the proxy replaces."""
_CHECKED = frozenset({"origin"})
"""Request headers that the proxy has checked and removes, because the proxy's address would be a foreign
origin for brokers.
"""
_CREDENTIALS = frozenset({"authorization", "x-pulsar-auth-method-name"})
_ORIGINAL = "X-Original-Principal"


@dataclass(frozen=True, slots=True)
class ForwardingOptions:
    tls: bool
    """Whether to use HTTPS for brokers."""
    seconds: float
    """Timeout of a response, in seconds."""
    most: int
    """Maximum number of concurrent requests."""
    forward_credentials: bool
    functions_url: str = ""
    """URL of the server for requests about Pulsar Functions; empty: the brokers."""
    reverse: Sequence[ReverseProxy] = ()


class Forwarding:
    def __init__(
        self,
        loop: Loop,
        options: ForwardingOptions,
        brokers: Brokers,
        targets: AllowedTargets,
        web: WebNetworks,
        other: WebNetworks,
        auth_headers: Callable[[], Awaitable[Mapping[str, str]]],
    ) -> None:
        """:param web: the network for brokers, which connects only to allowed addresses
        :param other: the network for other servers in the settings
        :param auth_headers: returns the headers with the proxy's credentials for brokers
        """
        self._loop = loop
        self._options = options
        self._brokers = brokers
        self._targets = targets
        self._web = web
        self._other = other
        self._auth_headers = auth_headers
        self._in_progress = 0

    def is_public(self, request: Request) -> bool:
        """Whether the request is for a file of a web page, which needs no authentication."""
        return (
            request.method in ("GET", "HEAD")
            and _PAGE_FILE.fullmatch(request.path) is not None
            and self._reverse(request.path) is None
        )

    def _reverse(self, path: str) -> ReverseProxy | None:
        return next((each for each in self._options.reverse if _is_below(path, each.path)), None)

    async def answer(self, request: Request, principal: Principal | None) -> Response | None:
        """Returns the response to a forwarded request; None: the path is not forwarded.

        :param principal: the principal of the client; None: clients do not authenticate, or the request needs
            no authentication
        """
        reverse = self._reverse(request.path)
        is_of_brokers = _is_of_page(request.path) or any(
            _is_below(request.path, path) for path in _BROKERS_PATHS
        )
        if reverse is None and not is_of_brokers:
            return None
        if _leaves_its_place(request.path):
            return error_response(HTTPStatus.BAD_REQUEST, "Paths with . or .. are not forwarded")
        if self._in_progress >= self._options.most:
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests are in progress")
        self._in_progress += 1
        made: Response | None = None
        try:
            if reverse is not None:
                url = reverse.proxy_to + request.target[len(reverse.path) :]
                made = await self._to_other(url, request)
            else:
                made = await self._to_brokers(request, principal)
            return made
        finally:
            if made is not None and isinstance(made.streamed, ArrivingEvents):
                made.streamed.seconds = self._options.seconds
                made.streamed.ended = self._ended
            else:
                self._ended()

    def _ended(self) -> None:
        self._in_progress -= 1

    async def _to_other(self, url: str, request: Request) -> Response:
        headers = [(name, value) for name, value in request.headers.items() if name not in _HOP_BY_HOP]
        try:
            return _passed_on(await self._exchanged(self._other, request, url, headers))
        except (NotAnswered, OSError, Timeout, TlsRefused) as error:
            return _not_reached(url, error)

    async def _to_brokers(self, request: Request, principal: Principal | None) -> Response:
        try:
            headers = await self._headers(request, principal)
        except ValueError as error:
            log.error("cannot use the credentials of the proxy", extra={"reason": str(error)})
            return error_response(HTTPStatus.BAD_GATEWAY, "The credentials of the proxy cannot be used")
        failure = error_response(HTTPStatus.SERVICE_UNAVAILABLE, "No broker is available")
        chosen = request.headers.get(BROKER_HEADER.lower(), "").strip()
        of_page = _is_of_page(request.path)
        places = self._places(request.path, chosen, of_page=of_page)
        if chosen and not places:
            return error_response(
                HTTPStatus.NOT_FOUND,
                f"The proxy knows no broker {chosen[:300]!r}: open the page without ?broker=, or set "
                "metadataStoreUrl, or list all brokers in brokerWebServiceURL",
            )
        for base in places:
            url = base + request.target
            try:
                answer = _passed_on(await self._followed(request, url, headers))
                asked = [(BROKER_HEADER, urlsplit(base).netloc)] if of_page else []
                return replace(answer, headers=[*answer.headers, *asked])
            except TargetDenied as denied:
                log.warning(
                    "request refused: its target is not an allowed broker", extra={"reason": str(denied)}
                )
                return error_response(
                    HTTPStatus.BAD_GATEWAY,
                    "The broker redirected to an address that is not a registered broker",
                )
            except ConnectionRefusedError as error:
                # The server did not get the request.
                failure = _not_reached(url, error)
            except (NotAnswered, OSError, Timeout, TlsRefused) as error:
                failure = _not_reached(url, error)
                if request.method not in ("GET", "HEAD"):
                    return failure
        return failure

    def _places(self, path: str, chosen: str, *, of_page: bool) -> Sequence[str]:
        """Returns the URLs to try in order.

        :param chosen: ``host:port`` of the broker that the page has chosen; empty: any broker
        :param of_page: whether the request belongs to a page, so that the order of brokers is always the same
        """
        functions = self._options.functions_url
        if functions and path.rstrip("/").split("/")[2:] and _is_of_functions(path):
            return [functions.rstrip("/")]
        brokers = brokers_of_page(self._brokers, chosen) if of_page or chosen else self._brokers.in_turn()
        found = [broker.web(tls=self._options.tls) for broker in brokers]
        return [url for url in found if url]

    async def _headers(self, request: Request, principal: Principal | None) -> list[tuple[str, str]]:
        """Returns the headers for a broker; only the proxy can set the original principal in them."""
        left_out = _HOP_BY_HOP | _CHECKED | {_ORIGINAL.lower()}
        if self.is_public(request):
            left_out |= _CREDENTIALS
        if principal is None or self._options.forward_credentials:
            # Unchanged: brokers authenticate the client itself.
            return [(name, value) for name, value in request.headers.items() if name not in left_out]
        kept = [
            (name, value) for name, value in request.headers.items() if name not in left_out | _CREDENTIALS
        ]
        return [*kept, *(await self._auth_headers()).items(), (_ORIGINAL, principal.role)]

    async def _followed(self, request: Request, url: str, headers: list[tuple[str, str]]) -> BrokerResponse:
        """Sends a request to a broker and follows redirects; returns the last response.

        :raises TargetDenied: a broker redirects to an address that is not a broker, or from https to http
        :raises NotAnswered: a broker does not answer, or there are too many redirects
        """
        for _ in range(_MAX_REDIRECTS):
            answer = await self._exchanged(self._web, request, url, headers)
            location = answer.header("location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            if answer.events is not None:
                answer.events.close()
            following = _joined(url, location)
            if not is_web_of(self._brokers, following):
                if self._brokers.complete:
                    raise TargetDenied(f"{following[:300]!r} is not a registered broker")
                self._targets.check_host(urlsplit(following).hostname or "")
            if url.startswith("https:") and not following.startswith("https:"):
                raise TargetDenied(f"{following[:300]!r}: the redirect leads from https to http")
            url = following
        raise NotAnswered("too many redirects")

    async def _exchanged(
        self, web: WebNetworks, request: Request, url: str, headers: list[tuple[str, str]]
    ) -> BrokerResponse:
        body = bytes(request.body)
        length = [("Content-Length", str(len(body)))] if body or request.method in ("PUT", "POST") else []
        asked = web.exchange(
            self._loop, request.method, url, [*headers, *length, ("Connection", "close")], body
        )
        return await within(self._loop, self._options.seconds, asked, f"asking {url}")


def _is_of_page(path: str) -> bool:
    """Whether a path belongs to a web page, all of whose requests must be answered by the same broker."""
    return path == "/" or any(_is_below(path, root) for root in _PAGE_PATHS)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _leaves_its_place(path: str) -> bool:
    """Whether another server may interpret a path as outside the permitted root.

    Some servers decode a path before they split it, and drop parts after a semicolon.
    """
    return any(piece.partition(";")[0] in (".", "..") for piece in unquote(path).split("/"))


def _joined(url: str, location: str) -> str:
    """Returns the URL to which a broker redirects a request for ``url``.

    :raises TargetDenied: the location is malformed
    """
    try:
        following = urljoin(url, location)
        if urlsplit(following).port == 0:
            raise TargetDenied(f"{location[:300]!r} is not a valid URL")
    except ValueError as error:
        raise TargetDenied(f"{location[:300]!r} is not a valid URL: {error}") from error
    return following


def _is_of_functions(path: str) -> bool:
    parts = path.split("/")
    names = parts[3:4] if parts[2:3] and parts[2] in ("v2", "v3") else parts[2:3]
    return bool(names) and names[0] in _FUNCTIONS


def _passed_on(answer: BrokerResponse) -> Response:
    headers = [(name, value) for name, value in answer.headers if name not in _OURS]
    kind = answer.header("content-type") or None
    if answer.events is not None:
        return Response(answer.status, content_type=kind, headers=headers, streamed=answer.events)
    made = Response(answer.status, answer.body, kind, headers)
    return replace(made, body=b"") if answer.status in (204, 304) else made


def _not_reached(url: str, error: Exception) -> Response:
    parts = urlsplit(url)
    log.warning(
        "cannot forward a request",
        extra={"to": f"{parts.scheme}://{parts.netloc}", "reason": str(error)},
    )
    status = HTTPStatus.GATEWAY_TIMEOUT if isinstance(error, Timeout) else HTTPStatus.BAD_GATEWAY
    return error_response(status, "The broker did not answer")


class Redirecting:
    """Redirects HTTP clients to an active broker (service discovery)."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def is_public(self, _request: Request) -> bool:
        return False

    async def answer(self, request: Request, principal: Principal | None) -> Response | None:
        """Redirects (307) to the brokers in turn; requests over TLS are redirected only to TLS addresses."""
        for broker in self._brokers.in_turn():
            url = broker.web(tls=request.secure)
            if url:
                return Response(
                    HTTPStatus.TEMPORARY_REDIRECT, headers=[("Location", f"{url}{request.target}")]
                )
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "No broker is available")
