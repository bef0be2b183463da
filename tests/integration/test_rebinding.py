"""Names that plain HTTP requests call a server by: a page's own name, made to lead here, reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from proxy_process import ProxyProcess
from secured import SUPERUSER, SecuredServer, token
from server import Server
from websocket_process import WebSocketProcess

StartServer = Callable[..., Server]
PATHS = (
    "/metrics",
    "/admin/v2/clusters",
    "/admin/v2/persistent/public/default",
    "/admin/v2/proxy-stats/stats",
)
EVIL = "evil.example:8080"


@pytest.fixture(scope="module")
def served(start_server: StartServer) -> Server:
    return start_server(
        magnetarHttpAllowedHosts="pulsar.example.org,*.lab.example",
        magnetarHttpAllowedOrigins="https://console.example",
        advertisedListeners="outside:pulsar://far.example:6650,outside:http://web.example:8080",
    )


def status(url: str, path: str, host: str, proof: str = "") -> int:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    headers = {"Host": host, "Origin": f"http://{host}"}
    try:
        connection.request(
            "GET", path, headers=headers | ({"Authorization": f"Bearer {proof}"} if proof else {})
        )
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_name_reads_nothing(served: Server, path: str) -> None:
    assert status(served.http_url, path, EVIL) == 403


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1:8080",
        "broker-1:8080",
        "far.example",
        "web.example:8080",
        "pulsar.example.org",
        "a.lab.example",
        "console.example",
    ],
)
def test_its_own_names_and_those_of_the_settings_read(served: Server, host: str) -> None:
    assert [status(served.http_url, path, host) for path in PATHS] == [200] * len(PATHS)


def test_where_clients_prove_who_they_are_any_name_will_do(tmp_path: Path) -> None:
    secured = SecuredServer(tmp_path)
    try:
        secured.start()
        assert status(secured.http_url, "/admin/v2/clusters", EVIL) == 401
        assert status(secured.http_url, "/admin/v2/clusters", EVIL, token(SUPERUSER)) == 200
    finally:
        secured.close()


@pytest.fixture
def proxy(served: Server, tmp_path: Path) -> Iterator[ProxyProcess]:
    running = ProxyProcess(
        tmp_path / "proxy", brokerServiceURL=served.url, brokerWebServiceURL=served.http_url
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


def test_a_proxy_reads_for_no_foreign_name_either(proxy: ProxyProcess) -> None:
    assert status(proxy.http_url, "/admin/v2/clusters", EVIL) == 403
    assert status(proxy.http_url, "/admin/v2/clusters", "localhost") == 200
    assert status(proxy.http_url, "/status.html", EVIL) == 404


def test_nor_does_a_process_of_web_sockets(served: Server, tmp_path: Path) -> None:
    beside = WebSocketProcess(tmp_path / "websocket", brokerServiceUrl=served.url)
    try:
        beside.start()
        assert status(beside.http_url, "/admin/v2/proxy-stats/stats", EVIL) == 403
        assert status(beside.http_url, "/admin/v2/proxy-stats/stats", "localhost") == 200
    finally:
        beside.close()
