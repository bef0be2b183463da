"""A real broker is fed garbage on some connections; a client on another one notices nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from fuzz_http import HttpTalker, has_two_lengths
from fuzz_talk import Talker
from fuzz_wire import pieces
from plain_client import PlainClient
from server import VARIANTS, Server

ROUNDS = 60
TOPIC = "persistent://public/default/good"


@pytest.fixture(params=list(VARIANTS))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    settings = dict(VARIANTS[request.param]) | {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
    running = Server(tmp_path, settings)
    try:
        running.start()
        yield running
    finally:
        running.close()


def resident_mib(server: Server) -> float:
    text = Path(f"/proc/{server.pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def check_log(server: Server) -> None:
    """Neither tracebacks nor errors: nothing that a client says is an error of the broker's."""
    assert "Traceback" not in server.log, server.log[-3000:]
    bad = [line for line in server.log.splitlines() if " ERROR " in line or "never retrieved" in line]
    assert not bad, bad[:5]


def hostile_talk(random: Random, port: int) -> None:
    """One connection: says a few things, reads some of the answers, goes."""
    talker = Talker(random, random.choice((0.3, 0.9, 0.99, 1.0)))
    talker.producers += [0, 1, 2]
    talker.consumers += [0, 1, 2]
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, suppress(OSError):
        connection.sendall(talker.connect())
        for _ in range(random.choice((1, 5, 20))):
            data = b"".join(talker.say()[0] for _ in range(random.choice((1, 4, 10))))
            for piece in pieces(random, data):
                connection.sendall(piece)
            if random.random() < 0.5:
                connection.settimeout(0.005)
                with suppress(TimeoutError):
                    connection.recv(1 << 16)
                connection.settimeout(5)


def test_garbage_on_some_connections_disturbs_no_other(server: Server) -> None:
    random = Random(7)
    good = PlainClient(server.port, TOPIC)
    good.exchange()
    warm = 0.0
    for number in range(ROUNDS):
        for _ in range(6):
            hostile_talk(random, server.port)
        good.exchange()
        if number == ROUNDS // 2:
            warm = resident_mib(server)
    assert resident_mib(server) < warm + 25
    good.close()
    check_log(server)
    server.stop()
    server.start()
    PlainClient(server.port, TOPIC).exchange()


def test_requests_that_are_none_disturb_nobody(server: Server) -> None:
    random = Random(11)
    # Some requests are whole and do what they say: nothing of theirs names this tenant.
    tenant = '{"allowedClusters": ["standalone"]}'
    assert server.ask("PUT", "/admin/v2/tenants/undisturbed", tenant)[0] == 204
    assert server.ask("PUT", "/admin/v2/namespaces/undisturbed/n")[0] == 204
    good = PlainClient(server.port, "persistent://undisturbed/n/good")
    host, port = server.http_url.removeprefix("http://").split(":")
    talker = HttpTalker(random)
    for number in range(1200):
        with socket.create_connection((host, int(port)), timeout=10) as connection, suppress(OSError):
            request, whole = talker.say()
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while data := connection.recv(1 << 16):
                answer += data
            status = int(answer[9:12]) if answer else 0
            assert answer or not whole, request
            assert status < 500 or status in (501, 503), (request, answer)
            if has_two_lengths(request):
                assert status == 0 or status >= 400, (request, answer)
                assert answer.count(b"HTTP/1.1 ") <= 1, (request, answer)
        if number % 40 == 0:
            good.exchange(2)
    assert server.ask("GET", "/admin/v2/brokers/health")[0] == 200
    check_log(server)
