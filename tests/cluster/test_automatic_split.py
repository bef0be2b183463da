"""Bundles that have become too large are divided by themselves, under load, on real servers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from many_topics import ManyTopics
from running import running

NAMESPACE = "public/grows"
MOST_TOPICS = 5
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(20)]
PATIENCE = 60.0
ENABLED = "loadBalancerAutoBundleSplitEnabled"
SETTINGS: dict[str, int | str] = {
    "statsUpdateFrequencyInSecs": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 500,
    "loadBalancerNamespaceBundleMaxTopics": MOST_TOPICS,
    "loadBalancerSheddingEnabled": "false",
    ENABLED: "false",
}


@pytest.fixture
def brokers(cluster: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    found = [BrokerProcess(tmp_path / f"broker{number}", cluster, **SETTINGS) for number in range(2)]
    with running(found):
        yield found


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> object:
    status, answer = broker.ask(method, path, None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer.startswith((b"{", b"[")) else answer.decode()


def bundles(broker: BrokerProcess) -> Counter[object]:
    """How many topics lie in each bundle that has any."""
    return Counter(
        ask(broker, "GET", f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle") for topic in TOPICS
    )


def test_bundles_with_too_many_topics_are_divided_until_none_has(brokers: list[BrokerProcess]) -> None:
    first, second = brokers
    ask(first, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {"bundles": {"numBundles": 1}})
    assert list(bundles(first).values()) == [len(TOPICS)]
    hosts = ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
    load = ManyTopics(f"pulsar://{hosts}", TOPICS)
    try:
        load.start()
        load.more(1)
        assert list(bundles(first).values()) == [len(TOPICS)]
        ask(first, "POST", f"/admin/v2/brokers/configuration/{ENABLED}/true")
        deadline = time.monotonic() + PATIENCE
        while max(bundles(first).values()) > MOST_TOPICS:
            assert time.monotonic() < deadline, bundles(first)
            load.more(1)
        assert bundles(first) == bundles(second)
        load.more(3)
        load.finish()
    finally:
        load.close()
        ask(first, "DELETE", f"/admin/v2/brokers/configuration/{ENABLED}")
    owners = {str(ask(first, "GET", f"/lookup/v2/topic/{topic.replace('://', '/')}")) for topic in TOPICS}
    assert len(owners) == 2, "parts go to whoever has less to do"
