from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from polling import until_true
from stand_in_admin import StandInAdmin

from magnetar.broker.stats.figures import TopicMetrics
from magnetar.http.engine.connection import HttpLimits, http_date
from magnetar.http.engine.message import Request, Response
from magnetar.http.server import HttpServer
from magnetar.io.real import real_io

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n"
LIMITS = HttpLimits(body_bytes=1000, head_bytes=500, connections=3)

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Test = Callable[[HttpServer, StandInAdmin], Awaitable[None]]


def serve(test: Test, limits: HttpLimits = LIMITS) -> None:
    async def run() -> None:
        admin = StandInAdmin()
        io = real_io(asyncio.get_running_loop(), "/")
        server = HttpServer(io, limits)
        server.serve(admin.application())
        await server.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(test(server, admin), 20)
        finally:
            await server.stop(1.0)

    asyncio.run(run())


async def connect(server: HttpServer) -> Client:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def one_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = b""
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    return int(head[0].split(" ")[1]), headers, body


async def exchange(server: HttpServer, data: bytes) -> tuple[int, dict[str, str], bytes, bool]:
    """Sends ``data``; answers the response and whether the server closed the connection after it."""
    reader, writer = await connect(server)
    writer.write(data)
    status, headers, body = await one_answer(reader)
    try:
        closed = await asyncio.wait_for(reader.read(1), 0.05) == b""
    except TimeoutError:
        closed = False
    writer.close()
    return status, headers, body, closed


def test_a_connection_serves_one_request_after_another() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        for _ in range(3):
            writer.write(GET)
            status, headers, body = await one_answer(reader)
            assert (status, body) == (200, b'["standalone"]')
            assert headers["content-type"] == "application/json"
        writer.close()

    serve(test)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        writer.write(GET + GET.replace(b"clusters", b"tenants") + GET[:20])
        assert (await one_answer(reader))[2] == b'["standalone"]'
        assert (await one_answer(reader))[2] == b'["public","sample"]'
        writer.write(GET[20:])
        assert (await one_answer(reader))[2] == b'["standalone"]'
        writer.close()

    serve(test)


def test_a_request_may_come_byte_by_byte() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        for index in range(len(GET)):
            writer.write(GET[index : index + 1])
            await asyncio.sleep(0)
        assert (await one_answer(reader))[0] == 200
        writer.close()

    serve(test)


