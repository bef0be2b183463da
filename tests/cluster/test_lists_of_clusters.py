"""Lists of clusters in a cluster of several brokers: deletion at all owners, and lists that others write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import pytest
from bookkeeper_servers import CLUSTER, BookKeeperServers
from cluster_broker import BrokerProcess
from cluster_requests import asked
from kazoo.client import KazooClient
from polling import until
from running import running

_TOPICS = 12


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    found = [BrokerProcess(tmp_path / f"broker{number}", without_brokers) for number in range(2)]
    with running(found):
        yield found


def _ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> Any:
    status, told, _ = asked(method, f"{broker.http_url}/admin/v2{path}", body)
    assert status in (200, 204), told
    return json.loads(told) if told else None


def _namespace(broker: BrokerProcess, name: str) -> tuple[str, list[str]]:
    """A namespace of this cluster with topics; their messages are kept for a subscription."""
    if "elsewhere" not in _ask(broker, "GET", "/clusters"):
        _ask(broker, "PUT", "/clusters/elsewhere", {"serviceUrl": "http://127.0.0.1:1"})
        _ask(broker, "PUT", "/tenants/lists", {"allowedClusters": [CLUSTER, "elsewhere"]})
    namespace = f"lists/{name}"
    _ask(broker, "PUT", f"/namespaces/{namespace}", {"bundles": {"numBundles": 8}})
    topics = [f"persistent://{namespace}/t{number}" for number in range(_TOPICS)]
    with closing(pulsar.Client(broker.url)) as client:
        for topic in topics:
            client.subscribe(topic, "s").close()
            producer = client.create_producer(topic)
            producer.send(topic.encode())
            producer.close()
    return namespace, topics


def _refused(brokers: list[BrokerProcess], topics: list[str]) -> bool:
    paths = [f"/lookup/v2/topic/{topic.replace('://', '/')}" for topic in topics]
    return all(asked("GET", broker.http_url + path)[0] == 412 for broker in brokers for path in paths)


def _owners(brokers: list[BrokerProcess], topics: list[str]) -> set[str]:
    paths = [f"/lookup/v2/topic/{topic.replace('://', '/')}" for topic in topics]
    return {json.loads(asked("GET", brokers[0].http_url + path)[1])["httpUrl"] for path in paths}


def test_a_list_without_the_cluster_deletes_topics_at_all_their_owners(brokers: list[BrokerProcess]) -> None:
    one, other = brokers
    namespace, topics = _namespace(one, "deleted")
    assert _owners(brokers, topics) == {one.http_url, other.http_url}
    _ask(one, "POST", f"/namespaces/{namespace}/replication", ["elsewhere"])
    said = "its namespace no longer include the local cluster"
    lines = [line for line in one.log.splitlines() if said in line]
    assert all(any(topic in line for line in lines) for topic in topics)
    assert _refused(brokers, topics)
    _ask(other, "POST", f"/namespaces/{namespace}/replication", [CLUSTER])
    assert _ask(other, "GET", f"/persistent/{namespace}") == []


def test_a_list_that_comes_through_the_configuration_store_closes_topics_and_keeps_their_data(
    brokers: list[BrokerProcess], cluster: BookKeeperServers
) -> None:
    one = brokers[0]
    namespace, topics = _namespace(one, "kept")
    path = f"/admin/policies/{namespace}"
    store = KazooClient(cluster.zookeeper.address)
    store.start()
    try:
        before, _ = store.get(path)
        store.set(path, json.dumps({**json.loads(before), "replication_clusters": ["elsewhere"]}).encode())
        until(lambda: _refused(brokers, topics), "topics are refused")
        closed = "its namespace no longer lists the local cluster"
        until(lambda: all(_told(brokers, closed, topic) for topic in topics), "topics are closed")
        store.set(path, before)
    finally:
        store.stop()
        store.close()
    until(lambda: not _refused(brokers, topics[:1]), "topics are served again")
    with closing(pulsar.Client(one.url)) as client:
        for topic in topics:
            consumer = client.subscribe(topic, "s")
            assert consumer.receive(30_000).data() == topic.encode()
            consumer.close()


def _told(brokers: list[BrokerProcess], words: str, topic: str) -> bool:
    lines = [line for broker in brokers for line in broker.log.splitlines()]
    return any(words in line and topic in line for line in lines)
