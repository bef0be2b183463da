"""A proxy that asks its clients who they are, and tells brokers: over TLS on both sides."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from proxy_process import ProxyProcess
from secured import SecuredServer, short_lived, token

TOPIC = "persistent://public/default/secured"
_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(
        tmp_path_factory.mktemp("broker"),
        proxyRoles="proxy",
        superUserRoles="admin,proxy",
        authenticationRefreshCheckSeconds=1,
    )
    try:
        server.start()
        grant(server, "user")
        yield server
    finally:
        server.close()


def grant(server: SecuredServer, role: str) -> None:
    path = f"/admin/v2/namespaces/public/default/permissions/{role}"
    assert asked(server.http_url, "POST", path, "admin", '["produce","consume"]')[0] == 204


def asked(
    url: str, method: str, path: str, role: str, body: str | None = None, **headers: str
) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        sent = {"Authorization": f"Bearer {token(role)}", "Content-Type": "application/json", **headers}
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def before(broker: SecuredServer, folder: Path, **more: int | str) -> ProxyProcess:
    pair = broker.authority.server()
    return ProxyProcess(
        folder,
        brokerServiceURLTLS=broker.tls_url,
        brokerWebServiceURLTLS=broker.https_url,
        tlsEnabledWithBroker="true",
        brokerClientTrustCertsFilePath=broker.authority.trust,
        tlsHostnameVerificationEnabled="true",
        brokerClientAuthenticationPlugin=_PLUGIN,
        brokerClientAuthenticationParameters=f"token:{token('proxy')}",
        servicePortTls=0,
        webServicePortTls=0,
        tlsCertificateFilePath=pair.certificate,
        tlsKeyFilePath=pair.key,
        authenticationEnabled="true",
        authenticationProviders="org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        tokenSecretKey=f"file://{broker.folder}/secret",
        superUserRoles="admin",
        authenticationRefreshCheckSeconds=1,
        **more,
    )


@pytest.fixture(scope="module", params=["false", "true"], ids=["principal", "credentials"])
def proxy(
    request: pytest.FixtureRequest, broker: SecuredServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    """One that tells brokers the client's role, and one that tells them its proof, too."""
    running = before(broker, tmp_path_factory.mktemp("proxy"), forwardAuthorizationCredentials=request.param)
    try:
        running.start()
        yield running
    finally:
        running.close()


def client(proxy: ProxyProcess, broker: SecuredServer, role: str) -> pulsar.Client:
    return pulsar.Client(
        proxy.urls["pulsar+ssl"],
        authentication=pulsar.AuthenticationToken(token(role)),
        tls_trust_certs_file_path=broker.authority.trust,
        tls_validate_hostname=True,
        operation_timeout_seconds=30,
    )


def test_who_may_does_through_the_proxy(proxy: ProxyProcess, broker: SecuredServer) -> None:
    user = client(proxy, broker, "user")
    try:
        producer = user.create_producer(TOPIC)
        producer.send(b"x")
        stats = json.loads(asked(proxy.http_url, "GET", f"/admin/v2/{topic_path()}/stats", "admin")[1])
        assert len(stats["publishers"]) == 1
    finally:
        user.close()


def topic_path() -> str:
    return TOPIC.replace("://", "/")


def test_who_may_not_does_not(proxy: ProxyProcess, broker: SecuredServer) -> None:
    stranger = client(proxy, broker, "stranger")
    try:
        with pytest.raises(pulsar.PulsarException):
            stranger.create_producer(TOPIC)
    finally:
        stranger.close()
    assert asked(proxy.http_url, "GET", "/admin/v2/tenants", "stranger")[0] == 401
    assert asked(proxy.http_url, "GET", "/admin/v2/tenants", "admin")[0] == 200


def test_nobody_says_of_himself_that_he_is_somebody_else(proxy: ProxyProcess) -> None:
    claimed = {"X-Original-Principal": "admin"}
    assert asked(proxy.http_url, "GET", "/admin/v2/tenants", "stranger", None, **claimed)[0] == 401


def test_who_proves_nothing_is_refused_by_the_proxy(proxy: ProxyProcess, broker: SecuredServer) -> None:
    nobody = pulsar.Client(
        proxy.urls["pulsar+ssl"],
        authentication=pulsar.AuthenticationToken("nonsense"),
        tls_trust_certs_file_path=broker.authority.trust,
        operation_timeout_seconds=3,
    )
    try:
        with pytest.raises(pulsar.PulsarException):
            nobody.create_producer(TOPIC)
    finally:
        nobody.close()
    assert "refusing a client" in proxy.log
    assert proxy.ask("GET", "/admin/v2/tenants")[0] == 401


def test_what_a_proxy_tells_of_itself_is_for_superusers(proxy: ProxyProcess) -> None:
    assert asked(proxy.http_url, "GET", "/proxy-stats/connections", "admin")[0] == 200
    assert asked(proxy.http_url, "GET", "/proxy-stats/connections", "user")[0] == 401
    assert proxy.ask("GET", "/metrics")[0] == 401
    assert asked(proxy.http_url, "GET", "/metrics", "user")[0] == 200


def test_a_client_goes_on_with_fresh_proofs_while_old_ones_end(
    proxy: ProxyProcess, broker: SecuredServer
) -> None:
    given: list[str] = []
    user = pulsar.Client(
        proxy.urls["pulsar+ssl"],
        authentication=pulsar.AuthenticationToken(short_lived("user", 3, given)),
        tls_trust_certs_file_path=broker.authority.trust,
        operation_timeout_seconds=10,
    )
    try:
        producer = user.create_producer(TOPIC)
        until = time.monotonic() + 5
        while time.monotonic() < until:
            producer.send(b"x")
            time.sleep(0.1)
        # CONNECT of two connections took two.
        assert len(given) > 2
    finally:
        user.close()
