"""Each defect that fuzzed requests found."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"), {})
    try:
        running.start()
        yield running
    finally:
        running.close()


def test_a_body_of_brackets_is_refused(server: Server) -> None:
    """The parser ran out of stack: an internal error."""
    status, body = server.ask("PUT", "/admin/v2/persistent/public/default/t/partitions", "[" * 100_000)
    assert (status, b"nested too deeply" in body) == (400, True)


@pytest.mark.parametrize("name", ["%00", "a%2Fb"])
def test_the_name_of_a_cluster_is_checked(server: Server, name: str) -> None:
    """It went into a metadata path as it came: an internal error."""
    status, body = server.ask("GET", f"/admin/v2/clusters/{name}")
    assert (status, b"invalid cluster name" in body) == (412, True)


def test_properties_are_unicode(server: Server) -> None:
    """Half a surrogate pair reached the record of the topic: an internal error."""
    path = "/admin/v2/persistent/public/default/t"
    assert server.ask("PUT", path, '{"a": "\\ud800"}')[0] == 400
    assert server.ask("PUT", path, '{"\\udfff": "b"}')[0] == 400
    assert server.ask("PUT", path, '{"a": "\\ud83d\\ude00"}')[0] == 204


@pytest.mark.parametrize("count", [2**31, 10**30])
def test_no_topic_has_more_partitions_than_clients_can_be_told(server: Server, count: int) -> None:
    """One topic after another was made, for years."""
    assert server.ask("PUT", "/admin/v2/persistent/public/default/many/partitions", str(count))[0] == 406


def test_refusing_a_head_request_sends_no_body(server: Server) -> None:
    """The body could not be written: the client got half a line, the log a traceback."""
    host, port = server.http_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 8170 + b"\r\n\r\n")
        answer = b""
        while data := connection.recv(1 << 16):
            answer += data
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.endswith(b"\r\n\r\n")
    assert "Traceback" not in server.log
