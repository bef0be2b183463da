"""WebSockets in a process of their own, before brokers: what the recorded conversation does not show."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
from secured import SUPERUSER, SecuredServer, token
from server import Server
from websocket_process import WebSocketProcess
from websocket_talk import payload

SECONDS = 20.0
TOPIC = "persistent/public/default/beside"
_TOKENS = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_BY_TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    running = SecuredServer(tmp_path_factory.mktemp("secured"))
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def beside(secured: SecuredServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSocketProcess]:
    """It goes to brokers by TLS, and proves by a token that it may do everything."""
    folder = tmp_path_factory.mktemp("beside")
    pair = secured.authority.server()
    running = WebSocketProcess(
        folder,
        brokerServiceUrlTls=secured.tls_url,
        brokerClientTlsEnabled="true",
        brokerClientTrustCertsFilePath=str(secured.authority.trust),
        tlsHostnameVerificationEnabled="true",
        brokerClientAuthenticationPlugin=_BY_TOKEN,
        brokerClientAuthenticationParameters=f"token:{token(SUPERUSER)}",
        authenticationEnabled="true",
        authenticationProviders=_TOKENS,
        tokenSecretKey=f"file://{secured.folder}/secret",
        webServicePortTls=0,
        tlsCertificateFilePath=str(pair.certificate),
        tlsKeyFilePath=str(pair.key),
        statusFilePath=str(folder / "in-rotation"),
        webSocketMaxTextFrameSize=2000,
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


def opened(url: str, path: str, role: str | None = "somebody", **options: Any) -> websocket.WebSocket:
    header = {} if role is None else {"Authorization": f"Bearer {token(role)}"}
    return websocket.create_connection(url + path, timeout=SECONDS, header=header, **options)


def exchanged(producer: websocket.WebSocket, consumer: websocket.WebSocket, text: str) -> str:
    """What a consumer gets of what a producer sends."""
    producer.send(json.dumps({"payload": payload(text)}))
    assert json.loads(producer.recv())["result"] == "ok"
    message = json.loads(consumer.recv())
    consumer.send(json.dumps({"messageId": message["messageId"]}))
    return b64decode(message["payload"]).decode()


def test_who_proves_it_is_let_in_and_by_tls_too(secured: SecuredServer, beside: WebSocketProcess) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        opened(beside.urls["ws"], f"/ws/v2/producer/{TOPIC}", None)
    assert refused.value.status_code == 401
    trust = {"ca_certs": str(secured.authority.trust), "cert_reqs": ssl.CERT_REQUIRED}
    consumer = opened(beside.urls["wss"], f"/ws/v2/consumer/{TOPIC}/s", sslopt=trust)
    producer = opened(beside.urls["ws"], f"/ws/v2/producer/{TOPIC}")
    assert exchanged(producer, consumer, "through both") == "through both"
    producer.send(json.dumps({"payload": payload("x" * 2000)}))
    opcode, data = producer.recv_data()
    assert (opcode, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1009)
    consumer.close()


def test_pages_from_elsewhere_and_other_endpoints_are_refused(beside: WebSocketProcess) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(
            f"{beside.urls['ws']}/ws/v2/producer/{TOPIC}", origin="http://evil.example"
        )
    assert refused.value.status_code == 403
    assert beside.ask("GET", "/admin/v2/tenants")[0] == 401
    assert beside.ask("GET", "/admin/v2/proxy-stats/stats")[0] == 401


def test_status_html_follows_the_file(beside: WebSocketProcess) -> None:
    file = beside.folder / "in-rotation"
    assert beside.ask("GET", "/status.html")[0] == 404
    file.touch()
    assert beside.ask("GET", "/status.html") == (200, b"OK")
    file.unlink()


def test_it_outlives_its_broker_and_says_when_it_stops(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = Server(tmp_path / "broker", {})
    beside = WebSocketProcess(tmp_path / "beside")
    try:
        broker.start()
        beside = WebSocketProcess(tmp_path / "beside", brokerServiceUrl=broker.url)
        beside.start()
        consumer = opened(beside.urls["ws"], f"/ws/v2/consumer/{TOPIC}/s", None)
        producer = opened(beside.urls["ws"], f"/ws/v2/producer/{TOPIC}", None)
        assert exchanged(producer, consumer, "before") == "before"
        broker.restart(kill=True)
        got = exchanged(producer, consumer, "afterwards")
        if got == "before":
            # Acknowledged, and the cursor was not written before the broker was killed.
            got = b64decode(json.loads(consumer.recv())["payload"]).decode()
        assert got == "afterwards"
        status, body = beside.ask("GET", f"/admin/v2/proxy-stats/{TOPIC}/stats")
        assert status == 200
        assert json.loads(body)["producerStats"][0]["numberOfMsgPublished"] == 2
        beside.stop()
        opcode, data = consumer.recv_data()
        assert (opcode, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1001)
    finally:
        beside.close()
        broker.close()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "brokerServiceUrl, or clusterName and configurationMetadataStoreUrl, must be set"),
        ({"brokerServiceUrl": "pulsar://a", "brokerClientTlsEnabled": "true"}, "brokerServiceUrlTls, or"),
        (
            {
                "brokerServiceUrl": "pulsar://a",
                "authenticationEnabled": "true",
                "anonymousUserRole": "nobody",
                "authorizationEnabled": "true",
            },
            "authorizationEnabled requires configurationMetadataStoreUrl",
        ),
        ({"brokerServiceUrl": "pulsar://a", "cryptoKeyReaderFactoryClassName": "x.Y"}, "a class of Java"),
        ({"brokerServiceUrl": "http://a"}, "http://a"),
        ({"webServicePort": "x"}, "webServicePort must be a whole number"),
        ({"brokerServiceUrl": "pulsar://a", "configurationMetadataStoreUrl": "rocksdb://a"}, "rocksdb"),
    ],
)
def test_what_cannot_be_is_told_at_the_start(tmp_path: Path, settings: dict[str, str], told: str) -> None:
    config = tmp_path / "websocket.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "magnetar", "websocket", "--config", str(config)]
    if "webServicePort" not in settings:
        command += ["--http-port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
