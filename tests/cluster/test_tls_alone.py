"""Two brokers that have listeners with TLS and no others, on Apache ZooKeeper and BookKeeper."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from certificates import Authority
from cluster_broker import BrokerProcess
from polling import until_wanted
from running import running

PATIENCE = 60.0
NAMESPACE = "public/tls"
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(12)]


class TlsBroker(BrokerProcess):
    def __init__(self, folder: Path, servers: BookKeeperServers, authority: Authority) -> None:
        folder.mkdir()
        pair = authority.server(folder.name)
        self.context = ssl.create_default_context(cafile=authority.trust)
        super().__init__(
            folder,
            servers,
            brokerServicePort="",
            webServicePort="",
            brokerServicePortTls=0,
            webServicePortTls=0,
            tlsCertificateFilePath=pair.certificate,
            tlsKeyFilePath=pair.key,
            brokerClientTlsEnabled="true",
            brokerClientTrustCertsFilePath=authority.trust,
        )

    def _port_options(self, binary: int, http: int) -> list[str]:
        return []

    def _ports_of(self, ports: dict[str, int]) -> tuple[int, int]:
        assert set(ports) == {"pulsar+ssl", "https"}
        return ports["pulsar+ssl"], ports["https"]

    @property
    def broker_id(self) -> str:
        return urlsplit(self.urls["https"]).netloc

    def asks(self, method: str, path: str, body: Any = None) -> Any:
        """As administration does: it goes where it is sent."""
        url = f"{self.urls['https']}{path}"
        for _ in range(5):
            parts = urlsplit(url)
            connection = HTTPSConnection(parts.netloc, timeout=PATIENCE, context=self.context)
            try:
                headers = {"Content-Type": "application/json"}
                target = f"{parts.path}?{parts.query}"
                connection.request(method, target, None if body is None else json.dumps(body), headers)
                response = connection.getresponse()
                answer, location = response.read(), response.getheader("Location")
            finally:
                connection.close()
            if response.status != 307 or location is None:
                assert response.status < 300, (response.status, answer)
                return json.loads(answer) if answer.startswith((b"{", b"[")) else answer.decode()
            assert location.startswith("https://")
            url = location
        raise AssertionError("it is sent on for ever")

    def owner_of(self, topic: str) -> str:
        found = self.asks("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}")
        assert "brokerUrl" not in found
        return urlsplit(found["httpUrlTls"]).netloc


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[TlsBroker]]:
    authority = Authority(tmp_path)
    found = [TlsBroker(tmp_path / f"broker{number}", without_brokers, authority) for number in range(2)]
    with running(found):
        yield found


def test_each_keeps_what_it_has_and_both_are_asked_by_tls(brokers: list[TlsBroker], tmp_path: Path) -> None:
    one, two = brokers
    until_wanted(lambda: two.asks("GET", "/admin/v2/brokers/lab"), lambda found: len(found) == 2)
    one.asks("PUT", f"/admin/v2/namespaces/{NAMESPACE}", {"bundles": {"numBundles": 8}})
    clients = [
        pulsar.Client(each.urls["pulsar+ssl"], tls_trust_certs_file_path=str(tmp_path / "authority.pem"))
        for each in brokers
    ]
    producers = [clients[number % 2].create_producer(topic) for number, topic in enumerate(TOPICS)]
    consumers = [clients[(number + 1) % 2].subscribe(topic, "s") for number, topic in enumerate(TOPICS)]
    owners = {topic: one.owner_of(topic) for topic in TOPICS}
    assert set(owners.values()) == {one.broker_id, two.broker_id}
    assert {topic: two.owner_of(topic) for topic in TOPICS} == owners
    moved = TOPICS[0]
    bundle = one.asks("GET", f"/lookup/v2/topic/{moved.replace('://', '/')}/bundle")
    target = two.broker_id if owners[moved] == one.broker_id else one.broker_id
    one.asks("PUT", f"/admin/v2/namespaces/{NAMESPACE}/{bundle}/unload?destinationBroker={target}")
    for producer in producers:
        producer.send(b"x")
    for consumer in consumers:
        assert consumer.receive(int(PATIENCE * 1000)).data() == b"x"
    assert two.owner_of(moved) == target
    two.asks("POST", f"/admin/v2/namespaces/{NAMESPACE}/clearBacklog")
    for client in clients:
        client.close()
    for broker in brokers:
        assert "earlier run" not in broker.log
        assert "no longer owned by this broker" not in broker.log
