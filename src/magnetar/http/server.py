"""The HTTP server: listens, routes, turns errors into answers, stops."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from magnetar.errors import BrokerError, NotSupported
from magnetar.http.connection import HttpConnection, HttpLimits
from magnetar.http.endpoints import ENDPOINTS
from magnetar.http.message import Request, Response, error_response, refusal
from magnetar.http.routing import Application, Found, Router
from magnetar.io.interfaces import Io, Listener

log = logging.getLogger("magnetar.http")


class HttpServer:
    """Serves the endpoint table for one broker, from the moment it is given one."""

    def __init__(self, io: Io, limits: HttpLimits | None = None) -> None:
        self.io = io
        self.limits = limits or HttpLimits()
        self._application: Application | None = None
        self._router = Router(ENDPOINTS)
        self._connections: set[HttpConnection] = set()
        self._listener: Listener | None = None
        self._stopping = False
        self._empty: Any = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before :meth:`start`."""
        return self._listener.port if self._listener is not None else 0

    async def start(self, host: str, port: int) -> None:
        """Begins to listen; port 0 takes a free one. Until :meth:`serve` all answers are 503.

        :raises OSError: the address cannot be used
        """
        self._listener = await self.io.network.listen(host, port, lambda: HttpConnection(self))

    def serve(self, application: Application) -> None:
        self._application = application

    async def stop(self, grace_seconds: float) -> None:
        """Takes no more requests and waits for those in progress, at most ``grace_seconds``."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._connections):
            connection.close_when_idle()
        if not self._connections:
            return
        self._empty = self.io.loop.create_future()
        expiry = self.io.loop.call_later(grace_seconds, self._grace_ended)
        await self._empty
        expiry.cancel()

    def _grace_ended(self) -> None:
        log.warning("requests were still in progress", extra={"connections": len(self._connections)})
        self._settle_empty()

    def _settle_empty(self) -> None:
        if self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def admit(self, connection: HttpConnection) -> bool:
        if self._stopping or len(self._connections) >= self.limits.connections:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._settle_empty()

    async def answer(self, request: Request) -> Response:
        """Finds the endpoint and runs it; never raises."""
        application = self._application
        if application is None:
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "The broker is starting")
        found = self._router.find(request.method, request.path)
        if not isinstance(found, Found):
            return _not_served(request, found)
        try:
            return await found.handler(application, _with_variables(request, found))
        except BrokerError as error:
            if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, NotSupported):
                log.warning("request failed", extra=_named(request), exc_info=error)
            return refusal(error)
        except Exception:
            log.exception("request failed by a defect", extra=_named(request))
            return error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, "An internal error; the log of the broker has the details"
            )


def _with_variables(request: Request, found: Found) -> Request:
    return Request(
        request.method, request.path, request.query, request.headers, request.body, found.variables
    )


def _not_served(request: Request, allowed: frozenset[str]) -> Response:
    if not allowed:
        return error_response(HTTPStatus.NOT_FOUND, f"Nothing is served at {request.path}")
    methods = ",".join(sorted(allowed | {"OPTIONS"} | ({"HEAD"} if "GET" in allowed else frozenset())))
    if request.method == "OPTIONS":
        return Response(HTTPStatus.NO_CONTENT, headers=[("Allow", methods)])
    reason = f"{request.method} is not served at {request.path}"
    return error_response(HTTPStatus.METHOD_NOT_ALLOWED, reason, [("Allow", methods)])


def _named(request: Request) -> dict[str, str]:
    return {"method": request.method, "path": request.path}
