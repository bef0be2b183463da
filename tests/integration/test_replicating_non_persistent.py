"""Non-persistent topics of two standalone brokers that replicate to each other."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest
from polling import until
from process_signals import stop
from replicated_sites import Site, connect, make_namespace, nothing_more, received
from server import Server

Pair = tuple[Site[Server], Site[Server]]


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[Pair]:
    east, west = (
        Site("east", start_server(clusterName="east", replicationProducerQueueSize="100")),
        Site("west", start_server(clusterName="west")),
    )
    connect(east, west)
    yield east, west
    east.client.close()
    west.client.close()


def figures(site: Site[Server], topic: str, cluster: str) -> dict[str, Any]:
    stats = json.loads(site.ask("GET", f"/non-persistent/{topic}/stats"))
    found: dict[str, Any] = stats["replication"][cluster]
    return found


def connected(site: Site[Server], topic: str, cluster: str) -> None:
    until(lambda: bool(figures(site, topic, cluster)["connected"]), f"{site.name} is connected to {cluster}")


def subscribe(site: Site[Server], topic: str) -> pulsar.Consumer:
    return site.client.subscribe(f"non-persistent://{topic}", "s")


def make_producer(site: Site[Server], topic: str, **options: Any) -> pulsar.Producer:
    return site.client.create_producer(f"non-persistent://{topic}", **options)


def contents(messages: list[pulsar.Message]) -> list[str]:
    return [message.data().decode() for message in messages]


def test_what_is_published_goes_to_the_other_cluster_and_no_further(pair: Pair) -> None:
    east, west = pair
    topic = f"{make_namespace('passing', *pair)}/t"
    here, there = subscribe(east, topic), subscribe(west, topic)
    for site, other in (pair, pair[::-1]):
        producer = make_producer(site, topic)
        connected(site, topic, other.name)
        for number in range(50):
            producer.send(f"{site.name}{number}".encode(), properties={"k": "v"}, partition_key="key")
        for consumer in (here, there):
            found = received(consumer, 50)
            assert contents(found) == [f"{site.name}{number}" for number in range(50)]
            assert {message.partition_key() for message in found} == {"key"}
            assert [message.properties() for message in found] == 50 * [{"k": "v"}]
        sent, came = figures(site, topic, other.name), figures(other, topic, site.name)
        assert (sent["msgOutCount"], sent["msgDropCount"], sent["replicationBacklog"]) == (50, 0, 0)
        assert came["msgInCount"] == 50
    assert nothing_more(here)
    assert nothing_more(there)


def test_clusters_that_a_message_does_not_name_do_not_get_it(pair: Pair) -> None:
    east, west = pair
    topic = f"{make_namespace('named', *pair)}/t"
    there = subscribe(west, topic)
    producer = make_producer(east, topic)
    connected(east, topic, "west")
    producer.send(b"here", disable_replication=True)
    producer.send(b"there", replication_clusters=["west"])
    assert contents(received(there, 1)) == ["there"]
    assert figures(east, topic, "west")["msgDropCount"] == 0


def test_schemas_are_declared_in_the_other_cluster(pair: Pair) -> None:
    class Order(pulsar.schema.Record):
        number = pulsar.schema.Integer()

    east, west = pair
    topic = f"{make_namespace('declared', *pair)}/t"
    producer = make_producer(east, topic, schema=pulsar.schema.AvroSchema(Order))
    connected(east, topic, "west")

    def declared() -> bool:
        # The first ones are dropped: nothing waits for the answer of the other cluster.
        producer.send(Order(number=1))
        return b"AVRO" in west.ask("GET", f"/schemas/{topic}/schema", None, (200, 404))

    until(declared, "the schema is in the west")
    there = west.client.subscribe(f"non-persistent://{topic}", "s", schema=pulsar.schema.AvroSchema(Order))

    def arrives() -> bool:
        producer.send(Order(number=2))
        return not nothing_more(there)

    until(arrives, "messages with the schema arrive")
    assert figures(east, topic, "west")["msgDropCount"] >= 1


def test_what_is_published_while_the_other_cluster_is_away_is_dropped_and_counted(pair: Pair) -> None:
    east, west = pair
    topic = f"{make_namespace('away', *pair)}/t"
    producer = make_producer(east, topic)
    connected(east, topic, "west")
    west.server.stop()
    until(lambda: not figures(east, topic, "west")["connected"], "the cut is known")
    for _ in range(10):
        producer.send(b"lost")
    producer.send(b"not for the west", disable_replication=True)
    stopped = figures(east, topic, "west")
    assert (stopped["msgDropCount"], stopped["msgOutCount"]) == (10, 0)
    explained = json.loads(east.ask("GET", f"/non-persistent/{topic}/explain"))["replication"]["west"]
    assert explained["reason"] == "not_replicated"
    assert explained["figures"] == {"connected": False, "dropped": 10}
    status, text = east.server.ask("GET", "/metrics")
    assert status == 200
    found = re.search(r"magnetar_replication_unreplicated_total{[^}]*geo/away[^}]*} (\d+)", text.decode())
    assert found is not None
    assert found[1] == "10"
    west.server.start()
    connected(east, topic, "west")
    there = subscribe(west, topic)
    producer.send(b"sent")
    assert contents(received(there, 1)) == ["sent"]


def test_no_more_is_on_its_way_than_the_queue_has_room_for(pair: Pair) -> None:
    """The other cluster does not read: it is stopped, and its connections stay open."""
    east, west = pair
    topic = f"{make_namespace('slow', *pair)}/t"
    producer = make_producer(east, topic, batching_enabled=False, block_if_queue_full=True)
    connected(east, topic, "west")
    stop(west.server.pid)
    try:
        for _ in range(1000):
            producer.send_async(b"x", None)
        producer.flush()
        until(lambda: figures(east, topic, "west")["msgDropCount"] == 900, "the rest is dropped")
        assert figures(east, topic, "west")["msgOutCount"] == 100
    finally:
        os.kill(west.server.pid, signal.SIGCONT)
    until(lambda: not figures(east, topic, "west")["replicationDelayInSeconds"], "receipts came")


def test_a_cluster_that_is_taken_from_the_list_gets_nothing_more(pair: Pair) -> None:
    east, west = pair
    namespace = make_namespace("taken", *pair)
    topic = f"{namespace}/t"
    there = subscribe(west, topic)
    producer = make_producer(east, topic)
    connected(east, topic, "west")
    east.ask("POST", f"/namespaces/{namespace}/replication", ["east"])
    until(lambda: not figures(east, topic, "west")["connected"], "the replicator is gone")
    producer.send(b"1")
    assert nothing_more(there)
    east.ask("POST", f"/namespaces/{namespace}/replication", ["east", "west"])
    connected(east, topic, "west")
    producer.send(b"2")
    assert contents(received(there, 1)) == ["2"]
