"""The WebSocket service of a broker's process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.upkeep.revocation import Revocation
from magnetar.config.settings import Settings
from magnetar.errors import ServiceNotReady
from magnetar.io.real import real_client_io
from magnetar.server.process_settings import ServingSettings

if TYPE_CHECKING:
    from magnetar.http.engine.websocket import WebSocketLimits
    from magnetar.http.websocket.service import WebSocketService


def limits_of(settings: ServingSettings) -> WebSocketLimits:
    from magnetar.http.engine.websocket import WebSocketLimits

    return WebSocketLimits(
        message_bytes=settings.web_socket_max_text_frame_size,
        idle_seconds=settings.web_socket_session_idle_timeout_millis / 1000,
        ping_seconds=max(0, settings.web_socket_ping_duration_seconds),
    )


class WebSockets:
    """Creates the WebSocket service at the first connection, because most brokers never get such a
    connection.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        addresses: Callable[[], Addresses],
        revocation: Revocation,
    ) -> None:
        """:param addresses: returns the broker's own addresses
        :param revocation: closes WebSockets whose users have lost their permissions, or whose credentials are
            no longer valid
        """
        self._loop = loop
        self._settings = settings
        self._addresses = addresses
        self._revocation = revocation
        self._made: WebSocketService | None = None
        self._closed = False

    async def service(self) -> WebSocketService:
        """Returns the WebSocket service, which the first call creates.

        :raises ServiceNotReady: the broker is stopping
        """
        if self._made is None:
            # Importing the modules takes 0.1 s, in which the loop serves other clients.
            await asyncio.to_thread(_import)
            if self._closed:
                raise ServiceNotReady("The broker is stopping")
            if self._made is None:
                self._made = self._make()
                self._revocation.watch(self._made.users)
        return self._made

    def _make(self) -> WebSocketService:
        from magnetar.http.websocket.service import WebSocketService
        from magnetar.server.broker_client import own_client

        settings, io = self._settings, real_client_io(self._loop)
        return WebSocketService(
            io,
            lambda: own_client(io, settings, self._addresses()),
            limits_of(settings),
            settings.replicator_prefix,
        )

    async def close(self) -> None:
        self._closed = True
        if self._made is not None:
            await self._made.close()


def _import() -> None:
    """Imports the modules that :meth:`WebSockets.service` uses."""
    import_module("magnetar.http.websocket.service")
    import_module("magnetar.server.broker_client")
