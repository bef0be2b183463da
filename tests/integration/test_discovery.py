"""Service discovery before one broker: clients are told where it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pulsar
import pytest
from proxy_process import DiscoveryProcess
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.client import Client as BlockingClient
from magnetar.client.aio import Client


@pytest.fixture(scope="module")
def broker(plain_broker: Server) -> Server:
    return plain_broker


@pytest.fixture(scope="module")
def discovery(broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DiscoveryProcess]:
    running = DiscoveryProcess(
        tmp_path_factory.mktemp("discovery"),
        brokerServiceURL=broker.url,
        brokerWebServiceURL=broker.http_url,
        bindOnLocalhost="true",
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


def test_requests_are_sent_to_a_broker(discovery: DiscoveryProcess, broker: Server) -> None:
    parts = urlsplit(discovery.http_url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request("GET", "/admin/v2/clusters?x=a%20b")
    response = connection.getresponse()
    assert response.status == 307
    assert response.headers["Location"] == f"{broker.http_url}/admin/v2/clusters?x=a%20b"
    connection.close()
    assert AdminClient(discovery.http_url).topics("public/default") == []


def test_the_official_client_finds_its_broker(discovery: DiscoveryProcess, topic: str) -> None:
    client = pulsar.Client(discovery.url, operation_timeout_seconds=20)
    try:
        client.create_producer(topic).send(b"x")
    finally:
        client.close()


def test_nothing_goes_through(discovery: DiscoveryProcess, broker: Server, topic: str) -> None:
    async def work() -> None:
        client = Client(discovery.url)
        producer = await client.create_producer(topic)
        await producer.send(b"x")
        owner = await client.services.lookup.owner(topic)
        assert owner.broker == owner.through
        assert str(owner.broker) == broker.url.removeprefix("pulsar://")
        await client.close()

    asyncio.run(work())
    with BlockingClient(discovery.url) as client:
        assert client.get_topic_partitions(topic) == [topic]


def test_without_brokers_clients_are_told_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = DiscoveryProcess(tmp_path_factory.mktemp("alone"), brokerServiceURL="pulsar://127.0.0.1:1")
    alone.start()
    try:
        assert alone.ask("GET", "/admin/v2/clusters")[0] == 503
        alone.stop()
    finally:
        alone.close()
