"""TCP through the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from magnetar.io.interfaces import StreamProtocol, Transport

BACKLOG = 1024


@contextmanager
def looking_up(host: str) -> Iterator[None]:
    """A context manager that converts the error for a malformed host name, such as ``a..b``, to a
    ``gaierror``.

    :raises socket.gaierror: the name is malformed or has a label of more than 63 letters, so no host can have
        this name
    """
    try:
        yield
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, f"{host[:300]!r} is not a host name") from error


def of_asyncio(factory: Callable[[], StreamProtocol]) -> Callable[[], Any]:
    """Returns ``factory`` unchanged, with the static type that asyncio's own classes require."""
    return factory


class TcpListener:
    def __init__(self, server: asyncio.Server, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._server = server

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> TcpListener:
        server = await self._loop.create_server(
            of_asyncio(factory), host, port, backlog=BACKLOG, reuse_address=True
        )
        address = server.sockets[0].getsockname()
        return TcpListener(server, address[0], address[1])

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        with looking_up(host):
            return await self._loop.create_connection(of_asyncio(factory), host, port)
