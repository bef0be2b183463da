"""An HTTP server with WebSocket endpoints only, for a process without a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.http.endpoint_server import EndpointServer
from magnetar.http.endpoints.websocket import WEBSOCKET
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.listening import rotation
from magnetar.http.engine.message import Request, Response
from magnetar.http.engine.origins import Hosts, Origins
from magnetar.http.routing import Access, WebSocketEndpoint
from magnetar.http.websocket.service import WebSocketService
from magnetar.io.interfaces import Io
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Process:
    websockets: Callable[[], Awaitable[WebSocketService]]


@dataclass(frozen=True, slots=True)
class _Application:
    process: _Process
    access: Access


class WebSocketServer(EndpointServer[WebSocketEndpoint]):
    def __init__(
        self,
        io: Io,
        service: WebSocketService,
        access: Access,
        limits: HttpLimits,
        origins: Origins,
        hosts: Hosts,
        rotation_file: Callable[[], bool] | None,
    ) -> None:
        """:param rotation_file: returns whether the status file for load balancers exists; None: the setting
        ``statusFilePath`` is empty
        """
        super().__init__(io, WEBSOCKET, limits, origins, hosts)

        async def served() -> WebSocketService:
            return service

        self._application = _Application(_Process(served), access)
        self._access = access
        self._rotation_file = rotation_file

    async def answer(self, request: Request) -> Response:
        if request.path == "/status.html":
            return rotation(self._rotation_file, "WebSocket service")
        return await super().answer(request)

    async def _carry_out(self, endpoint: WebSocketEndpoint, request: Request) -> Response:
        return await endpoint.handler(self._application, request)
