"""Subscriptions that move along in other clusters, with the official client at each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pulsar
import pytest
from replicated_sites import Site, connect, make_namespace, received, until
from server import Server

Pair = tuple[Site[Server], Site[Server]]


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[Pair]:
    quick = {"replicatedSubscriptionsSnapshotFrequencyMillis": "100"}
    east, west = (Site(name, start_server(clusterName=name, **quick)) for name in ("east", "west"))
    connect(east, west)
    yield east, west
    east.client.close()
    west.client.close()


def subscribe(
    site: Site[Server], topic: str, kind: pulsar.ConsumerType = pulsar.ConsumerType.Exclusive
) -> pulsar.Consumer:
    return site.client.subscribe(
        f"persistent://{topic}",
        "s",
        kind,
        initial_position=pulsar.InitialPosition.Earliest,
        replicate_subscription_state_enabled=True,
    )


def backlog(site: Site[Server], topic: str) -> int:
    """Of the subscription; -1: there is none."""
    found = site.stats(topic)["subscriptions"].get("s")
    return -1 if found is None else int(found["msgBacklog"])


def contents(consumer: pulsar.Consumer, count: int) -> list[str]:
    return [message.data().decode() for message in received(consumer, count)]


def test_after_a_failover_what_was_acknowledged_does_not_come_again(pair: Pair) -> None:
    east, west = pair
    topic = f"{make_namespace('failover', *pair)}/t"
    here = subscribe(east, topic)
    east.publish(topic, [f"m{n}" for n in range(50)])
    assert contents(here, 50) == [f"m{n}" for n in range(50)]
    until(lambda: backlog(west, topic) == 0, "it has moved along in the west")
    assert west.stats(topic)["subscriptions"]["s"]["isReplicated"]
    east.publish(topic, [f"n{n}" for n in range(50)])
    there = subscribe(west, topic)
    assert contents(there, 50) == [f"n{n}" for n in range(50)]
    until(lambda: backlog(east, topic) == 0, "it has moved along in the east")
