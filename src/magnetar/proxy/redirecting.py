"""Service discovery over HTTP: redirects clients to an active broker."""

from __future__ import annotations

from http import HTTPStatus

from magnetar.http.engine.message import Request, Response, error_response
from magnetar.proxy.brokers import Brokers
from magnetar.security.principal import Principal


class Redirecting:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def answer(self, request: Request, principal: Principal | None) -> Response | None:
        """Redirects (307) to the brokers in turn; requests over TLS are only redirected to TLS addresses."""
        for broker in self._brokers.in_turn():
            url = broker.web(tls=request.secure)
            if url:
                return Response(
                    HTTPStatus.TEMPORARY_REDIRECT, headers=[("Location", f"{url}{request.target}")]
                )
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "No broker is available")