@pytest.mark.parametrize(
    ("data", "status", "closed"),
    [
        (GET, 200, False),
        (GET.replace(b"x\r\n", b"x\r\nConnection: close\r\n"), 200, True),
        (GET.replace(b"HTTP/1.1", b"HTTP/1.0"), 200, True),
        (GET.replace(b"/admin", b"http://x/admin"), 200, False),
        (b"nonsense\r\n\r\n", 400, True),
        (b"GET / HTTP/1.1\r\n\r\n", 400, True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 600 + b"\r\n\r\n", 431, True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 600, 431, True),
        (b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413, True),
        (b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, True),
        (
            b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"
            + b"a" * 1001
            + b"\r\n",
            413,
            True,
        ),
        (b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab", 404, False),
        # A proxy may have gone by the first: the second request would be somebody else's.
        (
            b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            + GET,
            400,
            True,
        ),
        (
            b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
            True,
        ),
    ],
)
def test_each_kind_of_request_and_what_becomes_of_the_connection(
    data: bytes, status: int, closed: bool
) -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        found, _, body, ended = await exchange(server, data)
        assert (found, ended) == (status, closed)
        if status >= 400:
            assert body.startswith(b'{"reason":')

    serve(test)


def test_head_has_the_headers_of_get_and_no_body() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        writer.write(GET.replace(b"GET", b"HEAD") + GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 14" in head
        assert (await one_answer(reader))[2] == b'["standalone"]'
        writer.close()

    serve(test)


def test_clients_may_wait_for_leave_to_send() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        path = b"/admin/v2/persistent/public/default/p/partitions"
        writer.write(
            b"PUT " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
        )
        assert b"100" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"4")
        assert (await one_answer(reader))[0] == 204
        assert admin.partitions.made[0][1] == 4
        writer.close()

    serve(test)


def test_connections_are_limited() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        clients = [await connect(server) for _ in range(3)]
        for reader, writer in clients:
            writer.write(GET)
            await one_answer(reader)
        reader, writer = await connect(server)
        assert (await one_answer(reader))[0] == 503
        assert await reader.read() == b""
        clients[0][1].close()
        await asyncio.sleep(0.05)
        assert (await exchange(server, GET))[0] == 200
        for _, open_writer in clients[1:]:
            open_writer.close()

    serve(test)


def test_slow_and_silent_clients_are_sent_away() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        assert await reader.read() == b""
        writer.close()
        reader, writer = await connect(server)
        writer.write(GET[:10])
        assert (await one_answer(reader))[0] == 408
        assert await reader.read() == b""
        writer.close()

    serve(test, replace(LIMITS, request_seconds=0.1, idle_seconds=0.1))


def test_metrics_come_in_pieces_while_other_requests_are_served() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        admin.snapshot.topics = [
            TopicMetrics(f"persistent://public/default/t{index}", "public/default") for index in range(2000)
        ]
        reader, writer = await connect(server)
        writer.write(b"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n")
        other_reader, other_writer = await connect(server)
        other_writer.write(GET)
        assert (await one_answer(other_reader))[0] == 200
        status, headers, body = await one_answer(reader)
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        assert body.count(b"\npulsar_rate_in{") == 2000
        for open_writer in (writer, other_writer):
            open_writer.close()

    serve(test)


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        admin.snapshot.topics = [
            TopicMetrics(f"persistent://public/default/t{index}", "public/default") for index in range(20_000)
        ]
        reader, writer = await connect(server)
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await until_true(lambda: len(server._connections) == 1, seconds=15)
        # However long it takes to write as much as the sockets hold.
        await until_true(lambda: not server._connections, seconds=15)
        transport.resume_reading()
        with contextlib.suppress(ConnectionResetError):
            assert not (await reader.read()).endswith(b"\r\n0\r\n\r\n")
        writer.close()

    serve(test, replace(LIMITS, stalled_seconds=0.2))


def test_stopping_waits_for_the_request_in_progress() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        may_answer = asyncio.Event()

        async def slow_cluster(name: str) -> Mapping[str, Any]:
            await may_answer.wait()
            return {"name": name}

        admin.clusters.get = slow_cluster  # type: ignore[method-assign]
        idle_reader, idle_writer = await connect(server)
        reader, writer = await connect(server)
        writer.write(GET.replace(b"clusters", b"clusters/c"))
        await asyncio.sleep(0.05)
        stopping = asyncio.ensure_future(server.stop(5.0))
        assert await idle_reader.read() == b""
        assert not stopping.done()
        may_answer.set()
        status, headers, body = await one_answer(reader)
        assert (status, headers["connection"], body) == (200, "close", b'{"name":"c"}')
        await stopping
        for open_writer in (writer, idle_writer):
            open_writer.close()

    serve(test)


def test_a_half_closed_client_gets_its_answer() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        writer.write(GET)
        writer.write_eof()
        assert (await one_answer(reader))[0] == 200
        assert await reader.read() == b""
        writer.close()

    serve(test)


def test_dates_are_as_http_wants_them() -> None:
    assert http_date(784111777) == "Sun, 06 Nov 1994 08:49:37 GMT"


def test_before_there_is_a_broker_all_answers_are_503() -> None:
    async def run() -> None:
        server = HttpServer(real_io(asyncio.get_running_loop(), "/"), LIMITS)
        await server.start("127.0.0.1", 0)
        assert (await exchange(server, GET))[0] == 503
        await server.stop(1.0)

    asyncio.run(run())


POST = b"PUT /admin/v2/persistent/public/default/p/partitions HTTP/1.1\r\nHost: x\r\n"


def _body_head(size: int) -> bytes:
    return POST + b"Content-Length: %d\r\n\r\n" % size


def test_bodies_of_all_requests_together_are_bounded_and_small_ones_are_served() -> None:
    """Two thousand connections with 8 MiB each were 16 GiB."""

    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        hoarders = [await connect(server) for _ in range(20)]
        most = 0
        for _, writer in hoarders:
            writer.write(_body_head(400_000) + b" " * 300_000)
        for _ in range(100):
            await asyncio.sleep(0.005)
            most = max(most, sum(len(connection._body) for connection in server._connections))
        assert 0 < most <= 1_000_000
        assert (await exchange(server, _body_head(1) + b"4"))[0] == 204
        served = 0
        for reader, writer in hoarders:
            writer.write(b" " * 99_999 + b"4")
            # Who is refused while it sends may see no more than the end of its connection.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                status = (await one_answer(reader))[0]
                assert status in (204, 503)
                served += status == 204
            writer.close()
        assert 1 <= served <= 3
        await until_true(lambda: server.bodies.used == 0, seconds=15)

    limits = replace(LIMITS, body_bytes=1_000_000, connections=100)
    serve(test, replace(limits, bodies_bytes=1_000_000))


def test_bodies_that_never_come_whole_are_forgotten_with_their_connections() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        for _ in range(3):
            _, writer = await connect(server)
            writer.write(_body_head(900) + bytes(800))
            await until_true(lambda: server.bodies.used == 800, seconds=15)
            writer.close()
            await until_true(lambda: server.bodies.used == 0, seconds=15)
        assert (await exchange(server, _body_head(900) + bytes(900)))[0] == 400
        assert server.bodies.used == 0

    serve(test)


def test_a_large_body_does_not_keep_the_loop() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        body = b"[" + b",".join(b'{"a":[%d]}' % number for number in range(200_000)) + b"]"
        writer.write(_body_head(len(body)) + body)
        await until_true(lambda: any(connection._answering for connection in server._connections), seconds=15)
        turns = 0
        answer = asyncio.ensure_future(one_answer(reader))
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        status, _, found = answer.result()
        assert status == 400
        assert found.startswith(b'{"reason":')
        assert turns > 40
        writer.close()

    serve(test, replace(LIMITS, body_bytes=8 << 20))


def test_a_large_body_is_parsed_in_slices_and_not_beside_the_loop() -> None:
    """Another thread would keep Python's lock for as long as a call of the decoder in C takes."""

    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        threads = threading.active_count()
        body = b'"' + b"x" * 4_000_000 + b'"'
        assert (await exchange(server, _body_head(len(body)) + body))[0] == 400
        assert threading.active_count() == threads
        assert server.io.slices.longest().keys() >= {"json"}

    serve(test, replace(LIMITS, body_bytes=8 << 20))


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b" " * 70_000 + b"4", 204, b""),
        (b" " * 70_000 + b"{", 400, b"The body is not JSON"),
        (b"[" * 70_000, 400, b"nested too deeply"),
        (b'"' + b"\xff" * 70_000 + b'"', 400, b"The body is not JSON"),
        (b"\xef\xbb\xbf" + b" " * 70_000 + b"4", 204, b""),
        (b" " * 1_048_575 + b"4", 204, b""),
        (b" " * 1_048_577 + b"4", 400, b"begins with more than 1048576 bytes of white space"),
        (b"[" + b"1," * 200_000 + b"1]", 400, b"The body has more than 100000 values"),
    ],
)
def test_large_bodies_are_read_as_small_ones_are(body: bytes, status: int, reason: bytes) -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        found, _, text, _ = await exchange(server, _body_head(len(body)) + body)
        assert found == status
        assert reason in text
        if status == 204:
            assert admin.partitions.made[0][1] == 4

    serve(test, replace(LIMITS, body_bytes=8 << 20))


