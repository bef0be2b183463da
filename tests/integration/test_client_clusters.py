"""A client of several clusters: it uses another one when one fails, or when the program says so."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from server import Server

from magnetar import pulsar
from magnetar.client import (
    Client,
    ClusterAddress,
    ClusterFailover,
    Consumer,
    InitialPosition,
    InvalidConfiguration,
    InvalidUrl,
    Message,
)

TOPIC = "persistent://public/default/orders"
SECONDS = 60.0


def received(consumer: Consumer) -> Message:
    message = consumer.receive(timeout_millis=int(SECONDS * 1000))
    consumer.acknowledge(message)
    return message


def until_used(client: Client | pulsar.Client, url: str) -> None:
    end = time.monotonic() + SECONDS
    while used(client) != url:
        assert time.monotonic() < end, used(client)
        time.sleep(0.02)


def used(client: Client | pulsar.Client) -> str:
    info = client.service if isinstance(client, Client) else client.get_service_info()
    return info.service_url


def policy(*servers: Server, **options: int) -> ClusterFailover:
    primary, *others = (ClusterAddress(each.url) for each in servers)
    return ClusterFailover(primary, others, check_interval_ms=200, **options)


def test_it_goes_to_another_cluster_and_comes_back(start_server: Callable[..., Server]) -> None:
    east, west = start_server(), start_server()
    with Client(policy(east, west), initial_backoff_interval_ms=20, max_backoff_interval_ms=500) as client:
        producer = client.create_producer(TOPIC)
        consumer = client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        producer.send(b"1")
        assert received(consumer).data() == b"1"
        east.kill()
        # Sent while no cluster is known to answer, and stored by the other.
        producer.send(b"2")
        assert used(client) == west.url
        assert received(consumer).data() == b"2"
        east.start()
        until_used(client, east.url)
        producer.send(b"3")
        # The broker may have been killed before it had the acknowledgement of the first message.
        found = received(consumer).data()
        assert (received(consumer).data() if found == b"1" else found) == b"3"
    with Client(west.url) as client:
        reader = client.subscribe(TOPIC, "check", initial_position=InitialPosition.Earliest)
        assert received(reader).data() == b"2"


def test_a_cluster_that_does_not_answer_at_first(start_server: Callable[..., Server]) -> None:
    west = start_server()
    with socket.socket() as never_listens:
        never_listens.bind(("127.0.0.1", 0))
        nowhere = ClusterAddress(f"pulsar://127.0.0.1:{never_listens.getsockname()[1]}")
        untrusted = ClusterAddress("pulsar+ssl://127.0.0.1:1", tls_trust_certs_file_path="/nonexistent")
        clusters = ClusterFailover(nowhere, [untrusted, ClusterAddress(west.url)], 100, failover_threshold=2)
        with Client(clusters) as client:
            client.create_producer(TOPIC).send(b"x")
            assert used(client) == west.url


def test_a_program_changes_the_cluster(start_server: Callable[..., Server]) -> None:
    east, west = start_server(), start_server()
    with Client(east.url) as client:
        producer = client.create_producer(TOPIC)
        consumer = client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        client.use_service(ClusterAddress(west.url))
        with Client(west.url) as other:
            audit = other.subscribe(TOPIC, "audit", initial_position=InitialPosition.Earliest)
            producer.send(b"x")
            assert received(audit).data() == b"x"
        producer.send(b"y")
        assert [received(consumer).data() for _ in range(2)] == [b"x", b"y"]
        with pytest.raises(InvalidUrl):
            client.use_service(ClusterAddress("ftp://x"))
        assert used(client) == west.url


def test_refused() -> None:
    info = ClusterAddress("pulsar://localhost:1")
    with pytest.raises(InvalidConfiguration, match="secondary is empty; give at least one"):
        Client(ClusterFailover(info, []))
    with pytest.raises(InvalidConfiguration, match="failover_threshold must be above 0, not 0"):
        Client(ClusterFailover(info, [info], failover_threshold=0))
    with pytest.raises(InvalidConfiguration, match="in each ClusterAddress"):
        Client(ClusterFailover(info, [info]), tls_trust_certs_file_path="x.pem")
    with pytest.raises(InvalidUrl):
        Client(ClusterFailover(info, [ClusterAddress("x")]))


def test_the_official_interface(start_server: Callable[..., Server]) -> None:
    east, west = start_server(), start_server()
    infos = [pulsar.ServiceInfo(each.url) for each in (east, west)]
    client = pulsar.Client(pulsar.AutoClusterFailover(infos[0], infos[1:], check_interval_ms=200))
    producer = client.create_producer(TOPIC)
    producer.send(b"1")
    assert used(client) == east.url
    east.kill()
    producer.send(b"2")
    assert used(client) == west.url
    client.close()


def test_a_provider_of_the_official_interface(start_server: Callable[..., Server]) -> None:
    east, west = start_server(), start_server()

    class Provider(pulsar.ServiceInfoProvider):
        tell: Callable[[pulsar.ServiceInfo], None]
        closed = False

        def initial_service_info(self) -> pulsar.ServiceInfo:
            return pulsar.ServiceInfo(east.url)

        def initialize(self, on_service_info_update: Callable[[pulsar.ServiceInfo], None]) -> None:
            self.tell = on_service_info_update

        def close(self) -> None:
            self.closed = True

    provider = Provider()
    client = pulsar.Client(provider)
    client.create_producer(TOPIC).send(b"1")
    provider.tell(pulsar.ServiceInfo(west.url))
    assert used(client) == west.url
    # Both clusters have the same name, so that their brokers give producers the same names.
    client.create_producer(TOPIC, producer_name="second").send(b"2")
    client.close()
    assert provider.closed
    with Client(west.url) as other:
        audit = other.subscribe(TOPIC, "audit", initial_position=InitialPosition.Earliest)
        assert received(audit).data() == b"2"
