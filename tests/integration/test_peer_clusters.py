"""Peers of a cluster: clients and administrators of a namespace that only a peer lists are sent there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
from proxy_process import ProxyProcess
from raw_client import Client as RawClient
from replicated_sites import Site, connect, nothing_more, received
from server import Server

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MetadataError

Pair = tuple[Site[Server], Site[Server]]
NAMESPACE = "geo/moved"


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[Pair]:
    east, west = (Site(name, start_server(clusterName=name)) for name in ("east", "west"))
    connect(east, west)
    for site in (east, west):
        site.ask("PUT", f"/namespaces/{NAMESPACE}", {"replication_clusters": ["west"]})
    east.ask("POST", "/clusters/east/peers", ["west"])
    yield east, west
    east.client.close()
    west.client.close()


def test_clients_of_a_cluster_publish_and_consume_at_its_peer(pair: Pair) -> None:
    east, west = pair
    topic = f"{NAMESPACE}/t"
    consumer = east.subscribe(topic)
    east.publish(topic, ["1", "2"])
    assert [message.data() for message in received(consumer, 2)] == [b"1", b"2"]
    assert west.stats(topic)["msgInCounter"] == 2
    # Nothing of it is in the cluster that was asked.
    assert json.loads(east.ask("GET", f"/persistent/{NAMESPACE}")) == []
    consumer.close()


def test_topics_have_the_partitions_that_they_have_at_the_peer(pair: Pair) -> None:
    east, west = pair
    topic = f"{NAMESPACE}/parted"
    west.ask("PUT", f"/persistent/{topic}/partitions", 3)
    producer = east.client.create_producer(f"persistent://{topic}")
    for number in range(3):
        producer.send(str(number).encode())
    producer.close()
    there = west.subscribe(topic)
    assert {message.data() for message in received(there, 3)} == {b"0", b"1", b"2"}
    assert nothing_more(there)
    assert json.loads(west.ask("GET", f"/persistent/{topic}/partitions"))["partitions"] == 3
    there.close()


def test_lookups_and_administrators_are_redirected(pair: Pair) -> None:
    east, west = pair
    name = f"persistent://{NAMESPACE}/t"
    with closing(RawClient(east.server.port)) as client:
        lookup = client.ask(BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=name)
    assert (lookup.response, lookup.brokerServiceUrl) == (lookup.Redirect, west.server.url)
    assert (lookup.authoritative, lookup.proxy_through_service_url) == (True, False)
    for path in (f"/admin/v2/persistent/{NAMESPACE}/t/stats", f"/lookup/v2/topic/persistent/{NAMESPACE}/t"):
        status, headers = east.server.head_of("GET", path)
        assert status == 307
        assert headers["location"].startswith(f"{west.server.http_url}{path}?authoritative=")


def test_a_proxy_sends_clients_to_a_peer_that_it_may_connect_to(pair: Pair, tmp_path: Path) -> None:
    east, west = pair
    topic = f"persistent://{NAMESPACE}/through"
    urls = {"brokerServiceURL": east.server.url, "brokerWebServiceURL": east.server.http_url}
    proxies = [
        ProxyProcess(tmp_path / name, brokerProxyAllowedTargetPorts=ports, **urls)
        for name, ports in (("open", "*"), ("closed", str(east.server.port)))
    ]
    try:
        for proxy in proxies:
            proxy.start()
        allowed, denied = (pulsar.Client(proxy.url, operation_timeout_seconds=3) for proxy in proxies)
        consumer = allowed.subscribe(topic, "s")
        producer = allowed.create_producer(topic)
        producer.send(b"1")
        assert [message.data() for message in received(consumer, 1)] == [b"1"]
        assert west.stats(f"{NAMESPACE}/through")["msgInCounter"] == 1
        with pytest.raises(pulsar.PulsarException):
            denied.create_producer(topic)
        assert "brokerProxyAllowedTargetPorts" in proxies[1].log
        for client in (allowed, denied):
            client.close()
    finally:
        for proxy in proxies:
            proxy.close()


def test_lists_with_a_cluster_and_its_peer_are_refused(pair: Pair) -> None:
    east, _ = pair
    both = ["east", "west"]
    east.ask("PUT", "/namespaces/geo/alone", {"replication_clusters": ["east"]})
    reason = "east's peer-clusters [west] can't be part of replication-clusters [east, west]"
    for path in ("replication", "allowedClusters"):
        assert reason in east.ask("POST", f"/namespaces/geo/alone/{path}", both, (409,)).decode()
    for lists in ({"replication_clusters": both}, {"allowed_clusters": both}):
        assert reason in east.ask("PUT", "/namespaces/geo/new", lists, (409,)).decode()


def test_a_peer_without_addresses_is_reported(pair: Pair) -> None:
    east, _ = pair
    east.ask("POST", "/clusters/west", {})
    topic = f"{NAMESPACE}/t"
    with closing(RawClient(east.server.port)) as client:
        lookup = client.ask(BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=f"persistent://{topic}")
    assert lookup.error == MetadataError
    assert lookup.message == "Redirected cluster's brokerService url is not configured"
    told = east.ask("GET", f"/persistent/{topic}/stats", None, (412,)).decode()
    assert "The record of cluster west has neither serviceUrl nor serviceUrlTls" in told
    east.ask("POST", "/clusters/east/peers", [])
    told = east.ask("GET", f"/persistent/{topic}/stats", None, (412,)).decode()
    assert "Namespace missing local cluster name in clusters list: local_cluster=east" in told
