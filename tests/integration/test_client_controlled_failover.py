"""A client whose cluster a web service names."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from polling import until
from secured import SecuredServer, token
from server import Server

from magnetar.client import (
    Client,
    ClusterAddress,
    ControlledClusterFailover,
    InitialPosition,
    InvalidConfiguration,
)
from magnetar.client.controlled_failover import WrongAnswer, address_of

TOPIC = "persistent://public/default/orders"


class WebService:
    """Answers each request with the same status and body."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        self.location = "/elsewhere"
        self.requests: list[tuple[str, dict[str, str]]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.requests.append((self.path, dict(self.headers)))
                self.send_response(service.status)
                if service.status == 302:
                    self.send_header("Location", service.location)
                self.end_headers()
                self.wfile.write(service.body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/cluster?of=me"

    def name(self, **answer: object) -> None:
        self.status, self.body = 200, json.dumps(answer).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[WebService]:
    made = WebService()
    yield made
    made.close()


def policy(server: Server, service: WebService) -> ControlledClusterFailover:
    return ControlledClusterFailover(
        ClusterAddress(server.url), service.url, {"Authorization": "Bearer x"}, check_interval_ms=20
    )


def test_it_uses_the_cluster_that_is_named(start_server: Callable[..., Server], service: WebService) -> None:
    east, west = start_server(), start_server()
    service.name(serviceUrl=east.url)
    with Client(policy(east, service)) as client:
        producer = client.create_producer(TOPIC)
        producer.send(b"1")
        until(lambda: len(service.requests) > 1, seconds=60)
        path, headers = service.requests[0]
        assert path == "/cluster?of=me"
        assert (headers["Authorization"], headers["Accept"]) == ("Bearer x", "application/json")
        service.name(serviceUrl=west.url, unknown=1)
        until(lambda: client.service.service_url == west.url, seconds=60)
        producer.send(b"2")
        for server, content in ((east, b"1"), (west, b"2")):
            with Client(server.url) as other:
                consumer = other.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
                assert consumer.receive(20_000).data() == content


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b"", "answered 500"),
        (302, b"", "answered 302"),
        (200, b"[]", "a JSON object that has a serviceUrl"),
        (200, b"{", "a JSON object that has a serviceUrl"),
        (200, b'{"serviceUrl": ""}', "a JSON object that has a serviceUrl"),
        (200, b'{"serviceUrl": 1}', "must be text"),
        (200, b'{"serviceUrl": "ftp://x"}', "is not a service URL; use a form like"),
        (
            200,
            b'{"serviceUrl": "pulsar://h", "authPluginClassName": "x.Y", "authParamsString": "secret"}',
            "unknown plugin 'x.Y'",
        ),
    ],
)
def test_a_wrong_answer_changes_nothing(
    service: WebService, caplog: pytest.LogCaptureFixture, status: int, body: bytes, said: str
) -> None:
    caplog.set_level(logging.WARNING)
    service.status, service.body = status, body
    default = ClusterAddress("pulsar://127.0.0.1:1")
    with Client(ControlledClusterFailover(default, service.url, check_interval_ms=10)) as client:
        until(lambda: said in caplog.text, seconds=60)
        assert client.service == default
    assert "staying with the cluster at pulsar://127.0.0.1:1" in caplog.text
    assert "secret" not in caplog.text
    assert {path for path, _ in service.requests} == {"/cluster?of=me"}


def test_a_web_service_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with socket.socket() as never_listens:
        never_listens.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{never_listens.getsockname()[1]}"
        with Client(ControlledClusterFailover(ClusterAddress("pulsar://x"), url, check_interval_ms=10)):
            until(lambda: "cannot be reached: ConnectionRefusedError" in caplog.text, seconds=60)


def test_credentials_and_trust_are_named_too(
    tmp_path_factory: pytest.TempPathFactory, start_server: Callable[..., Server], service: WebService
) -> None:
    east, west = start_server(), SecuredServer(tmp_path_factory.mktemp("secured"))
    west.start()
    try:
        with Client(policy(east, service)) as client:
            service.name(
                serviceUrl=west.tls_url,
                tlsTrustCertsFilePath=west.authority.trust,
                authPluginClassName="org.apache.pulsar.client.impl.auth.AuthenticationToken",
                authParamsString=f"token:{token('admin')}",
            )
            until(lambda: client.service.service_url == west.tls_url, seconds=60)
            client.create_producer(TOPIC).send(b"x")
    finally:
        west.close()


def test_what_an_answer_leaves_out_stays() -> None:
    current = ClusterAddress("pulsar://a", tls_trust_certs_file_path="a.pem")
    assert address_of({"serviceUrl": "pulsar://b"}, current) == ClusterAddress("pulsar://b", None, "a.pem")
    assert (
        address_of({"serviceUrl": "pulsar://b", "authPluginClassName": "token"}, current).authentication
        is None
    )
    with pytest.raises(WrongAnswer, match="must be text"):
        address_of({"serviceUrl": "pulsar://b", "tlsTrustCertsFilePath": 1}, current)


def test_refused() -> None:
    address = ClusterAddress("pulsar://localhost:1")
    for url in ("localhost", "ftp://localhost", "http://", "http://x:99999"):
        with pytest.raises(InvalidConfiguration, match="url_provider must be an http or https URL"):
            Client(ControlledClusterFailover(address, url))
    with pytest.raises(InvalidConfiguration, match="check_interval_ms must be above 0, not 0"):
        Client(ControlledClusterFailover(address, "http://x", check_interval_ms=0))
    with pytest.raises(InvalidConfiguration, match="with ControlledClusterFailover"):
        Client(ControlledClusterFailover(address, "http://x"), tls_trust_certs_file_path="x.pem")
