"""Brokers that serve one kind of topics only, of ours and of Apache's, in one cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from apache_broker import ApacheBroker
from bookkeeper_servers import CLUSTER, BookKeeperServers
from cluster_broker import BrokerProcess
from cluster_requests import Broker, asked, http_of
from polling import until

_PLAIN: dict[str, int | str] = {"topicLevelPoliciesEnabled": "false"}
"""Policies of topics are in a persistent topic of each namespace: its bundle would go to brokers for such."""
PERSISTENT_ONLY = {**_PLAIN, "enableNonPersistentTopics": "false"}
NON_PERSISTENT_ONLY = {**_PLAIN, "enablePersistentTopics": "false"}
_TOPICS = 10
_numbers = count()


@dataclass
class Dedicated:
    """One of ours for each kind of topics, and one of Apache's for persistent ones."""

    ours: BrokerProcess
    fleeting: BrokerProcess
    theirs: ApacheBroker

    @property
    def all(self) -> list[Broker]:
        return [self.ours, self.fleeting, self.theirs]

    def leader(self) -> str:
        """The address that Apache's broker tells."""
        status, answer = self.theirs.ask("GET", "/admin/v2/brokers/leaderBroker")
        return str(json.loads(answer)["serviceUrl"]) if status == 200 else ""

    def all_know_each_other(self) -> bool:
        found = [asked("GET", f"{http_of(each)}/admin/v2/brokers/{CLUSTER}") for each in self.all]
        return all(status == 200 and len(json.loads(answer)) == 3 for status, answer, _ in found)

    def namespace(self, bundles: int = 8) -> str:
        name = f"public/dedicated{next(_numbers)}"
        body = {"bundles": {"numBundles": bundles}}
        status, answer, _ = asked("PUT", f"{http_of(self.theirs)}/admin/v2/namespaces/{name}", body)
        assert status == 204, answer
        return name

    def owner(self, topic: str) -> Broker:
        path = topic.replace("://", "/")
        status, answer, _ = asked("GET", f"{http_of(self.ours)}/lookup/v2/topic/{path}")
        assert status == 200, answer
        url = json.loads(answer)["brokerUrl"]
        return next(each for each in self.all if each.url == url)


@pytest.fixture(scope="module")
def dedicated(
    started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dedicated]:
    def folder(name: str) -> Path:
        return tmp_path_factory.mktemp(name)

    with ExitStack() as ends:
        found = Dedicated(
            BrokerProcess(folder("ours"), started_cluster, **PERSISTENT_ONLY),
            BrokerProcess(folder("fleeting"), started_cluster, **NON_PERSISTENT_ONLY),
            ApacheBroker(folder("theirs"), started_cluster, **PERSISTENT_ONLY),
        )
        for broker in found.all:
            ends.callback(broker.close)
        found.theirs.launch()
        found.ours.start()
        found.fleeting.start()
        found.theirs.wait()
        yield found


@pytest.mark.parametrize("apache_leads", [True, False])
def test_topics_land_on_brokers_of_their_kind_whoever_leads(
    cluster: BookKeeperServers, dedicated: Dedicated, apache_leads: bool
) -> None:
    theirs = http_of(dedicated.theirs)
    leaves: list[Broker] = [dedicated.ours, dedicated.fleeting] if apache_leads else [dedicated.theirs]
    if (dedicated.leader() == theirs) != apache_leads:
        for broker in leaves:
            broker.stop()
        if apache_leads:
            until(lambda: dedicated.leader() == theirs, "Apache's broker leads", seconds=60)
        for broker in leaves:
            broker.start()
    until(dedicated.all_know_each_other, "all know each other", seconds=60)
    assert (dedicated.leader() == theirs) == apache_leads
    for kind, wanted in (
        ("persistent", {dedicated.ours, dedicated.theirs}),
        ("non-persistent", {dedicated.fleeting}),
    ):
        namespace = dedicated.namespace()
        topics = [f"{kind}://{namespace}/t{number}" for number in range(_TOPICS)]
        for through in dedicated.all:
            client = client_of(through)
            try:
                for topic in topics:
                    goes_through(client, topic)
            finally:
                client.close()
        assert {dedicated.owner(topic) for topic in topics} <= wanted


def client_of(broker: Broker) -> pulsar.Client:
    return pulsar.Client(
        broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )


def goes_through(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"through")
    message = consumer.receive(timeout_millis=30_000)
    assert message.data() == b"through"
    consumer.acknowledge(message)
    consumer.close()
    producer.close()


def test_of_a_bundle_of_both_kinds_one_is_served(cluster: BookKeeperServers, dedicated: Dedicated) -> None:
    """That which was asked for first, until it is unloaded; Apache's broker and ours refuse the other one."""
    until(dedicated.all_know_each_other, "all know each other", seconds=60)
    namespace = dedicated.namespace(bundles=1)
    stored, fleeting = f"persistent://{namespace}/stored", f"non-persistent://{namespace}/fleeting"
    client = client_of(dedicated.ours)
    try:
        goes_through(client, stored)
        for broker in (dedicated.ours, dedicated.theirs):
            unload(dedicated, namespace, broker)
            goes_through(client, stored)
            assert dedicated.owner(stored) is broker
            # Apache's tells who has the bundle, and refuses whoever comes; ours refuses the lookup.
            path = f"/lookup/v2/topic/{fleeting.replace('://', '/')}"
            wanted = 200 if broker is dedicated.theirs else 405
            assert asked("GET", f"{http_of(broker)}{path}")[0] == wanted
            with pytest.raises(pulsar.NotAllowedError):
                client.create_producer(fleeting)
        unload(dedicated, namespace, None)
        goes_through(client, fleeting)
        assert dedicated.owner(fleeting) is dedicated.fleeting
        with pytest.raises(pulsar.NotAllowedError):
            client.create_producer(stored)
    finally:
        client.close()


def unload(dedicated: Dedicated, namespace: str, target: Broker | None) -> None:
    """The whole namespace, which has one bundle."""
    query = "" if target is None else f"?destinationBroker={urlsplit(http_of(target)).netloc}"
    owner = dedicated.owner(f"persistent://{namespace}/stored")
    path = f"/admin/v2/namespaces/{namespace}/0x00000000_0xffffffff/unload{query}"
    status, answer, _ = asked("PUT", http_of(owner) + path)
    assert status == 204, answer
