"""Clients whose service URL is that of the brokers' web services."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from functools import partial

import pulsar as official
import pytest
from secured import PASSWORD, SUPERUSER, SecuredServer, token
from server import Server
from test_client_controlled_failover import WebService, service

import magnetar.pulsar
from magnetar.admin_client import AdminClient
from magnetar.client import (
    Authentication,
    AuthenticationBasic,
    AuthenticationError,
    AuthenticationTLS,
    AuthenticationToken,
    Client,
    ClusterAddress,
    ClusterFailover,
    ConnectError,
    ErrorGettingAuthenticationData,
    InitialPosition,
    InvalidConfiguration,
    InvalidUrl,
    LookupError,
    MessageId,
    PulsarException,
    TlsFailed,
    TopicNotFound,
    aio,
)
from magnetar.client.schemas import PrimitiveSchema

__all__ = ["service"]

WAIT = 20_000


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    try:
        server.start()
        yield server
    finally:
        server.close()


def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_everything_goes_through_the_broker_that_is_named(server: Server, topic: str) -> None:
    AdminClient(server.http_url).create_partitioned_topic(f"{topic}-parts", 3)
    nobody = f"127.0.0.1:{unused_port()}"
    with Client(f"http://{nobody},{server.http_url.partition('://')[2]}/") as client:
        numbers = PrimitiveSchema("INT32")
        for name in (topic, f"{topic}-parts", f"{topic} +%ü"):
            consumer = client.subscribe(name, "s", schema=numbers)
            with client.create_producer(name, schema=numbers) as producer:
                for number in range(6):
                    producer.send(number)
            assert sorted(consumer.receive(WAIT).value() for _ in range(6)) == list(range(6))
        assert client.schema(topic).kind == "INT32"
        assert len(client.get_topic_partitions(f"{topic}-parts")) == 3
        reader = client.create_reader(topic, MessageId.earliest, schema=numbers)
        assert reader.read_next(WAIT).value() == 0
    with Client(server.http_url) as client:
        consumer = client.subscribe_to_pattern(
            f"{topic}-p.*", "s2", initial_position=InitialPosition.Earliest, discovery_seconds=60
        )
        assert len({consumer.receive(WAIT).topic_name() for _ in range(6)}) == 3
        with Client(server.url) as other:
            other.create_producer(f"{topic}-pattern").send(b"new")
        assert consumer.receive(WAIT).data() == b"new"


def test_a_broker_that_is_killed(server: Server, topic: str) -> None:
    async def work() -> None:
        async with aio.Client(server.http_url) as client, asyncio.timeout(60):
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            await producer.send(b"1")
            await asyncio.to_thread(partial(server.restart, kill=True))
            await producer.send(b"2")
            found = {(await consumer.receive(WAIT)).data()}
            while b"2" not in found:
                # The first may have been delivered before the broker was killed, and comes again.
                found.add((await consumer.receive(WAIT)).data())
            assert found == {b"1", b"2"}
            other = await client.create_producer(f"{topic}-2")
            await other.send(b"3")

    asyncio.run(work())


def test_a_program_goes_to_another_service(server: Server, service: WebService, topic: str) -> None:
    with Client(f"http://127.0.0.1:{unused_port()}", operation_timeout_seconds=1) as client:
        with pytest.raises(ConnectError, match=r"cannot connect to 127\.0\.0\.1"):
            client.create_producer(topic)
        client.use_service(ClusterAddress(server.http_url))
        client.create_producer(topic).send(b"1")
        client.use_service(ClusterAddress(server.url))
        client.create_producer(topic).send(b"2")
        service.name(brokerUrl=server.url, brokerUrlTls="")
        client.use_service(ClusterAddress(service.url.partition("/cluster")[0]))
        client.create_producer(f"{topic} ü").send(b"3")
    [(path, _)] = service.requests
    assert path == f"/lookup/v2/topic/{topic.replace('://', '/')}%20%C3%BC"


@pytest.mark.parametrize("package", [official, magnetar.pulsar])
def test_the_official_interface(server: Server, topic: str, package: object) -> None:
    client = getattr(package, "Client")(server.http_url)  # noqa: B009 - one of two packages
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"content")
    assert consumer.receive(WAIT).data() == b"content"
    client.close()


@pytest.mark.parametrize("method", ["token", "basic", "tls"])
def test_credentials_and_tls(secured: SecuredServer, method: str, topic: str) -> None:
    pair = secured.authority.client(SUPERUSER)
    ways: dict[str, Authentication] = {
        "token": AuthenticationToken(lambda: token(SUPERUSER)),
        "basic": AuthenticationBasic("basic", PASSWORD),
        "tls": AuthenticationTLS(pair.certificate, pair.key),
    }
    AdminClient(secured.http_url, authentication=ways["token"]).grant_permission(
        "public/default", "basic", ["produce", "consume"]
    )
    trust = secured.authority.trust
    with Client(secured.https_url, authentication=ways[method], tls_trust_certs_file_path=trust) as client:
        client.create_producer(topic).send(b"content")
    if method == "tls":
        with pytest.raises(InvalidConfiguration, match="requires TLS"):
            Client(secured.http_url, authentication=ways[method])
        return
    with Client(secured.http_url, authentication=ways[method]) as client:
        client.create_producer(topic).send(b"content")


@pytest.mark.parametrize(
    ("authentication", "error"),
    [
        (None, AuthenticationError),
        (AuthenticationToken("a.b.c"), AuthenticationError),
        (AuthenticationBasic("basic", "guessed"), AuthenticationError),
        # Brokers answer 401 here, too.
        (AuthenticationToken(token("stranger")), AuthenticationError),
        (AuthenticationToken(lambda: str(1 // 0)), ErrorGettingAuthenticationData),
    ],
)
def test_who_is_refused(
    secured: SecuredServer, authentication: Authentication | None, error: type[Exception], topic: str
) -> None:
    with Client(secured.http_url, authentication=authentication) as client:
        with pytest.raises(error) as refusal:
            client.create_producer(topic)
        assert "guessed" not in str(refusal.value)


def test_a_web_service_that_is_not_trusted(secured: SecuredServer, topic: str) -> None:
    with (
        Client(secured.https_url, authentication=AuthenticationToken(token(SUPERUSER))) as client,
        pytest.raises(TlsFailed),
    ):
        client.create_producer(topic)


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (404, b'{"reason": "no such topic"}', TopicNotFound, "answered 404: no such topic"),
        (418, b"a teapot", LookupError, "answered 418: a teapot"),
        (200, b"<html>", LookupError, "is the web service of a Pulsar broker"),
        (200, b"[1]", LookupError, "is the web service of a Pulsar broker"),
        (200, b'{"brokerUrlTls": "pulsar+ssl://h"}', LookupError, "has no address without TLS"),
        (200, b'{"brokerUrl": "elsewhere"}', InvalidUrl, "is not a service URL; use a form like"),
        (302, b"", LookupError, "redirected more than 20 times"),
    ],
)
def test_wrong_answers(
    service: WebService, topic: str, status: int, body: bytes, error: type[PulsarException], said: str
) -> None:
    base = service.url.partition("/cluster")[0]
    service.status, service.body, service.location = status, body, f"{base}/elsewhere"
    with Client(base) as client, pytest.raises(error, match=said):
        client.create_producer(topic)


def test_redirects_are_followed(server: Server, service: WebService, topic: str) -> None:
    base = service.url.partition("/cluster")[0]
    there = f"{server.http_url}/lookup/v2/topic/{topic.replace('://', '/')}?authoritative=true"
    service.status, service.location = 302, there
    with Client(base, listener_name="internal") as client:
        client.create_producer(topic)
    assert service.requests[0][0].endswith("?listenerName=internal")
    with Client(base) as client:
        client.create_producer(topic).send(b"content")
    service.location = "ftp://elsewhere"
    with Client(base) as client, pytest.raises(LookupError, match="not a usable address"):
        client.create_producer(topic)


def test_what_is_no_web_service(server: Server, topic: str) -> None:
    port = server.url.rpartition(":")[2]
    with (
        Client(f"http://127.0.0.1:{port}", operation_timeout_seconds=1) as client,
        pytest.raises(PulsarException, match=port),
    ):
        client.create_producer(topic)
    for url in ("http://", "http://a,", "https://a:0", "http://a/b/c"):
        with pytest.raises(InvalidUrl):
            Client(url)
    clusters = ClusterFailover(ClusterAddress(server.http_url), [ClusterAddress(server.url)])
    with pytest.raises(InvalidUrl):
        Client(clusters)
