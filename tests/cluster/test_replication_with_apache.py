"""A standalone broker and a cluster of Apache Pulsar that replicate to each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pulsar
import pytest
from apache_broker import ApacheBroker
from bookkeeper_servers import CLUSTER, BookKeeperServers
from polling import until
from replicated_sites import Site, connect, make_namespace, nothing_more, received, received_once
from running import running
from server import Server

from magnetar.client import Client

_PART = 500


@pytest.fixture(scope="module")
def apache(
    started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site[ApacheBroker]]:
    broker = ApacheBroker(tmp_path_factory.mktemp("apache"), started_cluster)
    with running([broker]):
        site = Site(CLUSTER, broker)
        with closing(site.client):
            yield site


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site[Server]]:
    server = Server(tmp_path_factory.mktemp("ours"), {"clusterName": "ours"})
    with running([server]):
        site = Site("ours", server)
        with closing(site.client):
            yield site


Pair = tuple[Site[Server], Site[ApacheBroker]]


@pytest.fixture(scope="module")
def pair(ours: Site[Server], apache: Site[ApacheBroker]) -> Pair:
    connect(ours, apache)
    return ours, apache


def contents(who: str, count: int) -> list[str]:
    return [f"{who}{number}" for number in range(count)]


def test_both_ways_without_deduplication(pair: Pair) -> None:
    ours, apache = pair
    topic = f"{make_namespace('plain', *pair)}/t"
    here, there = ours.subscribe(topic), apache.subscribe(topic)
    ours.publish(topic, contents("o", _PART), properties={"k": "v"}, partition_key="key")
    found = received(there, _PART)
    assert [message.data().decode() for message in found] == contents("o", _PART)
    assert (found[0].partition_key(), found[0].properties()["k"]) == ("key", "v")
    apache.publish(topic, contents("a", _PART))
    assert [message.data().decode() for message in received(here, 2 * _PART)][_PART:] == contents("a", _PART)
    assert [message.data().decode() for message in received(there, _PART)] == contents("a", _PART)
    assert nothing_more(here)
    assert nothing_more(there)


def test_non_persistent_topics_both_ways(pair: Pair) -> None:
    topic = f"{make_namespace('passing', *pair)}/t"
    consumers = [site.client.subscribe(f"non-persistent://{topic}", "s") for site in pair]
    for source, target in (pair, pair[::-1]):
        producer = source.client.create_producer(f"non-persistent://{topic}")

        def connected(source: Site[Any] = source, target: Site[Any] = target) -> bool:
            stats = json.loads(source.ask("GET", f"/non-persistent/{topic}/stats"))
            return bool(stats["replication"].get(target.name, {}).get("connected"))

        until(connected, f"{source.name} is connected to {target.name}")
        for content in contents(source.name, 20):
            producer.send(content.encode())
        for consumer in consumers:
            found = [message.data().decode() for message in received(consumer, 20)]
            assert found == contents(source.name, 20)
        producer.close()
    assert all(nothing_more(consumer) for consumer in consumers)


def test_nothing_is_lost_or_out_of_order_over_kills_of_both(pair: Pair) -> None:
    namespace = make_namespace("once", *pair)
    for site in pair:
        site.ask("POST", f"/namespaces/{namespace}/deduplication", True)
    topic = f"{namespace}/t"
    consumers = [site.subscribe(topic) for site in pair]
    producers = [
        site.client.create_producer(f"persistent://{topic}", block_if_queue_full=True) for site in pair
    ]
    for number in range(3 * _PART):
        for producer, who in zip(producers, "oa", strict=True):
            producer.send_async(f"{who}{number}".encode(), None)
        if number % _PART == _PART // 2:
            for producer in producers:
                producer.flush()
            killed = pair[number // _PART % 2].server
            killed.kill()
            killed.start()
    for producer in producers:
        producer.flush()
        producer.close()
    here, there = consumers
    found = received_once(here, 6 * _PART)
    for who in "oa":
        assert [each for each in found if each.startswith(who)] == contents(who, 3 * _PART)
    assert nothing_more(here)
    # Apache's broker forgets positions of other clusters that it stored after its last snapshot: what it has
    # not confirmed when it is killed may be there twice.
    first: dict[str, None] = {}
    while len(first) < 6 * _PART:
        first[received(there, 1)[0].data().decode()] = None
    for who in "oa":
        assert [each for each in first if each.startswith(who)] == contents(who, 3 * _PART)


def test_schemas_are_declared_in_both_directions(pair: Pair) -> None:
    class Order(pulsar.schema.Record):
        a = pulsar.schema.String()

    namespace = make_namespace("schemas", *pair)
    schema = pulsar.schema.AvroSchema(Order)
    for source, target in (pair, pair[::-1]):
        topic = f"{namespace}/from-{source.name}"
        producer = source.client.create_producer(f"persistent://{topic}", schema=schema)
        producer.send(Order(a="content"))

        def declared(target: Site[Server] | Site[ApacheBroker] = target, topic: str = topic) -> bool:
            return b"AVRO" in target.ask("GET", f"/schemas/{topic}/schema", None, (200, 404))

        until(declared, f"the schema is in {target.name}")
        consumer = target.client.subscribe(
            f"persistent://{topic}",
            "s",
            initial_position=pulsar.InitialPosition.Earliest,
            schema=schema,
        )
        assert consumer.receive(30_000).value().a == "content"
        producer.close()


def test_partitions_are_made_in_both_directions(pair: Pair) -> None:
    namespace = make_namespace("partitions", *pair)
    for source, target in (pair, pair[::-1]):
        topic = f"{namespace}/from-{source.name}"
        source.ask("PUT", f"/persistent/{topic}/partitions", 3)

        def made(target: Site[Server] | Site[ApacheBroker] = target, topic: str = topic) -> bool:
            answer = target.ask("GET", f"/persistent/{topic}/partitions", None, (200, 404))
            return b'"partitions":3' in answer

        until(made, f"the partitions are in {target.name}")
        consumer = target.subscribe(topic)
        source.publish(topic, contents("m", 30))
        assert sorted(message.data().decode() for message in received(consumer, 30)) == sorted(
            contents("m", 30)
        )


def _subscribe(site: Site[Server] | Site[ApacheBroker], topic: str) -> pulsar.Consumer:
    return site.client.subscribe(
        f"persistent://{topic}",
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        replicate_subscription_state_enabled=True,
    )


def _mark_delete(site: Site[Server] | Site[ApacheBroker], topic: str) -> int:
    """The entry up to which its subscription has come; -1: there is none, or it has not come far."""
    found = json.loads(site.ask("GET", f"/persistent/{topic}/internalStats", None, (200, 404)))
    cursor = found.get("cursors", {}).get("s")
    return -1 if cursor is None else int(cursor["markDeletePosition"].split(":")[1])


@pytest.mark.parametrize("way", [1, -1], ids=["from ours", "from Apache's"])
def test_subscriptions_move_along_in_both_directions(pair: Pair, way: int) -> None:
    source, target = pair[::way]
    topic = f"{make_namespace(f'subscriptions-{source.name}', *pair)}/t"
    consumer = _subscribe(source, topic)
    source.publish(topic, contents("a", 100))
    received(consumer, 100)

    def moves() -> bool:
        # Apache's broker takes a snapshot into account when something behind it is acknowledged.
        source.publish(topic, ["between"])
        received(consumer, 1)
        return _mark_delete(target, topic) >= 99

    until(moves, "it has moved along")
    source.publish(topic, [*contents("b", 100), "last"])
    consumer.close()
    there = _subscribe(target, topic)
    found = []
    while "last" not in found:
        found.append(received(there, 1)[0].data().decode())
    assert [each for each in found if each != "between"] == [*contents("b", 100), "last"]
    there.close()


def test_in_three_clusters_snapshots_of_either_kind_take_two_rounds(
    pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours, apache = pair
    server = Server(tmp_path_factory.mktemp("third"), {"clusterName": "third"})
    server.start()
    third = Site("third", server)
    try:
        connect(ours, apache, third, tenant="three")
        sites = (ours, apache, third)
        for site in sites:
            clusters = {"replication_clusters": [each.name for each in sites]}
            site.ask("PUT", "/namespaces/three/subscriptions", clusters)
        for source in (ours, apache):
            topic = f"three/subscriptions/from-{source.name}"
            others = [site for site in sites if site is not source]
            consumer = _subscribe(source, topic)
            source.publish(topic, contents("a", 20))
            received(consumer, 20)

            def moves(source: Any = source, topic: str = topic, others: Any = others) -> bool:
                for site in sites:
                    site.publish(topic, ["between"])
                received(consumer, 3)  # noqa: B023 - it is called in this turn of the loop only
                return all(_mark_delete(site, topic) >= 19 for site in others)

            until(moves, "it has moved along in both")
            consumer.close()
    finally:
        third.client.close()
        server.close()


@pytest.fixture(scope="module")
def last(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site[Server]]:
    """One more cluster of ours, behind the two."""
    server = Server(tmp_path_factory.mktemp("last"), {"clusterName": "last"})
    with running([server]):
        site = Site("last", server)
        with closing(site.client):
            connect(*pair, site, tenant="shapes")
            yield site


@pytest.mark.parametrize(
    ("order", "ring"),
    [("ours lab last", False), ("lab ours last", False), ("ours last lab", False), ("ours lab last", True)],
    ids=["Apache's in the middle", "Apache's first", "Apache's last", "a ring"],
)
def test_a_message_goes_one_hop(pair: Pair, last: Site[Server], order: str, ring: bool) -> None:
    sites: dict[str, Site[Any]] = {site.name: site for site in (*pair, last)}
    names = order.split()
    targets = dict(zip(names, names[1:] + names[:ring], strict=False))
    namespace = f"shapes/{order.replace(' ', '-')}-{ring}"
    topic = f"{namespace}/t"
    for name, site in sites.items():
        clusters = [name, targets[name]] if name in targets else [name]
        policies = {"replication_clusters": clusters, "deduplicationEnabled": True}
        site.ask("PUT", f"/namespaces/{namespace}", policies)
    consumers = {name: site.subscribe(topic) for name, site in sites.items()}
    for name, site in sites.items():
        site.publish(topic, contents(f"{name} ", 50))
    for name, target in targets.items():

        def confirmed(name: str = name, target: str = target) -> bool:
            link = sites[name].stats(topic)["replication"].get(target)
            return link is not None and not link["replicationBacklog"]

        until(confirmed, f"{name} has sent all to {target}")
    for name, consumer in consumers.items():
        origins = [each for each in names if name in (each, targets.get(each))]
        found = [message.data().decode() for message in received(consumer, 50 * len(origins))]
        for origin in origins:
            mine = [each for each in found if each.startswith(f"{origin} ")]
            assert mine == contents(f"{origin} ", 50)
        assert nothing_more(consumer)
        consumer.close()


def test_the_client_and_replicators_follow_a_namespace_that_apache_moves(
    pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours, apache = pair
    namespace = make_namespace("moved", *pair)
    apache.ask("POST", f"/namespaces/{namespace}/replication", [CLUSTER])
    topic = f"{namespace}/t"
    green = Server(tmp_path_factory.mktemp("green"), {"clusterName": "green"})
    green.start()
    client = Client(apache.server.url)
    try:
        target = Site("green", green)
        target.ask("PUT", "/tenants/geo", {"allowedClusters": ["green"]})
        target.ask("PUT", f"/namespaces/{namespace}")
        there = target.subscribe(topic)
        producer = client.create_producer(f"persistent://{topic}")
        producer.send(b"apache")
        ours.publish(topic, ["ours"])
        until(lambda: ours.replication(topic, CLUSTER)["msgOutCount"] == 1, "it is replicated")
        url = {"serviceUrl": green.http_url, "brokerServiceUrl": green.url}
        apache.ask("POST", f"/clusters/{CLUSTER}/migrate?migrated=false", url)
        apache.ask("POST", f"/namespaces/{namespace}/migration", True)
        apache.ask("PUT", f"/persistent/{topic}/unload")
        producer.send(b"moved")
        assert [message.data() for message in received(there, 1)] == [b"moved"]
        ours.publish(topic, ["ours moved"])
        assert [message.data() for message in received(there, 1)] == [b"ours moved"]
        target.client.close()
    finally:
        client.close()
        green.close()
