"""A wire between two processes that a test can cut, in the ways networks fail, or make slow."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Any

_PIECE = 65536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: to close is to reset."""
_IN_FLIGHT = 64
"""Pieces that a slow wire holds for each direction of a connection."""


class Direction(Enum):
    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


BOTH = (Direction.TO_SERVER, Direction.TO_CLIENT)


class TcpProxy:
    """Listens at a free port of 127.0.0.1 and passes on to another one. All wires share one thread."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._loop = _loop()
        self._server: asyncio.Server | None = None
        self._flowing: dict[Direction, asyncio.Event] = {}
        self._delay = 0.0
        self._rate = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._run(self._open)

    @property
    def connections(self) -> int:
        return len(self._writers) // 2

    def stall(self, *directions: Direction) -> None:
        """Nothing arrives any more, and nobody is told; both directions unless one is named.

        What is sent meanwhile arrives when the wire is whole again, as TCP sends it again.
        """

        async def work() -> None:
            for direction in directions or BOTH:
                self._flowing[direction].clear()

        self._run(work)

    def refuse(self) -> None:
        """Connections are reset, and nobody listens."""

        async def work() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            self._reset_all()

        self._run(work)

    def reset(self) -> None:
        """Connections are reset; others can be made at once."""

        async def work() -> None:
            self._reset_all()

        self._run(work)

    def slow(self, delay_seconds: float, bytes_per_second: float = 0.0) -> None:
        """:param bytes_per_second: of each direction of a connection; 0: any number"""

        async def work() -> None:
            self._delay, self._rate = delay_seconds, bytes_per_second

        self._run(work)

    def heal(self) -> None:
        async def work() -> None:
            self._delay = self._rate = 0.0
            for each in self._flowing.values():
                each.set()
            if self._server is None:
                await self._open()

        self._run(work)

    def close(self) -> None:
        async def work() -> None:
            if self._server is not None:
                self._server.close()
            self._reset_all()
            serving = list(self._serving)
            for each in serving:
                each.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

        self._run(work)

    def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        async def done() -> None:
            await work()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(30)

    async def _open(self) -> None:
        if not self._flowing:
            self._flowing = {direction: asyncio.Event() for direction in BOTH}
            for each in self._flowing.values():
                each.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            connection = writer.get_extra_info("socket")
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        mine = {to_client}
        self._writers.add(to_client)
        try:
            await self._flowing[Direction.TO_SERVER].wait()
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
            mine.add(to_server)
            self._writers.add(to_server)
            ways = [
                asyncio.ensure_future(self._pass_on(Direction.TO_SERVER, from_client, to_server)),
                asyncio.ensure_future(self._pass_on(Direction.TO_CLIENT, from_server, to_client)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            # Nobody listens: the client is told by what follows.
            pass
        finally:
            for writer in mine:
                writer.transport.abort()
            self._writers -= mine
            self._serving.discard(task)

    async def _pass_on(
        self, direction: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        """Until one side has ended."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)
        arriving = asyncio.ensure_future(self._deliver(direction, pieces, sink))
        try:
            while True:
                await self._flowing[direction].wait()
                piece = await source.read(_PIECE)
                await self._flowing[direction].wait()
                await pieces.put((self._loop.time() + self._delay, piece))
                if not piece:
                    await arriving
                    return
        except OSError:
            # It was reset: so is the other side, by whoever waits for this.
            return
        finally:
            arriving.cancel()
            await asyncio.gather(arriving, return_exceptions=True)

    async def _deliver(
        self,
        direction: Direction,
        pieces: asyncio.Queue[tuple[float, bytes]],
        sink: asyncio.StreamWriter,
    ) -> None:
        while True:
            at, piece = await pieces.get()
            await asyncio.sleep(at - self._loop.time())
            if self._rate:
                await asyncio.sleep(len(piece) / self._rate)
            await self._flowing[direction].wait()
            if not piece:
                return
            sink.write(piece)
            await sink.drain()


_loops: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    """Runs in a thread of its own."""
    if not _loops:
        loop: Any = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="wires", daemon=True).start()
        _loops.append(loop)
    return _loops[0]
