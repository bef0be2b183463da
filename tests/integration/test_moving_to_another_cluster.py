"""Clients of one standalone broker that are sent to another one (PIP-188), with the official client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from polling import until
from replicated_sites import Site, connect, make_namespace, nothing_more, received
from server import Server

from magnetar.client import Client, MessageId

Three = tuple[Site[Server], Site[Server], Site[Server]]
ADMIN = Path(sys.executable).with_name("pulsar-admin")


@pytest.fixture(scope="module")
def remote(start_server: Callable[..., Server]) -> Iterator[tuple[Site[Server], Site[Server]]]:
    """The cluster that clients go to, and one that the cluster that is left replicates to."""
    sites = Site("green", start_server(clusterName="green")), Site("third", start_server(clusterName="third"))
    yield sites
    for site in sites:
        site.client.close()


@pytest.fixture
def three(start_server: Callable[..., Server], remote: tuple[Site[Server], Site[Server]]) -> Iterator[Three]:
    """The cluster that is left, made for each test, and the other two."""
    green, third = remote
    moves: dict[str, str] = {
        "clusterMigrationCheckDurationSeconds": "1",
        "clusterMigrationAutoResourceCreation": "true",
    }
    blue = Site("blue", start_server(clusterName="blue", **moves))
    connect(blue, third)
    third.ask("POST", "/clusters/blue", urls_of(blue))
    yield blue, green, third
    blue.client.close()
    blue.server.close()


def urls_of(site: Site[Server]) -> dict[str, str]:
    return {"serviceUrl": site.server.http_url, "brokerServiceUrl": site.server.url}


def admin(site: Site[Server], *arguments: str) -> str:
    command = [str(ADMIN), "--admin-url", site.server.http_url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def set_migration(blue: Site[Server], green: Site[Server], *, migrated: bool) -> None:
    urls = ["--service-url", green.server.http_url, "--broker-url", green.server.url]
    flag = ["--migrated"] if migrated else []
    admin(blue, "clusters", "update-cluster-migration", *flag, *urls, "blue")


def contents(messages: list[pulsar.Message]) -> list[str]:
    return [message.data().decode() for message in messages]


def numbered(site: str) -> list[str]:
    return [f"{site}{number}" for number in range(10)]


def ended(site: Site[Server], topic: str) -> None:
    def has_ended() -> bool:
        found = json.loads(site.ask("GET", f"/persistent/{topic}/internalStats"))
        return bool(found["state"] == "Terminated")

    until(has_ended, f"{topic} has ended in {site.name}")


def test_producers_go_at_once_and_consumers_when_they_have_acknowledged_everything(three: Three) -> None:
    blue, green, _ = three
    topic = f"{make_namespace('all', blue, clusters=['blue'])}/t"
    consumer, late = blue.subscribe(topic), blue.subscribe(topic, "late")
    late.close()
    producer = blue.client.create_producer(f"persistent://{topic}")
    for content in numbered("blue"):
        producer.send(content.encode())
    found = [consumer.receive(10_000) for _ in range(10)]
    set_migration(blue, green, migrated=True)
    ended(blue, topic)
    for content in numbered("green"):
        producer.send(content.encode())
    assert green.stats(topic)["msgInCounter"] == 10
    assert nothing_more(consumer)
    for message in found:
        consumer.acknowledge(message)
    assert contents(received(consumer, 10)) == numbered("green")
    # One that was not connected gets what is left in blue, and then what is in green.
    late = blue.subscribe(topic, "late")
    assert contents(received(late, 20)) == numbered("blue") + numbered("green")
    told = json.loads(blue.ask("GET", f"/persistent/{topic}/explain"))["producers"]
    assert told["reason"] == "migrated"
    assert green.server.url in told["sentence"]


def test_who_comes_after_a_restart_is_sent_on_and_new_topics_are_made_there(three: Three) -> None:
    blue, green, _ = three
    namespace = make_namespace("later", blue, clusters=["blue"])
    blue.publish(f"{namespace}/old", ["1"])
    set_migration(blue, green, migrated=True)
    ended(blue, f"{namespace}/old")
    blue.server.restart(kill=True)
    for topic in ("old", "new"):
        consumer = blue.client.subscribe(f"persistent://{namespace}/{topic}", "fresh")
        blue.publish(f"{namespace}/{topic}", ["2"])
        assert contents(received(consumer, 1)) == ["2"]
        assert green.stats(f"{namespace}/{topic}")["msgInCounter"] == 1


def test_a_namespace_moves_alone(three: Three) -> None:
    blue, green, _ = three
    moves, stays = (make_namespace(name, blue, clusters=["blue"]) for name in ("moves", "stays"))
    for namespace in (moves, stays):
        blue.publish(f"{namespace}/t", ["1"])
    set_migration(blue, green, migrated=False)
    assert json.loads(admin(blue, "clusters", "get-cluster-migration", "blue"))["migrated"] is False
    admin(blue, "namespaces", "update-migration-state", "--migrated", moves)
    assert json.loads(blue.ask("GET", f"/namespaces/{moves}"))["migrated"] is True
    ended(blue, f"{moves}/t")
    for namespace in (moves, stays):
        blue.publish(f"{namespace}/t", ["2"])
    assert green.stats(f"{moves}/t")["msgInCounter"] == 1
    assert blue.stats(f"{stays}/t")["msgInCounter"] == 2


def test_producers_wait_until_replicators_have_sent_everything(three: Three) -> None:
    blue, green, third = three
    topic = f"{make_namespace('copied', blue, third)}/t"
    there = third.subscribe(topic)
    producer = blue.client.create_producer(f"persistent://{topic}")
    producer.send(b"1")
    received(there, 1)
    third.server.stop()
    producer.send(b"2")
    set_migration(blue, green, migrated=True)
    ended(blue, topic)
    producer.send_async(b"3", None)
    told = json.loads(blue.ask("GET", f"/persistent/{topic}/explain"))["producers"]
    assert "when the replicators have sent the 1 remaining entry" in told["sentence"]
    assert green.stats(topic)["msgInCounter"] == 0
    third.server.start()
    while contents(received(there, 1)) != ["2"]:
        # The first one may come again: nothing is deduplicated in the third cluster.
        pass
    producer.flush()
    assert green.stats(topic)["msgInCounter"] == 1


def test_non_persistent_topics_move_at_once(three: Three) -> None:
    blue, green, _ = three
    topic = f"non-persistent://{make_namespace('passing', blue, clusters=['blue'])}/t"
    consumer = blue.client.subscribe(topic, "s")
    producer = blue.client.create_producer(topic)
    producer.send(b"1")
    received(consumer, 1)
    set_migration(blue, green, migrated=True)

    def moved() -> bool:
        status, text = green.server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
        stats = json.loads(text) if status == 200 else {"publishers": []}
        return bool(stats["publishers"] and stats["subscriptions"].get("s", {}).get("consumers"))

    until(moved, "both are in green")
    producer.send(b"2")
    assert contents(received(consumer, 1)) == ["2"]


def test_the_client_of_this_project_follows_too(three: Three) -> None:
    blue, green, _ = three
    topic = f"persistent://{make_namespace('own', blue, clusters=['blue'])}/t"
    client = Client(blue.server.url)
    try:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        producer.send(b"blue")
        first = consumer.receive(10_000)
        set_migration(blue, green, migrated=True)
        ended(blue, topic.removeprefix("persistent://"))
        producer.send(b"green")
        consumer.acknowledge(first)
        assert consumer.receive(30_000).data() == b"green"
        # Whoever comes later has no other answer than where to go.
        reader = client.create_reader(topic, MessageId.latest)
        client.create_producer(topic).send(b"later")
        assert consumer.receive(30_000).data() == b"later"
        assert reader.read_next(30_000).data() == b"later"
        assert green.stats(topic.removeprefix("persistent://"))["msgInCounter"] == 2
    finally:
        client.close()


def test_replicators_of_other_clusters_follow(three: Three) -> None:
    blue, green, third = three
    topic = f"{make_namespace('followed', blue, third)}/t"
    here = blue.subscribe(topic)
    third.publish(topic, ["1"])
    consumed = here.receive(10_000)
    set_migration(blue, green, migrated=True)
    ended(blue, topic)
    third.publish(topic, ["2"])
    here.acknowledge(consumed)
    assert contents(received(here, 1)) == ["2"]
    assert green.stats(topic)["replication"]["third"]["msgInCount"] == 1
    until(lambda: not third.replication(topic, "blue")["replicationBacklog"], "all has arrived")


def test_a_cluster_that_is_not_there_cannot_move_and_one_that_has_moved_can_be_deleted(three: Three) -> None:
    blue, green, _ = three
    url = urls_of(green)
    blue.ask("POST", "/clusters/nowhere/migrate?migrated=true", url, (404,))
    for name in ("nowhere", "third"):
        blue.ask("GET", f"/clusters/{name}/migrate", None, (404,))
    blue.ask("POST", "/clusters/third/migrate", {"brokerServiceUrl": "http://wrong"}, (400,))
    blue.ask("POST", "/clusters/third/migrate", url)
    expected = {"migrated": False, "migratedClusterUrl": url | {"empty": False}}
    assert json.loads(blue.ask("GET", "/clusters/third/migrate")) == expected
    assert json.loads(blue.ask("GET", "/clusters")) == ["blue", "third"]
    blue.ask("DELETE", "/clusters/third")
    assert json.loads(blue.ask("GET", "/clusters")) == ["blue"]
