"""Our own client against a broker that asks who it is: each way to prove it, and what TLS refuses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from secured import PASSWORD, SUPERUSER, SecuredServer, short_lived, token

from magnetar.admin_client import AdminClient, CannotConnect
from magnetar.client import (
    Authentication,
    AuthenticationBasic,
    AuthenticationError,
    AuthenticationTLS,
    AuthenticationToken,
    AuthorizationError,
    Client,
    ConnectError,
    ErrorGettingAuthenticationData,
    InvalidConfiguration,
    TlsFailed,
)
from magnetar.io.tls import HANDSHAKE_SECONDS, ClientTls, TlsFiles, TlsRules, client_context

WAIT = 20_000


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """One server for all tests here; it looks every second who has to prove themselves again."""
    server = SecuredServer(tmp_path_factory.mktemp("secured"), authenticationRefreshCheckSeconds=3)
    try:
        server.start()
        yield server
    finally:
        server.close()


def round_trip(client: Client, topic: str) -> bytes:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"content")
    return consumer.receive(WAIT).data()


@pytest.mark.parametrize("method", ["token", "callable", "basic", "tls"])
@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
def test_each_way_to_prove_a_role(secured: SecuredServer, scheme: str, method: str, topic: str) -> None:
    pair = secured.authority.client(SUPERUSER)
    ways: dict[str, Authentication] = {
        "token": AuthenticationToken(token(SUPERUSER)),
        "callable": AuthenticationToken(lambda: token(SUPERUSER) + "\n"),
        "basic": AuthenticationBasic("basic", PASSWORD),
        "tls": AuthenticationTLS(pair.certificate, pair.key),
    }
    admin = AdminClient(secured.http_url, authentication=ways["token"])
    admin.grant_permission("public/default", "basic", ["produce", "consume"])
    if scheme == "pulsar" and method == "tls":
        with pytest.raises(InvalidConfiguration, match="requires TLS"):
            Client(secured.url, authentication=ways[method])
        return
    trust = secured.authority.trust
    with Client(secured.urls[scheme], authentication=ways[method], tls_trust_certs_file_path=trust) as client:
        assert round_trip(client, topic) == b"content"


def test_a_key_store_in_place_of_files(secured: SecuredServer, topic: str) -> None:
    files = TlsFiles(trust_store=secured.authority.trust_store("changeit"), trust_store_password="changeit")
    with Client(
        secured.tls_url, authentication=AuthenticationToken(token(SUPERUSER)), tls_files=files
    ) as client:
        assert round_trip(client, topic) == b"content"


def test_tokens_are_asked_for_again_before_they_run_out(secured: SecuredServer, topic: str) -> None:
    given: list[str] = []
    authentication = AuthenticationToken(short_lived(SUPERUSER, 4, given))
    with Client(secured.url, authentication=authentication) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        first = len(given)
        count = 0
        while len(given) < first + 3:
            producer.send(b"%d" % count)
            count += 1
        for number in range(count):
            message = consumer.receive(WAIT)
            assert message.data() == b"%d" % number
            assert message.redelivery_count() == 0
        assert producer.is_connected()


@pytest.mark.parametrize(
    ("authentication", "error"),
    [
        (None, AuthenticationError),
        (AuthenticationToken("a.b.c"), AuthenticationError),
        (AuthenticationToken(token(SUPERUSER, -100)), AuthenticationError),
        (AuthenticationBasic("basic", "guessed"), AuthenticationError),
        (AuthenticationToken(token("stranger")), AuthorizationError),
        (AuthenticationToken(lambda: str(1 // 0)), ErrorGettingAuthenticationData),
    ],
)
def test_who_is_refused(
    secured: SecuredServer, authentication: Authentication | None, error: type[Exception], topic: str
) -> None:
    with Client(secured.url, authentication=authentication) as client, pytest.raises(error) as refusal:
        client.create_producer(topic)
    assert "guessed" not in str(refusal.value)


def test_a_broker_that_is_not_trusted(secured: SecuredServer, tmp_path: Path, topic: str) -> None:
    other = Authority(tmp_path, "other")
    proof = AuthenticationToken(token(SUPERUSER))
    for trust in (None, other.trust):
        with (
            Client(secured.tls_url, authentication=proof, tls_trust_certs_file_path=trust) as client,
            pytest.raises(TlsFailed),
        ):
            client.create_producer(topic)
    with Client(secured.tls_url, authentication=proof, tls_allow_insecure_connection=True) as client:
        client.create_producer(topic)
    with (
        Client(secured.tls_url, tls_trust_certs_file_path=str(tmp_path / "missing")) as client,
        pytest.raises(InvalidConfiguration, match="missing"),
    ):
        client.create_producer(topic)


def test_a_certificate_for_another_host(tmp_path: Path, topic: str) -> None:
    server = SecuredServer(tmp_path)
    server.authority.server(hosts=("elsewhere.example",))
    server.start()
    try:
        proof = AuthenticationToken(token(SUPERUSER))
        trust = server.authority.trust
        with (
            Client(server.tls_url, authentication=proof, tls_trust_certs_file_path=trust) as client,
            pytest.raises(TlsFailed, match=r"127\.0\.0\.1"),
        ):
            client.create_producer(topic)
        with Client(
            server.tls_url,
            authentication=proof,
            tls_trust_certs_file_path=trust,
            tls_validate_hostname=False,
        ) as client:
            client.create_producer(topic)
    finally:
        server.close()


def test_a_broker_that_wants_certificates_of_all(tmp_path: Path, topic: str) -> None:
    """With TLS 1.3 a client hears of it when its own handshake is over, and not from every event loop."""
    server = SecuredServer(tmp_path, tlsRequireTrustedClientCertOnConnect="true")
    server.start()
    try:
        trust = server.authority.trust
        proof = AuthenticationToken(token(SUPERUSER))
        with (
            Client(
                server.tls_url,
                authentication=proof,
                tls_trust_certs_file_path=trust,
                operation_timeout_seconds=1,
            ) as client,
            pytest.raises(ConnectError),
        ):
            client.create_producer(topic)
        tls = ClientTls(TlsFiles(trust=trust))
        with pytest.raises(CannotConnect):
            AdminClient(server.https_url, authentication=proof, tls=tls).tenants()
        pair = server.authority.client("somebody")
        with Client(
            server.tls_url,
            authentication=proof,
            tls_trust_certs_file_path=trust,
            tls_certificate_file_path=pair.certificate,
            tls_private_key_file_path=pair.key,
        ) as client:
            client.create_producer(topic)
    finally:
        server.close()


def test_each_connection_is_answered_at_once(secured: SecuredServer) -> None:
    """What a client says first must never be lost: its handshake would wait until it is given up."""
    context = client_context(TlsFiles(trust=secured.authority.trust), TlsRules())
    for port in (secured.urls[scheme].rpartition(":")[2] for scheme in ("pulsar+ssl", "https")):
        for _ in range(40):
            with (
                socket.create_connection(("127.0.0.1", int(port)), HANDSHAKE_SECONDS / 2) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
            ):
                assert connection.version() == "TLSv1.3"
