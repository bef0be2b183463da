"""A client behind a proxy that tells brokers by the server name of the TLS handshake."""

from __future__ import annotations

import os
import subprocess
import sys
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
    MessageId,
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
        pytest.raises(ConnectError, match="needs host names of brokers"),
    ):
        client.create_producer(TOPIC)
    with site.client("pulsar+ssl://nobody.example:1") as client, pytest.raises(ConnectError):
        client.create_producer(TOPIC)


def command(name: str, *arguments: str, **environment: str) -> str:
    """Returns what a command prints on both streams."""
    done = subprocess.run(
        [sys.executable, "-m", f"magnetar.cli.{name}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_commands_connect_through_the_proxy(site: Site, tmp_path: Path) -> None:
    name, topic = NAMES[0], TOPIC + "-3"
    proxy = f"pulsar+ssl://127.0.0.1:{site.proxy.port}"
    url, trust = site.url(name), str(site.authority.trust)
    with site.client(url) as client:
        client.subscribe(topic, "s")
    site.proxy.names.clear()
    through = ["--proxy-url", proxy, "--proxy-protocol", "SNI"]
    command(
        "pulsar_client", "--url", url, "--tlsTrustCertsFilePath", trust, *through, "produce", topic, "-m", "a"
    )
    assert set(site.proxy.names) == {name}

    site.proxy.names.clear()
    configuration = tmp_path / "client.conf"
    configuration.write_text(
        f"brokerServiceUrl={url}\ntlsTrustCertsFilePath={trust}\nproxyServiceUrl={proxy}\nproxyProtocol=SNI\n"
    )
    conf = {"PULSAR_CLIENT_CONF": str(configuration)}
    assert "content:a" in command("pulsar_client", "consume", topic, "-s", "s", "-n", "1", **conf)
    assert set(site.proxy.names) == {name}

    site.proxy.names.clear()
    flags = ["-u", url, "--trust-cert-file", trust, *through, "-m", "10", "--warmup-time", "0"]
    command("pulsar_perf", "produce", topic, *flags)
    assert set(site.proxy.names) == {name}
    with site.client(url) as client:
        reader = client.create_reader(topic, MessageId.earliest)
        assert len([reader.read_next(20_000) for _ in range(11)]) == 11


def test_refused() -> None:
    proxy = "pulsar+ssl://localhost:1"
    with pytest.raises(InvalidConfiguration, match="proxy_service_url requires TLS"):
        Client("pulsar://localhost:1", proxy_service_url=proxy)
    for url in ("pulsar://localhost:1", "pulsar+ssl://a:1,b:1"):
        with pytest.raises(InvalidUrl, match="proxy_service_url must be like"):
            Client("pulsar+ssl://localhost:1", proxy_service_url=url)
    with pytest.raises(InvalidConfiguration, match="proxy_protocol must be"):
        Client("pulsar+ssl://localhost:1", proxy_service_url=proxy, proxy_protocol=1)  # type: ignore[arg-type]
