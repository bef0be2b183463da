"""The HTTP listener of a proxy, with its own endpoints and forwarded requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from magnetar.errors import BrokerError
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.listening import Listening, rotation
from magnetar.http.engine.message import (
    Request,
    Response,
    error_response,
    json_response,
    refusal,
    text_response,
)
from magnetar.http.engine.origins import Hosts, Origins, claim_of
from magnetar.io.interfaces import Io
from magnetar.lazy_dataclass import dataclass
from magnetar.proxy.service import ProxyService, exposition
from magnetar.security.authentication import Claim, Principal

log = logging.getLogger(__name__)

_DEFECT = "Internal error; see the log of the proxy"
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECOND = 1.0


@dataclass(frozen=True, slots=True)
class WebOptions:
    cluster: str = ""
    stats: bool = True
    """Whether to serve metrics and ``proxy-stats``."""
    authenticate_metrics: bool = True
    superusers: frozenset[str] = frozenset()
    requests_per_second: float = 0.0
    """Maximum number of requests per second from one client address; 0: no limit."""
    rotation_file: Callable[[], bool] | None = None
    """Returns whether the status file for load balancers exists; None if ``statusFilePath`` is empty."""


class Forwards(Protocol):
    """Handles requests that do not concern the proxy itself."""

    async def answer(self, request: Request, principal: Principal | None) -> Response | None:
        """Returns the response; None: the path is not served.

        :param principal: the principal of the client; None: clients do not authenticate
        """
        ...

    def is_public(self, request: Request) -> bool:
        """Whether the request needs no authentication."""
        ...


class WebServer(Listening):
    def __init__(
        self,
        io: Io,
        limits: HttpLimits,
        origins: Origins,
        hosts: Hosts | None,
        options: WebOptions,
        service: ProxyService,
        forwarding: Forwards,
    ) -> None:
        """:param hosts: accepted host names; None: any name"""
        super().__init__(io, limits)
        self._origins = origins
        self._hosts = hosts
        self._options = options
        self._service = service
        self._forwarding = forwarding
        self._asked: dict[str, int] = {}
        """Number of requests in the current second, by client address."""
        self._second = 0

    async def answer(self, request: Request) -> Response:
        """Answers a request; never raises."""
        try:
            return await self._answer(request)
        except BrokerError as error:
            return refusal(error)
        except Exception:
            log.exception(
                "request failed with an internal error",
                extra={"method": request.method, "path": request.path},
            )
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, _DEFECT)

    async def _answer(self, request: Request) -> Response:
        if self._is_too_often(request.peer.rpartition(":")[0]):
            return error_response(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests")
        refused = self._origins.refusal(request, request.local_port)
        if refused is not None:
            return error_response(HTTPStatus.FORBIDDEN, refused)
        path = request.path.rstrip("/")
        if path == "/status.html":
            return rotation(self._options.rotation_file, "proxy")
        refused = self._hosts.refusal(request) if self._hosts is not None else None
        if refused is not None:
            return error_response(HTTPStatus.FORBIDDEN, refused)
        open_metrics = path == "/metrics" and not self._options.authenticate_metrics
        is_open = open_metrics or self._forwarding.is_public(request)
        principal = None if is_open else await self._who_asks(request)
        if self._options.stats and path == "/metrics":
            return self._metrics()
        if self._options.stats and (path == "/proxy-stats" or path.startswith("/proxy-stats/")):
            return self._stats(path.removeprefix("/proxy-stats"), request.method, principal)
        forwarded = await self._forwarding.answer(request, principal)
        if forwarded is not None:
            self._service.figures.http_requests += 1
            return forwarded
        return error_response(HTTPStatus.NOT_FOUND, f"No such path: {request.path}")

    async def _who_asks(self, request: Request) -> Principal | None:
        """Returns the principal of the client; None: clients do not authenticate.

        :raises BrokerError: authentication failed
        """
        authenticator = self._service.authenticator
        if not authenticator.asks:
            return None
        # Clients of a proxy cannot act for other roles.
        return await authenticator.authenticate(Claim(claim_of(request).credentials))

    def _is_too_often(self, host: str) -> bool:
        most = self._options.requests_per_second
        if not most:
            return False
        second = int(self.io.clock.monotonic() / _SECOND)
        if second != self._second:
            self._second = second
            self._asked.clear()
        self._asked[host] = self._asked.get(host, 0) + 1
        return self._asked[host] > most

    def _metrics(self) -> Response:
        service = self._service
        pieces = sum(tunnel.pieces for tunnel in service.tunnels)
        moved = sum(tunnel.moved for tunnel in service.tunnels)
        text = exposition(service.figures, pieces, moved, self._options.cluster)
        return text_response(text, content_type=_METRICS_TYPE)

    def _stats(self, path: str, method: str, principal: Principal | None) -> Response:
        if principal is not None and principal.role not in self._options.superusers:
            return error_response(HTTPStatus.UNAUTHORIZED, "Client is not authorized to perform operation")
        if method not in ("GET", "HEAD"):
            return error_response(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "The proxy does not parse messages: only logging levels 0 to 2 of Pulsar exist",
            )
        if path == "/connections":
            return json_response(
                [
                    {
                        "requestRate": each.piece_rate,
                        "byteRate": each.byte_rate,
                        "clientAddress": each.client,
                        "brokerAddress": each.broker,
                    }
                    for each in self._service.tunnels.values()
                ]
            )
        if path == "/topics":
            return error_response(HTTPStatus.PRECONDITION_FAILED, "Proxy doesn't have logging level 2")
        if path == "/logging":
            return json_response(0)
        return error_response(HTTPStatus.NOT_FOUND, "No such path")
