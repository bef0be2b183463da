"""One way, a chain, a ring and a mesh of three clusters: a message goes one hop, once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pulsar
import pytest
from polling import until
from replicated_sites import Site, connect, received
from server import Server

NAMES = ("east", "west", "north")
COUNT = 300
SHAPES: dict[str, dict[str, str]] = {
    "one-way": {"east": "west"},
    "chain": {"east": "west", "west": "north"},
    "ring": {"east": "west", "west": "north", "north": "east"},
    "mesh": {"east": "west north", "west": "east north", "north": "east west"},
}
"""For each cluster, the clusters that its namespace lists besides itself."""

Sites = Mapping[str, Site[Server]]


@pytest.fixture(scope="module")
def sites(start_server: Callable[..., Server]) -> Iterator[Sites]:
    found = {name: Site(name, start_server(clusterName=name)) for name in NAMES}
    connect(*found.values())
    yield found
    for site in found.values():
        site.client.close()


def targets(shape: str, name: str) -> list[str]:
    return SHAPES[shape].get(name, "").split()


def all_confirmed(sites: Sites, shape: str, topic: str) -> bool:
    """Every replicator has sent, or passed over, everything that its topic has."""
    for name, site in sites.items():
        links = site.stats(topic)["replication"]
        if not all(
            target in links and not links[target]["replicationBacklog"] for target in targets(shape, name)
        ):
            return False
    return True


def publish_in_all(sites: Sites, topic: str) -> None:
    """In turn, by producers that have the same name in every cluster."""
    producers = {
        name: site.client.create_producer(
            f"persistent://{topic}",
            producer_name="publisher",
            block_if_queue_full=True,
            batching_enabled=name == "west",
        )
        for name, site in sites.items()
    }
    for number in range(COUNT):
        for name, producer in producers.items():
            producer.send_async(f"{name} {number}".encode(), None)
    for producer in producers.values():
        producer.flush()
        producer.close()


def of(origin: str) -> list[str]:
    return [f"{origin} {number}" for number in range(COUNT)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_goes_one_hop(sites: Sites, shape: str) -> None:
    namespace = f"geo/{shape}"
    for name, site in sites.items():
        lists = {"replication_clusters": [name, *targets(shape, name)]}
        site.ask("PUT", f"/namespaces/{namespace}", lists)
        site.ask("POST", f"/namespaces/{namespace}/deduplication", True)
    topic = f"{namespace}/t"
    consumers: dict[str, pulsar.Consumer] = {name: site.subscribe(topic) for name, site in sites.items()}
    publish_in_all(sites, topic)
    until(lambda: all_confirmed(sites, shape, topic), "every message is confirmed by the other clusters")
    for name, consumer in consumers.items():
        origins: Sequence[str] = [each for each in NAMES if each == name or name in targets(shape, each)]
        # No replicator has anything left to send: what is more than this is there by now.
        assert sites[name].stats(topic)["msgInCounter"] == len(origins) * COUNT
        found = [message.data().decode() for message in received(consumer, len(origins) * COUNT)]
        for origin in origins:
            assert [each for each in found if each.startswith(origin)] == of(origin)
        consumer.close()
