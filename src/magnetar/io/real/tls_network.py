"""TLS through the event loop: a network like the plain one, except that connections begin with a
handshake."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from magnetar.io.interfaces import StreamProtocol, Transport
from magnetar.io.real.network import BACKLOG, looking_up, of_asyncio
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.tls import HANDSHAKE_SECONDS

log = logging.getLogger(__name__)
MakeContext = Callable[[], ssl.SSLContext]
_MAX_HANDSHAKES = 1_024
_MAX_HANDSHAKES_OF_ADDRESS = 128
_AT_ONCE = 64
_AGAIN_SECONDS = 1.0


class Handshakes:
    """The handshakes in progress, with a limit for all and a limit for one address."""

    def __init__(
        self, most: int = _MAX_HANDSHAKES, most_of_address: int = _MAX_HANDSHAKES_OF_ADDRESS
    ) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._of: dict[str, int] = {}
        self.count = 0

    def began(self, host: str) -> bool:
        """Counts a handshake with the address ``host``; returns False, without counting it, if a limit is
        reached."""
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


class TlsListener:
    """A listener that accepts connections itself, so that TLS gets their first byte.

    The loop's own server would pass on a connection that is already being read, and the client's first bytes
    would occasionally be lost. That server would also use one TLS context for all connections, and the
    context could not be replaced.
    """

    def __init__(self, sockets: Sequence[socket.socket], accepted: Callable[[socket.socket], object]) -> None:
        """:param sockets: listening sockets, at least one
        :param accepted: called with each connection, which is non-blocking
        """
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._accepted = accepted
        self._closed = False
        self.host, self.port = sockets[0].getsockname()[:2]
        for each in sockets:
            self._listen_to(each)

    def _listen_to(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections; trying again", extra={"reason": str(error)})
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(_AGAIN_SECONDS, self._listen_to, listening)
                return
            connection.setblocking(False)
            self._accepted(connection)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
            each.close()


class TlsServerNetwork:
    """A network for TLS servers; it calls ``context`` for each connection, so that a new context applies at
    once.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: MakeContext,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        handshakes: Handshakes | None = None,
    ) -> None:
        """:param context: makes the context of each connection
        :param handshake_seconds: the maximum duration of a handshake; a slower client is disconnected
        """
        self._loop = loop
        self._context = context
        self._seconds = handshake_seconds
        self._handshakes = handshakes or Handshakes()
        self._tasks = TaskScope(loop, "TLS connections", owner_goes_on)

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> TlsListener:
        """Listens on an address; see :class:`magnetar.io.interfaces.Network`."""
        return TlsListener(
            await _listening(self._loop, host, port), lambda connection: self._greet(connection, factory)
        )

    def _greet(self, connection: socket.socket, factory: Callable[[], StreamProtocol]) -> None:
        try:
            host = str(connection.getpeername()[0])
        except OSError:
            # The client has left already.
            connection.close()
            return
        if not self._handshakes.began(host):
            connection.close()
            return
        self._tasks.start(self._shake_hands(connection, host, factory), "a handshake")

    async def _shake_hands(
        self, connection: socket.socket, host: str, factory: Callable[[], StreamProtocol]
    ) -> None:
        made = of_asyncio(factory)
        try:
            await self._loop.connect_accepted_socket(
                made, connection, ssl=self._context(), ssl_handshake_timeout=self._seconds
            )
        except (OSError, asyncio.CancelledError) as error:
            log.debug("TLS handshake with a client failed", extra={"peer": host, "reason": str(error)})
            connection.close()
        finally:
            self._handshakes.ended(host)


