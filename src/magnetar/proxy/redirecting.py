"""Service discovery over HTTP: whoever asks is sent to a broker that serves."""

from __future__ import annotations

from http import HTTPStatus

from magnetar.http.engine.message import Request, Response, error_response
from magnetar.proxy.brokers import Brokers
from magnetar.security.principal import Principal


class Redirecting:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def answer(self, request: Request, principal: Principal | None) -> Response | None:
        """307 to one broker after the other; who came over TLS is sent nowhere without."""
        for broker in self._brokers.in_turn():
            url = broker.web(tls=request.secure)
            if url:
                return Response(
                    HTTPStatus.TEMPORARY_REDIRECT, headers=[("Location", f"{url}{request.target}")]
                )
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "No broker is available")
