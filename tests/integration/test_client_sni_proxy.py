"""A client behind a proxy that tells brokers by the server name of the TLS handshake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from server import Server
from sni_proxy import SniProxy

from magnetar.client import (
    Client,
    ClusterAddress,
    ConnectError,
    InitialPosition,
    InvalidConfiguration,
    InvalidUrl,
    ProxyProtocol,
)

TOPIC = "persistent://public/default/orders"
NAMES = ("east.example", "west.example")


class Site:
    """Two brokers, each a cluster, that clients reach through a proxy only: their names do not exist."""

    def __init__(self, folder: Path, start_server: Callable[..., Server]) -> None:
        self.authority = Authority(folder)
        self.servers = {}
        for name in NAMES:
            pair = self.authority.server(name, (name,))
            self.servers[name] = start_server(
                brokerServicePortTls=0,
                tlsCertificateFilePath=pair.certificate,
                tlsKeyFilePath=pair.key,
                advertisedAddress=name,
            )
        self.proxy = SniProxy({name: ("127.0.0.1", self.port(name)) for name in NAMES})

    def port(self, name: str) -> int:
        return int(self.servers[name].urls["pulsar+ssl"].rpartition(":")[2])

    def url(self, name: str) -> str:
        return f"pulsar+ssl://{name}:{self.port(name)}"

    def client(self, url: str) -> Client:
        return Client(
            url,
            proxy_service_url=f"pulsar+ssl://127.0.0.1:{self.proxy.port}",
            proxy_protocol=ProxyProtocol.SNI,
            tls_trust_certs_file_path=self.authority.trust,
            operation_timeout_seconds=3,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, start_server: Callable[..., Server]) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("authority"), start_server)
    yield made
    made.proxy.close()


def test_lookups_and_topics_go_through_the_proxy(site: Site) -> None:
    for name in NAMES:
        site.proxy.names.clear()
        with site.client(site.url(name)) as client:
            consumer = client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
            client.create_producer(TOPIC).send(name.encode())
            assert consumer.receive(20_000).data() == name.encode()
        assert set(site.proxy.names) == {name}


def test_a_client_changes_the_cluster_behind_the_proxy(site: Site) -> None:
    topic = TOPIC + "-2"
    with site.client(site.url(NAMES[0])) as client:
        producer = client.create_producer(topic)
        producer.send(b"1")
        client.use_service(ClusterAddress(site.url(NAMES[1]), None, site.authority.trust))
        producer.send(b"2")
    with site.client(site.url(NAMES[1])) as client:
        consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        assert consumer.receive(20_000).data() == b"2"


def test_brokers_without_names_and_unknown_ones(site: Site) -> None:
    with (
        site.client("pulsar+ssl://127.0.0.1:1") as client,
        pytest.raises(ConnectError, match="must have names"),
    ):
        client.create_producer(TOPIC)
    with site.client("pulsar+ssl://nobody.example:1") as client, pytest.raises(ConnectError):
        client.create_producer(TOPIC)


def test_refused() -> None:
    proxy = "pulsar+ssl://localhost:1"
    with pytest.raises(InvalidConfiguration, match="proxy_service_url requires TLS"):
        Client("pulsar://localhost:1", proxy_service_url=proxy)
    for url in ("pulsar://localhost:1", "pulsar+ssl://a:1,b:1"):
        with pytest.raises(InvalidUrl, match="proxy_service_url must be like"):
            Client("pulsar+ssl://localhost:1", proxy_service_url=url)
    with pytest.raises(InvalidConfiguration, match="proxy_protocol must be"):
        Client("pulsar+ssl://localhost:1", proxy_service_url=proxy, proxy_protocol=1)  # type: ignore[arg-type]
