"""Connections to host names from untrusted sources: their addresses are checked before connecting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import StreamProtocol, Transport
from magnetar.io.real.network import looking_up
from magnetar.io.real.tls_network import MakeContext
from magnetar.io.tls import HANDSHAKE_SECONDS


class AddressDenied(OSError):
    """The name has no address that connections may go to."""


class CheckedNetwork:
    """See :class:`magnetar.io.interfaces.ConnectingNetwork`; it connects to allowed addresses only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        allows: Callable[[str], bool],
        context: MakeContext | None = None,
    ) -> None:
        """:param allows: whether a connection may go to an address

        :param context: makes a TLS context for each connection, on another thread; None: no TLS
        """
        self._loop = loop
        self._allows = allows
        self._context = context

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """Tries the addresses of a name in their order.

        :raises AddressDenied: none of them is allowed
        :raises OSError: none of them answers
        :raises TlsRefused: the files for TLS cannot be used
        """
        made: Callable[[], Any] = factory
        context = None if self._context is None else await self._loop.run_in_executor(None, self._context)
        with looking_up(host):
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = dict.fromkeys(str(address[0]) for *_, address in found)
        allowed = [address for address in addresses if self._allows(address)]
        if not allowed:
            raise AddressDenied(f"{host} is {', '.join(addresses)}: not allowed")
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
