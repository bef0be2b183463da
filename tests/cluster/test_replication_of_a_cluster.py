"""A cluster on ZooKeeper and BookKeeper and a standalone broker that replicate to each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest
from bookkeeper_servers import CLUSTER, BookKeeperServers
from cluster_broker import BrokerProcess
from polling import until
from replicated_sites import Site, received_once
from server import Server

_TENANT = "both"
_TOPICS = [f"{_TENANT}/n/t{number}" for number in range(4)]
_PART = 150


class World(NamedTuple):
    brokers: list[BrokerProcess]
    cluster: Site[BrokerProcess]
    """Asked through the first broker; its client knows both."""
    alone: Site[Server]


@pytest.fixture
def world(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[World]:
    brokers = [BrokerProcess(tmp_path / f"broker{number}", without_brokers) for number in range(2)]
    (tmp_path / "alone").mkdir()
    server = Server(tmp_path / "alone", {"clusterName": "alone"})
    try:
        for each in (*brokers, server):
            each.start()
        cluster, alone = Site(CLUSTER, brokers[0]), Site("alone", server)
        cluster.client.close()
        cluster.client = pulsar.Client(_hosts(brokers), operation_timeout_seconds=60)
        yield World(brokers, cluster, alone)
        cluster.client.shutdown()
        alone.client.shutdown()
    finally:
        for each in (*brokers, server):
            each.close()


def _hosts(brokers: list[BrokerProcess]) -> str:
    return "pulsar://" + ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)


def _set_up(world: World) -> None:
    cluster, alone = world.cluster, world.alone
    there = {"serviceUrl": cluster.server.http_url, "brokerServiceUrl": _hosts(world.brokers)}
    here = {"serviceUrl": alone.server.http_url, "brokerServiceUrl": alone.server.url}
    alone.ask("PUT", f"/clusters/{CLUSTER}", there)
    cluster.ask("PUT", "/clusters/alone", here)
    names = [CLUSTER, "alone"]
    policies = {"replication_clusters": names, "deduplicationEnabled": True, "bundles": {"numBundles": 8}}
    for site in (cluster, alone):
        site.ask("PUT", f"/tenants/{_TENANT}", {"allowedClusters": names})
        site.ask("PUT", f"/namespaces/{_TENANT}/n", policies)


def _owner(world: World, topic: str) -> BrokerProcess:
    """Asked at a broker that serves."""
    status, told = world.brokers[0].ask("GET", f"/lookup/v2/topic/persistent/{topic}")
    assert status == 200, told
    url = json.loads(told)["brokerUrl"]
    return next(broker for broker in world.brokers if broker.url == url)


def _producers(site: Site[BrokerProcess] | Site[Server]) -> list[pulsar.Producer]:
    """They have the same name in both clusters."""
    return [
        site.client.create_producer(
            f"persistent://{topic}", "publisher", send_timeout_millis=0, block_if_queue_full=True
        )
        for topic in _TOPICS
    ]


def test_each_message_is_in_both_once_and_in_order_after_kills_of_both(world: World) -> None:
    _set_up(world)
    sites = (world.cluster, world.alone)
    consumers = [[site.subscribe(topic) for topic in _TOPICS] for site in sites]
    producers = [_producers(site) for site in sites]
    killed = _owner(world, _TOPICS[0])
    for number in range(3 * _PART):
        for site, those in zip(sites, producers, strict=True):
            for producer in those:
                producer.send_async(f"{site.name} {number}".encode(), None)
        if number == _PART:
            killed.kill()
        elif number == 2 * _PART:
            world.alone.server.restart(kill=True)
    for those in producers:
        for producer in those:
            producer.flush()
    killed.start()
    for those in consumers:
        for consumer in those:
            found = received_once(consumer, 6 * _PART)
            for site in sites:
                mine = [each for each in found if each.startswith(site.name)]
                assert mine == [f"{site.name} {number}" for number in range(3 * _PART)]
    for topic in _TOPICS:
        until(lambda topic=topic: _nothing_left(world, topic), f"{topic} is in both, and consumed")  # type: ignore[misc]


def _nothing_left(world: World, topic: str) -> bool:
    """All is confirmed by the other cluster, and nothing is stored that was not counted above."""
    for server, other in ((_owner(world, topic), "alone"), (world.alone.server, CLUSTER)):
        status, told = server.ask("GET", f"/admin/v2/persistent/{topic}/stats")
        assert status == 200, told
        stats = json.loads(told)
        if stats["replication"][other]["replicationBacklog"] or stats["subscriptions"]["s"]["msgBacklog"]:
            return False
    return True
