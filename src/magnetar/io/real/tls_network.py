"""TLS through the event loop: a network like the plain one, whose connections begin with a handshake."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import StreamProtocol, Transport
from magnetar.io.real.network import TcpListener, TcpNetwork
from magnetar.io.tls import HANDSHAKE_SECONDS

log = logging.getLogger(__name__)

MakeContext = Callable[[], ssl.SSLContext]
_MAX_HANDSHAKES = 1_024
_MAX_HANDSHAKES_OF_ADDRESS = 128


class Handshakes:
    """Those in progress: how many there may be, of all and of one address."""

    def __init__(
        self, most: int = _MAX_HANDSHAKES, most_of_address: int = _MAX_HANDSHAKES_OF_ADDRESS
    ) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._of: dict[str, int] = {}
        self.count = 0

    def began(self, host: str) -> bool:
        """False: there are too many."""
        of_address = self._of.get(host, 0)
        if self.count >= self._most or of_address >= self._most_of_address:
            return False
        self.count += 1
        self._of[host] = of_address + 1
        return True

    def ended(self, host: str) -> None:
        self.count -= 1
        self._of[host] -= 1
        if not self._of[host]:
            del self._of[host]


class TlsServerNetwork:
    """Listens for TLS; what it makes of a context counts for connections from then on."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: MakeContext,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        handshakes: Handshakes | None = None,
    ) -> None:
        """:param context: asked for each connection

        :param handshake_seconds: a client that takes longer is dropped
        """
        self._loop = loop
        self._tcp = TcpNetwork(loop)
        self._context = context
        self._seconds = handshake_seconds
        self._handshakes = handshakes or Handshakes()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> TcpListener:
        """See :class:`magnetar.io.interfaces.Network`."""
        return await self._tcp.listen(host, port, lambda: _Greeter(self, factory))

    def greet(self, transport: Any, factory: Callable[[], StreamProtocol]) -> None:
        """A client has come; nothing of it is read until the handshake begins."""
        transport.pause_reading()
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if peer else ""
        if not self._handshakes.began(host):
            transport.abort()
            return
        task = self._loop.create_task(self._shake_hands(transport, host, factory))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, transport: Any, host: str, factory: Callable[[], StreamProtocol]) -> None:
        early = _Early()
        try:
            secured = await self._loop.start_tls(
                transport,
                early,
                self._context(),
                server_side=True,
                ssl_handshake_timeout=self._seconds,
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError) as error:
            log.debug("no TLS with a client", extra={"peer": host, "reason": str(error)})
            transport.abort()
            return
        finally:
            self._handshakes.ended(host)
        if secured is None or early.lost:
            transport.abort()
            return
        early.hand_over(secured, factory())


class _Greeter(asyncio.Protocol):
    """Of a connection that has only just come."""

    def __init__(self, network: TlsServerNetwork, factory: Callable[[], StreamProtocol]) -> None:
        self._network = network
        self._factory = factory

    def connection_made(self, transport: Any) -> None:
        self._network.greet(transport, self._factory)


class _Early(asyncio.Protocol):
    """Keeps what a client sends right behind the handshake, for whoever is to read it."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._ended = False
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self._data.append(data)

    def eof_received(self) -> bool:
        self._ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def hand_over(self, transport: Any, protocol: StreamProtocol) -> None:
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        for data in self._data:
            if not transport.is_closing():
                protocol.data_received(data)
        if self._ended:
            protocol.eof_received()


class TlsClientNetwork:
    """Connects with TLS."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: MakeContext,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        """:param context: asked for each connection, on another thread: it may read files"""
        self._loop = loop
        self._context = context
        self._seconds = handshake_seconds

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """See :class:`magnetar.io.interfaces.Network`.

        :raises OSError: nobody answers there, or its certificate is not what is wanted (``ssl.SSLError``)
        :raises TlsRefused: the context's files cannot be used
        """
        made: Callable[[], Any] = factory
        context = await self._loop.run_in_executor(None, self._context)
        return await self._loop.create_connection(
            made,
            host,
            port,
            ssl=context,
            server_hostname=host,
            ssl_handshake_timeout=self._seconds,
        )
