"""Bodies that are read as they come: slowly, not at all, cut short, and after an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from polling import until_true
from test_http_connection import LIMITS, connect, one_answer

from magnetar.errors import InvalidRequest
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.listening import Listening
from magnetar.http.engine.message import Request, Response
from magnetar.io.real import real_io

PIECE = b"x" * 65536


class Reads(Listening):
    """Counts what comes to ``/taken``; answers ``/refused`` at once; waits at ``/slow`` until it is let."""

    def __init__(self, limits: HttpLimits) -> None:
        super().__init__(real_io(asyncio.get_running_loop(), "/"), limits)
        self.let = asyncio.Event()
        self.taken = 0
        self.failure = ""

    def reads_as_it_comes(self, method: str, path: str) -> bool:
        return method == "POST"

    async def answer(self, request: Request) -> Response:
        if request.arriving is None or request.path == "/refused":
            return Response(409 if request.arriving else 200, b"told")
        if request.path == "/slow":
            await self.let.wait()
        try:
            while piece := await request.arriving.next():
                self.taken += len(piece)
        except InvalidRequest as error:
            self.failure = str(error)
            return Response(400)
        return Response(200, str(self.taken).encode())


def serve(test: Callable[[Reads], Awaitable[None]], limits: HttpLimits = LIMITS) -> None:
    async def run() -> None:
        server = Reads(limits)
        await server.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(test(server), 20)
        finally:
            await server.stop(1.0)

    asyncio.run(run())


def head(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


def test_a_body_beyond_all_limits_is_read_and_the_connection_goes_on() -> None:
    async def test(server: Reads) -> None:
        reader, writer = await connect(server)
        writer.write(head("/taken", 40 * len(PIECE)))
        for _ in range(40):
            writer.write(PIECE)
            await writer.drain()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await one_answer(reader))[2] == str(40 * len(PIECE)).encode()
        assert (await one_answer(reader))[2] == b"told"
        assert server.bodies.used == 0
        writer.close()

    serve(test)


def test_who_is_read_slowly_is_held_back() -> None:
    async def test(server: Reads) -> None:
        reader, writer = await connect(server)
        count = 400
        writer.write(head("/slow", count * len(PIECE)))

        async def send() -> None:
            for _ in range(count):
                writer.write(PIECE)
                await writer.drain()

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait({sending}, timeout=0.5)
        # What the sockets' buffers take is little beside it.
        assert not done
        server.let.set()
        assert (await one_answer(reader))[2] == str(count * len(PIECE)).encode()
        await sending
        writer.close()

    serve(test)


def test_an_answer_before_the_end_is_heard_and_the_rest_left_aside() -> None:
    async def test(server: Reads) -> None:
        reader, writer = await connect(server)
        writer.write(head("/refused", 40 * len(PIECE)))
        assert (await one_answer(reader))[0] == 409
        for _ in range(40):
            writer.write(PIECE)
            await writer.drain()
        writer.write(head("/taken", 3) + b"abc")
        assert (await one_answer(reader))[2] == b"3"
        writer.close()

    serve(test)


@pytest.mark.parametrize("half", [True, False])
def test_who_goes_before_the_end_is_told_to_the_handler(half: bool) -> None:
    async def test(server: Reads) -> None:
        reader, writer = await connect(server)
        writer.write(head("/taken", 10) + b"abc")
        await writer.drain()
        await until_true(lambda: server.taken == 3, seconds=15)
        if half:
            writer.write_eof()
            assert (await one_answer(reader))[0] == 400
        else:
            writer.transport.abort()
        await until_true(lambda: server.failure == "The body ended before its end", seconds=15)
        writer.close()

    serve(test)


def test_who_sends_nothing_is_given_up() -> None:
    async def test(server: Reads) -> None:
        reader, writer = await connect(server)
        writer.write(head("/taken", 10) + b"abc")
        assert (await one_answer(reader))[0] == 400
        assert server.failure == "The body did not arrive in time"
        # Its request never ends: there is no other one after it.
        assert await reader.read() == b""
        writer.close()

    serve(test, replace(LIMITS, stalled_seconds=0.2))


def test_what_is_no_chunk_is_told_to_the_handler() -> None:
    async def test(server: Reads) -> None:
        reader, writer = await connect(server)
        writer.write(b"POST /taken HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert (await one_answer(reader))[0] == 400
        assert server.failure.startswith("Invalid request")
        assert await reader.read() == b""
        writer.close()

    serve(test)