async def _listening(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Opens a listening socket for each address of ``host``, all on one port.

    :raises OSError: an address cannot be used
    """
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            listening = socket.socket(family, socket.SOCK_STREAM)
            made.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address[0], made[0].getsockname()[1] or port, *address[2:]))
            listening.listen(BACKLOG)
            listening.setblocking(False)
    except BaseException:
        for each in made:
            each.close()
        raise
    return made


class Upgrade(NamedTuple):
    """The procedure by which a client requests TLS on a connection that begins in plain text."""

    question: bytes
    """The bytes that the client sends first."""
    answer_bytes: Callable[[bytes], int]
    """Returns the length of the complete answer, given its first bytes.

    If these bytes do not contain the length, returns a number greater than the number of these bytes.
    """
    refused: Callable[[bytes], str]
    """Returns, from the complete answer, the reason why the server refuses TLS; empty if it accepts TLS."""


class UpgradingNetwork:
    """A network for clients that connects in plain text, requests TLS, and sends everything else
    encrypted."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: MakeContext,
        upgrade: Upgrade,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        """:param context: makes the context of each connection; called on another thread, so it may read
        files"""
        self._loop = loop
        self._context = context
        self._upgrade = upgrade
        self._seconds = handshake_seconds

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """Connects; see :class:`magnetar.io.interfaces.Network`.

        :raises OSError: the address does not answer or does not offer TLS, or its certificate is not accepted
        :raises TlsRefused: the context's files cannot be used
        """
        made = of_asyncio(factory)
        context = await self._loop.run_in_executor(None, self._context)
        connection = await self._asked(host, port)
        try:
            return await self._loop.create_connection(
                made, sock=connection, ssl=context, server_hostname=host, ssl_handshake_timeout=self._seconds
            )
        except BaseException:
            connection.close()
            raise

    async def _asked(self, host: str, port: int) -> socket.socket:
        """Connects and requests TLS; returns the connection when the peer is ready for the handshake."""
        loop = self._loop
        with looking_up(host):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, number, _, address = found[0]
        connection = socket.socket(family, kind, number)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_sendall(connection, self._upgrade.question)
            answer = b""
            while (missing := self._upgrade.answer_bytes(answer) - len(answer)) > 0:
                # Not a byte more than the answer: what follows belongs to the handshake.
                data = await loop.sock_recv(connection, missing)
                if not data:
                    raise ConnectionResetError(f"{host}:{port} closed the connection when TLS was requested")
                answer += data
            if reason := self._upgrade.refused(answer):
                raise ConnectionRefusedError(f"{host}:{port}: {reason}")
        except BaseException:
            connection.close()
            raise
        return connection


class TlsClientNetwork:
    """A network for clients that connects with TLS."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: MakeContext,
        *,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        proxy: tuple[str, int] | None = None,
    ) -> None:
        """:param context: makes the context of each connection; called on another thread, so it may read
            files
        :param proxy: the host and port of a proxy for all connections; the handshake names the requested host
        """
        self._loop = loop
        self._context = context
        self._seconds = handshake_seconds
        self._proxy = proxy

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """Connects; see :class:`magnetar.io.interfaces.Network`.

        :raises OSError: the address does not answer, or its certificate is not accepted (``ssl.SSLError``)
        :raises TlsRefused: the context's files cannot be used
        """
        if self._proxy is not None and _is_address(host):
            raise OSError(
                f"a proxy needs host names of brokers, not addresses such as {host}: "
                "let brokers advertise names"
            )
        made = of_asyncio(factory)
        through = self._proxy or (host, port)
        context = await self._loop.run_in_executor(None, self._context)
        with looking_up(through[0]):
            return await self._loop.create_connection(
                made,
                *through,
                ssl=context,
                server_hostname=host,
                ssl_handshake_timeout=self._seconds,
            )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class AddressDenied(OSError):
    """The name has no address to which connections are allowed."""


class CheckedNetwork:
    """A :class:`magnetar.io.interfaces.ConnectingNetwork` that connects to allowed addresses only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        allows: Callable[[str], bool],
        context: MakeContext | None = None,
    ) -> None:
        """:param allows: returns whether connections to an address are allowed
        :param context: makes a TLS context for each connection, on another thread; None: no TLS
        """
        self._loop = loop
        self._allows = allows
        self._context = context

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """Connects to the first address of the name ``host`` that is allowed and answers.

        :raises AddressDenied: none of the addresses is allowed
        :raises OSError: none of the addresses answers
        :raises TlsRefused: the files for TLS cannot be used
        """
        made = of_asyncio(factory)
        context = None if self._context is None else await self._loop.run_in_executor(None, self._context)
        with looking_up(host):
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = dict.fromkeys(str(address[0]) for *_, address in found)
        allowed = [address for address in addresses if self._allows(address)]
        if not allowed:
            raise AddressDenied(
                f"{host} has the addresses {', '.join(addresses)}, to which connections are not allowed"
            )
        failure: OSError = AddressDenied(host)
        for address in allowed:
            try:
                if context is None:
                    return await self._loop.create_connection(made, address, port)
                return await self._loop.create_connection(
                    made,
                    address,
                    port,
                    ssl=context,
                    server_hostname=host,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                )
            except OSError as error:
                failure = error
        raise failure
