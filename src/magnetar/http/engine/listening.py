"""The common part of HTTP servers: listeners, connections, and a clean stop."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus

from magnetar.http.engine.bodies import Bodies
from magnetar.http.engine.connection import HttpConnection, HttpLimits
from magnetar.http.engine.message import Request, Response, error_response, text_response
from magnetar.io.interfaces import Future, Io, Listener, ListeningNetwork

log = logging.getLogger("magnetar.http")


class Listening(ABC):
    """Base class of HTTP servers, which own connections; see
    :class:`magnetar.http.engine.connection.Owner`.
    """

    def __init__(self, io: Io, limits: HttpLimits | None = None) -> None:
        self.io = io
        self.limits = limits or HttpLimits()
        self.bodies = Bodies(self.limits.bodies_bytes)
        self._connections: dict[HttpConnection, str] = {}
        """The connections, with the addresses of their clients."""
        self._of_address: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._stopping = False
        self._empty: Future[None] | None = None

    @property
    def port(self) -> int:
        """The port of the first listener; 0 before :meth:`start`."""
        return self._listeners[0].port if self._listeners else 0

    async def start(self, host: str, port: int, network: ListeningNetwork | None = None) -> int:
        """Starts listening on one more address; port 0 means any free port.

        :param network: the network to listen on, for TLS; None: a listener without TLS
        :returns: the port, also if ``port`` is 0
        :raises OSError: the address cannot be used
        """
        through: ListeningNetwork = network or self.io.network
        listener = await through.listen(host, port, lambda: HttpConnection(self))
        self._listeners.append(listener)
        return listener.port

    async def stop(self, grace_seconds: float) -> None:
        """Accepts no more requests, and waits at most ``grace_seconds`` for requests in progress."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self._connections):
            connection.close_when_idle()
        if self._connections:
            self._empty = self.io.loop.create_future()
            expiry = self.io.loop.call_later(grace_seconds, self._grace_ended)
            await self._empty
            expiry.cancel()

    def _grace_ended(self) -> None:
        log.warning(
            "closing connections with requests in progress", extra={"connections": len(self._connections)}
        )
        self._settle_empty()

    def _settle_empty(self) -> None:
        if self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def admit(self, connection: HttpConnection) -> bool:
        if self._stopping or len(self._connections) >= self.limits.connections:
            return False
        host = connection.host
        of_address = self._of_address.get(host, 0)
        if 0 < self.limits.connections_of_address <= of_address:
            return False
        self._connections[connection] = host
        self._of_address[host] = of_address + 1
        return True

    def forget(self, connection: HttpConnection) -> None:
        host = self._connections.pop(connection, None)
        if host is None:
            return
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]
        if not self._connections:
            self._settle_empty()

    def reads_as_it_comes(self, method: str, path: str) -> bool:
        """Returns whether the endpoint reads request bodies while they arrive. Here always False; servers
        with such endpoints override this method.
        """
        return False

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """Answers a request; never raises."""
        ...


def rotation(is_there: Callable[[], bool] | None, name: str) -> Response:
    """Returns the response for load balancers that ask whether to use a process (``statusFilePath``): 200
    while the file exists.

    :param is_there: returns whether the file exists; None: the setting ``statusFilePath`` is empty
    :param name: the kind of process, such as ``broker``, for the error text
    """
    if is_there is not None and is_there():
        return text_response("OK", content_type="text/plain")
    return error_response(HTTPStatus.NOT_FOUND, f"This {name} is not in rotation")