def test_a_page_from_elsewhere_changes_nothing() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        foreign = b"Origin: http://evil.example\r\nContent-Length: 1\r\n\r\n4"
        status, _, body, _ = await exchange(server, POST + foreign)
        assert status == 403
        assert b"http://evil.example" in body
        assert admin.partitions.made == []
        own = b"Origin: http://127.0.0.1:%d\r\nContent-Length: 1\r\n\r\n4" % server.port
        assert (await exchange(server, POST + own))[0] == 204
        assert (await exchange(server, GET.replace(b"x\r\n", b"x\r\nOrigin: http://evil.example\r\n")))[
            0
        ] == 200

    serve(test)


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_client_that_sends_a_byte_now_and_then_is_sent_away(part: str) -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        reader, writer = await connect(server)
        head = b"PUT /admin/v2/clusters/c HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n"
        writer.write(head[:-2] if part == "head" else head)
        sent = 0
        answered = asyncio.ensure_future(reader.read())
        while not answered.done() and sent < 400:
            writer.write(b"x")
            sent += 1
            await asyncio.sleep(0.01)
        assert sent < 400, "it may go on for ever"
        with contextlib.suppress(ConnectionError):
            # What it had not read when it closed takes the answer along.
            assert (await answered).startswith(b"HTTP/1.1 408 ")
        writer.close()

    serve(test, replace(LIMITS, request_seconds=0.2))


def test_one_address_does_not_take_all_connections() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        clients = [await connect(server) for _ in range(2)]
        await until_true(lambda: len(server._connections) == 2, seconds=15)
        assert (await exchange(server, GET))[0] == 503
        clients[0][1].close()
        await until_true(lambda: len(server._connections) == 1, seconds=15)
        assert (await exchange(server, GET))[0] == 200
        clients[1][1].close()
        await until_true(lambda: not server._connections, seconds=15)
        assert server._of_address == {}

    serve(test, replace(LIMITS, connections=100, connections_of_address=2))


def test_half_a_character_in_a_request_is_refused_and_told_as_json_has_it() -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        body = b'{"\\ud800":1}'
        head = b"PUT /admin/v2/magnetar/read-plans/p HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        status, _, told, _ = await exchange(server, head % len(body) + body)
        assert status == 400
        assert "\ud800" in json.loads(told)["reason"]

    serve(test)


def test_a_request_that_nobody_answers_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: HttpServer, admin: StandInAdmin) -> None:
        async def fail(_request: Request) -> Response:
            raise RuntimeError("a defect")

        reader, writer = await connect(server)
        with monkeypatch.context() as patched:
            patched.setattr(server, "answer", fail)
            writer.write(GET)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        status, *_ = await exchange(server, GET)
        assert status == 200

    serve(test)
