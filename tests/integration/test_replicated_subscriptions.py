"""Subscriptions that move along in other clusters, with the official client at each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

import pulsar
import pytest
from polling import until
from replicated_sites import SECONDS, Site, connect, make_namespace, nothing_more, received
from server import Server

Sites = Sequence[Site[Server]]
QUICK = {"replicatedSubscriptionsSnapshotFrequencyMillis": "100"}


@pytest.fixture(scope="module")
def sites(start_server: Callable[..., Server]) -> Iterator[Sites]:
    """Three clusters that know each other; most tests use two of them."""
    found = [Site(name, start_server(clusterName=name, **QUICK)) for name in ("east", "west", "north")]
    connect(*found)
    yield found
    for site in found:
        site.client.close()


def subscribe(
    site: Site[Server],
    topic: str,
    kind: pulsar.ConsumerType = pulsar.ConsumerType.Exclusive,
    *,
    replicated: bool = True,
) -> pulsar.Consumer:
    return site.client.subscribe(
        f"persistent://{topic}",
        "s",
        kind,
        initial_position=pulsar.InitialPosition.Earliest,
        replicate_subscription_state_enabled=replicated,
    )


def backlog(site: Site[Server], topic: str, subscription: str = "s") -> int:
    """-1: there is no such subscription, or the replicator has not made the topic yet."""
    stats = json.loads(site.ask("GET", f"/persistent/{topic}/stats", status=(200, 404)))
    found = stats.get("subscriptions", {}).get(subscription)
    return -1 if found is None else int(found["msgBacklog"])


def entries(site: Site[Server], topic: str) -> int:
    """How many are stored, markers among them."""
    return int(site.internal(topic)["numberOfEntries"])


def contents(consumer: pulsar.Consumer, count: int) -> list[str]:
    return [message.data().decode() for message in received(consumer, count)]


def numbered(letter: str, count: int = 50) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_after_a_failover_what_was_acknowledged_does_not_come_again(
    sites: Sites, kind: pulsar.ConsumerType
) -> None:
    east, west, _north = sites
    topic = f"{make_namespace(f'failover-{kind.name}', east, west)}/t"
    here = subscribe(east, topic, kind)
    east.publish(topic, numbered("a"))
    assert contents(here, 50) == numbered("a")
    until(lambda: backlog(west, topic) == 0, "it has moved along in the west")
    east.publish(topic, numbered("b"))
    here.close()
    assert west.stats(topic)["subscriptions"]["s"]["isReplicated"]
    there = subscribe(west, topic, kind, replicated=False)
    assert contents(there, 50) == numbered("b")
    assert nothing_more(there)
    until(lambda: backlog(east, topic) == 0, "it has moved along in the east")
    west.publish(topic, numbered("c"))
    there.close()
    here = subscribe(east, topic, kind)
    assert contents(here, 50) == numbered("c")
    here.close()
    until(lambda: (backlog(east, topic), backlog(west, topic)) == (0, 0), "markers leave no backlog")


def test_what_is_not_acknowledged_comes_after_a_failover(sites: Sites) -> None:
    """However much is acknowledged behind it."""
    east, west, _north = sites
    topic = f"{make_namespace('held', east, west)}/t"
    here = subscribe(east, topic, pulsar.ConsumerType.Shared)
    east.publish(topic, ["1"])
    received(here, 1)
    until(lambda: backlog(west, topic) == 0, "it has moved along in the west")
    east.publish(topic, ["2", "3", "4"])
    held = here.receive(int(SECONDS * 1000))
    received(here, 2)
    for number in range(5):
        east.publish(topic, [f"more {number}"])
        received(here, 1)
    there = subscribe(west, topic, pulsar.ConsumerType.Shared)
    assert contents(there, 1) == ["2"]
    there.close()
    here.acknowledge(held)
    until(lambda: backlog(east, topic) == backlog(west, topic) == 0, "all is acknowledged in both")
    here.close()


def test_a_slow_consumer_is_followed_in_steps(sites: Sites) -> None:
    """It has a backlog all the time, and snapshots are taken at its end."""
    east, west, _north = sites
    topic = f"{make_namespace('slow', east, west)}/t"
    here = subscribe(east, topic, pulsar.ConsumerType.Shared)
    producer = east.client.create_producer(f"persistent://{topic}")
    seen = set()
    sent = 0
    while len(seen) < 4:
        for _ in range(10):
            producer.send(str(sent).encode())
            sent += 1
        received(here, 3)
        seen.add(backlog(west, topic))
        assert backlog(east, topic) > 0
        assert sent < 5000, f"the west moves along: {seen}"
    assert contents(here, 1) == [str(sent // 10 * 3)]
    producer.close()
    here.close()


@pytest.mark.parametrize("ends", ["unload", "stop", "kill"])
def test_it_goes_on_after_the_topic_was_loaded_anew(sites: Sites, ends: str) -> None:
    east, west, _north = sites
    topic = f"{make_namespace(f'again-{ends}', east, west)}/t"
    subscribe(east, topic).close()
    east.publish(topic, numbered("a"))
    until(lambda: entries(east, topic) >= 53, "a snapshot is taken")
    for site in (east, west):
        if ends == "unload":
            site.ask("PUT", f"/persistent/{topic}/unload")
        else:
            site.server.restart(kill=ends == "kill")
    here = subscribe(east, topic, replicated=False)
    assert contents(here, 50) == numbered("a")
    until(lambda: backlog(west, topic) == 0, "it has moved along in the west")
    here.close()


def test_in_three_clusters_messages_of_a_third_one_are_neither_lost_nor_repeated(sites: Sites) -> None:
    east, west, north = sites
    topic = f"{make_namespace('mesh', *sites)}/t"
    here = subscribe(east, topic)
    watching = [site.subscribe(topic, "watching") for site in (west, north)]
    for round_ in "abc":
        for site in sites:
            site.publish(topic, [f"{site.name} {content}" for content in numbered(round_, 20)])
        # A message of a third cluster that reaches a cluster after a snapshot waits there for the next one.
        for each in watching:
            received(each, 60)
        east.publish(topic, [f"then {round_}"])
        for each in watching:
            received(each, 1)
        found = contents(here, 61)
        assert len(set(found)) == 61
        until(lambda: backlog(west, topic) == backlog(north, topic) == 0, "it has moved along everywhere")
    for each in (here, *watching):
        each.close()
    reader = east.client.create_reader(f"persistent://{topic}", pulsar.MessageId.latest)
    north.publish(topic, ["last"])
    assert reader.read_next(int(SECONDS * 1000)).data() == b"last"
    reader.close()
    for site in (west, north, east):
        there = subscribe(site, topic)
        if site is west:
            assert contents(there, 1) == ["last"]
            until(lambda: backlog(north, topic) == backlog(east, topic) == 0, "it has moved along")
        assert nothing_more(there)
        there.close()


def test_markers_leave_no_backlog_at_other_subscriptions(sites: Sites) -> None:
    east, west, _north = sites
    topic = f"{make_namespace('plain', east, west)}/t"
    for site in (east, west):
        site.ask("PUT", f"/persistent/{topic}/subscription/idle")
    here, watching = subscribe(east, topic), west.subscribe(topic, "watching")
    east.publish(topic, numbered("a", 5))
    received(here, 5)
    received(watching, 5)
    until(lambda: backlog(west, topic) == 0, "it has moved along in the west")
    for site in (east, west):
        site.ask("POST", f"/persistent/{topic}/subscription/idle/skip_all")
    east.publish(topic, ["more"])
    received(here, 1)
    received(watching, 1)
    for site in (east, west):
        site.ask("POST", f"/persistent/{topic}/subscription/idle/skip_all")
    until(lambda: backlog(west, topic) == backlog(east, topic) == 0, "it has moved along in the west")
    until(lambda: backlog(west, topic, "watching") == 0, "nothing is left for the one with a consumer")
    until(lambda: backlog(west, topic, "idle") == backlog(east, topic, "idle") == 0, "nor without")
    here.close()
    watching.close()


def test_operators_mark_subscriptions(sites: Sites) -> None:
    """Of partitioned topics, too; and a position that is set afterwards leaves the mark."""
    east, west, _north = sites
    namespace = make_namespace("marks", east, west)
    topic = f"{namespace}/p"
    east.ask("PUT", f"/persistent/{topic}/partitions", 2)
    path = f"/persistent/{topic}/subscription/s"
    east.ask("PUT", f"{path}?replicated=true", {"ledgerId": -1, "entryId": -1})
    status = json.loads(east.ask("GET", f"{path}/replicatedSubscriptionStatus"))
    parts = [f"persistent://{topic}-partition-{index}" for index in range(2)]
    assert status == dict.fromkeys(parts, True)
    east.ask("POST", f"{path}/resetcursor/0")
    east.server.restart(kill=False)
    assert json.loads(east.ask("GET", f"{path}/replicatedSubscriptionStatus")) == status
    east.publish(topic, ["1", "2", "3", "4"])
    for part in parts:
        name = part.removeprefix("persistent://")
        until(lambda name=name: entries(east, name) > 4, "a snapshot is taken")  # type: ignore[misc]
        east.ask("POST", f"/persistent/{name}/subscription/s/skip_all")
        until(lambda name=name: backlog(west, name) == 0, "it has moved along in the west")  # type: ignore[misc]
    east.ask("POST", f"{path}/replicatedSubscriptionStatus", False)
    assert not any(json.loads(east.ask("GET", f"{path}/replicatedSubscriptionStatus")).values())
    east.ask("POST", f"{path}/replicatedSubscriptionStatus", status=(400,))
    east.ask("POST", f"/persistent/{topic}/subscription/none/replicatedSubscriptionStatus", True, (404,))
    east.ask(
        "POST", f"/persistent/{namespace}/none/subscription/s/replicatedSubscriptionStatus", True, (404,)
    )
    non_persistent = f"/non-persistent/{namespace}/n/subscription/s/replicatedSubscriptionStatus"
    east.ask("POST", non_persistent, True, (405,))


def test_snapshots_are_counted(sites: Sites) -> None:
    east, west, _north = sites
    topic = f"{make_namespace('counted', east, west)}/t"
    here = subscribe(east, topic)
    east.publish(topic, ["1"])
    received(here, 1)
    until(lambda: backlog(west, topic) == 0, "it has moved along in the west")
    text = east.server.ask("GET", "/metrics")[1].decode()
    name = "pulsar_replicated_subscriptions"
    taken = re.search(rf'^{name}_snapshot_ms_count{{cluster="east"}} (\S+)$', text, re.M)
    assert taken is not None
    assert float(taken[1]) > 0
    assert f'{name}_pending_snapshots{{cluster="east"}}' in text
    assert f'{name}_timedout_snapshots_total{{cluster="east"}}' in text
    here.close()
