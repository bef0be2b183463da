"""Clusters that replicate to each other, with the official client at each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import pulsar

SECONDS = 30.0


class _Broker(Protocol):
    """A broker of any kind that runs."""

    @property
    def url(self) -> str: ...
    @property
    def http_url(self) -> str: ...
    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...


B = TypeVar("B", bound=_Broker)


class Site(Generic[B]):
    """One cluster: a broker, and a client of it."""

    def __init__(self, name: str, server: B) -> None:
        self.name = name
        self.server = server
        self.client = pulsar.Client(server.url)

    def ask(self, method: str, path: str, body: object = None, status: Sequence[int] = (200, 204)) -> bytes:
        data = None if body is None else json.dumps(body)
        found, answer = self.server.ask(method, f"/admin/v2{path}", data)
        assert found in status, (found, answer)
        return answer

    def stats(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("GET", f"/persistent/{topic}/stats"))
        return found

    def internal(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("GET", f"/persistent/{topic}/internalStats"))
        return found

    def cursors(self, topic: str) -> list[str]:
        return list(self.internal(topic)["cursors"])

    def replication(self, topic: str, cluster: str) -> dict[str, Any]:
        found: dict[str, Any] = self.stats(topic)["replication"][cluster]
        return found

    def publish(self, topic: str, contents: Sequence[str], **options: object) -> None:
        producer = self.client.create_producer(f"persistent://{topic}", block_if_queue_full=True)
        for content in contents:
            producer.send_async(content.encode(), None, **options)
        producer.flush()
        producer.close()

    def subscribe(self, topic: str, name: str = "s") -> pulsar.Consumer:
        return self.client.subscribe(
            f"persistent://{topic}", name, initial_position=pulsar.InitialPosition.Earliest
        )


def connect(*sites: Site[Any], tenant: str = "geo") -> None:
    """Each gets records of the others and a tenant for all of them, unless it has one of that name."""
    names = [site.name for site in sites]
    for site in sites:
        for other in sites:
            if other is not site:
                record = {"serviceUrl": other.server.http_url, "brokerServiceUrl": other.server.url}
                site.ask("PUT", f"/clusters/{other.name}", record, (200, 204, 409))
        site.ask("PUT", f"/tenants/{tenant}", {"allowedClusters": names}, (204, 409))


def make_namespace(name: str, *sites: Site[Any], clusters: Sequence[str] | None = None) -> str:
    every = [site.name for site in sites]
    for site in sites:
        site.ask("PUT", f"/namespaces/geo/{name}", {"replication_clusters": clusters or every})
    return f"geo/{name}"


def received(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    found = []
    for _ in range(count):
        message = consumer.receive(int(SECONDS * 1000))
        consumer.acknowledge(message)
        found.append(message)
    return found


def nothing_more(consumer: pulsar.Consumer) -> bool:
    try:
        consumer.receive(300)
    except pulsar.Timeout:
        return True
    return False


def received_once(consumer: pulsar.Consumer, count: int) -> list[str]:
    """Contents of so many messages in order. What a consumer gets again after a kill counts once."""
    found: dict[str, str] = {}
    while len(found) < count:
        message = consumer.receive(int(SECONDS * 1000))
        consumer.acknowledge(message)
        found.setdefault(str(message.message_id()), message.data().decode())
    return list(found.values())
