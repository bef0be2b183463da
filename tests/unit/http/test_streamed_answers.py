"""Answers that come about while they are sent: to those who go, who are slow, who stay to the end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from polling import until_true
from test_http_connection import LIMITS, connect, one_answer

from magnetar.http.engine.connection import HttpConnection
from magnetar.http.engine.message import Request, Response
from magnetar.http.server import HttpServer
from magnetar.io.real import real_io


class Stream:
    """Gives what it is told to."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[bytes] = asyncio.Queue()
        self.taken = 0
        self.closed = 0
        self.error: Exception | None = None

    async def next(self) -> bytes:
        if self.error is not None:
            raise self.error
        piece = await self.given.get()
        self.taken += 1
        return piece

    def close(self) -> None:
        self.closed += 1
        self.given.put_nowait(b"")


class Streams(HttpServer):
    """Answers everything with one stream."""

    stream: Stream

    async def answer(self, request: Request) -> Response:
        return Response(200, content_type="text/plain", streamed=self.stream)


def serve(test: Any) -> None:
    async def run() -> None:
        server = Streams(real_io(asyncio.get_running_loop(), "/"), LIMITS)
        server.stream = Stream()
        await server.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(test(server, server.stream), 20)
        finally:
            await server.stop(1.0)

    asyncio.run(run())


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def test_pieces_are_sent_as_they_come_and_the_connection_goes_on() -> None:
    async def test(server: Streams, stream: Stream) -> None:
        reader, writer = await connect(server)
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Transfer-Encoding: chunked" in head
        for piece in (b"one", b"two"):
            stream.given.put_nowait(piece)
            assert await reader.readuntil(piece) is not None
        stream.given.put_nowait(b"")
        await reader.readuntil(b"0\r\n\r\n")
        await until_true(lambda: stream.closed == 1, seconds=15)
        stream.given = asyncio.Queue()
        writer.write(GET)
        stream.given.put_nowait(b"three")
        stream.given.put_nowait(b"")
        assert (await one_answer(reader))[2] == b"three"
        writer.close()

    serve(test)


def test_who_is_gone_costs_nothing_more() -> None:
    async def test(server: Streams, stream: Stream) -> None:
        _reader, writer = await connect(server)
        writer.write(GET)
        await until_true(lambda: stream.given.empty() and len(server._connections) == 1, seconds=15)
        writer.transport.abort()

        def gone() -> bool:
            stream.given.put_nowait(b"are you there?")
            return stream.closed > 0

        await until_true(gone, seconds=15)
        await until_true(lambda: not server._connections, seconds=15)

    serve(test)


def test_for_who_takes_nothing_nothing_is_made() -> None:
    async def test(server: Streams, stream: Stream) -> None:
        reader, writer = await connect(server)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(300):
            stream.given.put_nowait(bytes(100_000))
        before = -1
        while stream.taken != before:
            before = stream.taken
            await asyncio.sleep(0.2)
        # What the machine buffers for both sides, and no more.
        assert 0 < stream.taken < 150
        writer.transport.abort()
        await until_true(lambda: stream.closed > 0, seconds=15)

    serve(test)


def test_a_server_that_stops_ends_them() -> None:
    async def test(server: Streams, stream: Stream) -> None:
        reader, writer = await connect(server)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.wait_for(server.stop(15.0), 5)
        assert await reader.read() == b"0\r\n\r\n"
        writer.close()

    serve(test)


def test_one_that_fails_is_not_whole(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: Streams, stream: Stream) -> None:
        reader, writer = await connect(server)
        stream.error = RuntimeError("a defect")
        writer.write(GET)
        with contextlib.suppress(ConnectionError):
            assert not (await reader.read()).endswith(b"0\r\n\r\n")
        await until_true(lambda: stream.closed == 1, seconds=15)
        writer.close()

    serve(test)
    assert [record.message for record in caplog.records] == [
        "sending the response failed with an internal error"
    ]


def test_head_has_no_stream() -> None:
    async def test(server: Streams, stream: Stream) -> None:
        reader, writer = await connect(server)
        writer.write(GET.replace(b"GET", b"HEAD"))
        await reader.readuntil(b"\r\n\r\n")
        await until_true(lambda: stream.closed == 1, seconds=15)
        assert stream.taken == 0
        writer.close()

    serve(test)


def test_one_that_is_never_sent_is_told() -> None:
    """The client went while the answer was made."""

    async def test(server: Streams, stream: Stream) -> None:
        connection = HttpConnection(server)
        await connection._answer(Request("GET", "/"))
        assert stream.closed == 1

    serve(test)


class ReadyPieces(Stream):
    """Has all its pieces ready: nothing makes the loop wait between them."""

    def __init__(self, turns: list[int]) -> None:
        super().__init__()
        self._turns = turns
        self.seen: set[int] = set()
        """How many turns others had had when a piece was taken."""

    async def next(self) -> bytes:
        self.taken += 1
        self.seen.add(self._turns[0])
        return b"x" if self.taken <= 50_000 else b""


def test_others_get_turns_while_pieces_are_ready() -> None:
    async def test(server: Streams, _stream: Stream) -> None:
        turns = [0]

        async def count() -> None:
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        server.stream = pieces = ReadyPieces(turns)
        counting = asyncio.create_task(count())
        reader, writer = await connect(server)
        writer.write(GET)
        received = b""
        while not received.endswith(b"\r\n0\r\n\r\n"):
            received = received[-7:] + await reader.read(65536)
        counting.cancel()
        assert pieces.taken == 50_001
        assert len(pieces.seen) > 10

    serve(test)
