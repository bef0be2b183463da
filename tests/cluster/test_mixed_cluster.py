"""Apache's brokers and ours in one cluster, at the same time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import count
from random import Random

import pulsar
import pytest
from apache_broker import ApacheBroker
from bookkeeper_servers import CLUSTER, BookKeeperServers
from cluster_broker import BrokerProcess
from cluster_requests import Broker, asked, http_of
from many_topics import ManyTopics
from polling import until
from running import running

NAMESPACE = "public/mixed"
PATIENCE = 90.0
_ROUNDS = 12
_MINUTES = float(os.environ.get("MAGNETAR_MIXED_MINUTES", "0"))
"""0: for so many rounds."""
_THEIRS = int(os.environ.get("MAGNETAR_MIXED_APACHES", "1"))
_TOPICS = int(os.environ.get("MAGNETAR_MIXED_TOPICS", "40"))
_SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "0"))


class Mixed:
    def __init__(self, theirs: list[ApacheBroker], ours: list[BrokerProcess]) -> None:
        self.theirs = theirs
        self.ours = ours
        self.random = Random(_SEED)
        self.most_redirects = 0

    @property
    def all(self) -> list[Broker]:
        return [*self.theirs, *self.ours]

    @property
    def url(self) -> str:
        return "pulsar://" + ",".join(broker.url.removeprefix("pulsar://") for broker in self.all)

    def ask(self, broker: Broker, method: str, path: str, body: object = None) -> object:
        status, answer, _ = asked(method, f"{http_of(broker)}/admin/v2/{path}", body)
        assert status < 300, (status, answer)
        return json.loads(answer) if answer else None

    def live(self, broker: Broker) -> set[str]:
        found = self.ask(broker, "GET", f"brokers/{CLUSTER}")
        assert isinstance(found, list)
        return set(found)

    def leader(self, broker: Broker) -> Broker | None:
        status, answer, _ = asked("GET", f"{http_of(broker)}/admin/v2/brokers/leaderBroker")
        url = json.loads(answer)["serviceUrl"] if status == 200 else ""
        return next((each for each in self.all if http_of(each) == url), None)

    def owner(self, through: Broker, topic: str) -> Broker:
        """As any broker tells; counts how often lookups are sent on."""
        deadline = time.monotonic() + PATIENCE
        while True:
            path = topic.replace("://", "/")
            status, answer, redirects = asked("GET", f"{http_of(through)}/lookup/v2/topic/{path}")
            self.most_redirects = max(self.most_redirects, redirects)
            if status == 200:
                url = json.loads(answer)["brokerUrl"]
                return next(each for each in self.all if each.url == url)
            assert time.monotonic() < deadline, (status, answer)
            time.sleep(0.1)

    def bundle(self, through: Broker, topic: str) -> str:
        path = topic.replace("://", "/")
        status, answer, _ = asked("GET", f"{http_of(through)}/lookup/v2/topic/{path}/bundle")
        assert status == 200, answer
        return answer.decode()

    def owner_for_all(self, topic: str) -> Broker:
        """Whom all brokers name; asked again where whoever leads moves the bundle between two answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            owners = {self.owner(each, topic) for each in self.all}
            if len(owners) == 1:
                return owners.pop()
            assert time.monotonic() < deadline, owners
            time.sleep(0.5)

    def unload_somewhere(self, topic: str) -> None:
        through = self.random.choice(self.all)
        self.ask(through, "PUT", f"namespaces/{NAMESPACE}/{self.bundle(through, topic)}/unload")

    def unload_to(self, through: Broker, topic: str, target: Broker) -> None:
        """Has a named broker own the bundle of a topic.

        A broker learns through a watch, a moment later, that the bundle has left its owner. Until then it
        answers with that owner, as Apache's brokers do; that owner would send clients on.
        """
        namespace = topic.partition("://")[2].rpartition("/")[0]
        path = f"namespaces/{namespace}/{self.bundle(through, topic)}/unload"
        self.ask(through, "PUT", f"{path}?destinationBroker={http_of(target).removeprefix('http://')}")
        until(
            lambda: self.owner(through, topic) is target, f"{topic} is at the named broker", seconds=PATIENCE
        )


@pytest.fixture(scope="module")
def mixed(started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    theirs = [ApacheBroker(tmp_path_factory.mktemp(f"apache{n}"), started_cluster) for n in range(_THEIRS)]
    ours = [BrokerProcess(tmp_path_factory.mktemp(f"ours{n}"), started_cluster) for n in range(2)]
    mixed = Mixed(theirs, ours)
    with running(mixed.all):
        yield mixed


@pytest.mark.timeout(0)
def test_both_kinds_serve_one_cluster(cluster: BookKeeperServers, mixed: Mixed) -> None:
    """Bundles go from one kind to the other under load; whoever leads goes, and comes back."""
    everybody = len(mixed.all)
    for broker in mixed.all:
        until(
            lambda broker=broker: len(mixed.live(broker)) == everybody,
            "all know each other",
            seconds=PATIENCE,
        )  # type: ignore[misc]
    mixed.ask(mixed.ours[0], "PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 12}})
    topics = [f"persistent://{NAMESPACE}/t{number}" for number in range(_TOPICS)]
    load = ManyTopics(mixed.url, topics)
    owning: set[type] = set()
    led: set[type] = set()
    try:
        load.start()
        load.more(2)
        for number in rounds():
            topic = mixed.random.choice(topics)
            mixed.unload_somewhere(topic)
            owning.add(type(mixed.owner_for_all(topic)))
            load.more(1)
            if number % _ROUNDS in (_ROUNDS // 3, 2 * _ROUNDS // 3):
                led.add(kill_the_leader(mixed))
                load.more(2)
        print(f"{load.finish()} messages, {mixed.most_redirects} redirects at most, led by {led}")
    finally:
        load.close()
    assert owning == {ApacheBroker, BrokerProcess}
    assert mixed.most_redirects <= 3


def rounds() -> Iterator[int]:
    end = time.monotonic() + 60 * _MINUTES
    for number in count():
        if number >= _ROUNDS and time.monotonic() >= end:
            return
        yield number


def kill_the_leader(mixed: Mixed) -> type:
    leading = mixed.leader(mixed.ours[0])
    assert leading is not None
    leading.kill()
    others = [each for each in mixed.all if each is not leading]
    until(lambda: mixed.leader(others[0]) in others, "another one leads", seconds=PATIENCE)
    leading.start()
    until(
        lambda: all(len(mixed.live(each)) == len(mixed.all) for each in others),
        "it is back",
        seconds=PATIENCE,
    )
    return type(leading)


@pytest.fixture
def led_by_ours(cluster: BookKeeperServers, mixed: Mixed) -> Mixed:
    for broker in mixed.all:
        until(
            lambda broker=broker: len(mixed.live(broker)) == len(mixed.all),
            "all know each other",
            seconds=PATIENCE,
        )  # type: ignore[misc]
    if mixed.leader(mixed.ours[0]) not in mixed.ours:
        assert kill_the_leader(mixed) is ApacheBroker
    until(
        lambda: all(mixed.leader(each) in mixed.ours for each in mixed.all),
        "one of ours leads",
        seconds=PATIENCE,
    )
    return mixed


def test_a_bundle_goes_to_a_named_broker_of_either_kind_whoever_is_asked(led_by_ours: Mixed) -> None:
    mixed, namespace = led_by_ours, "public/named"
    mixed.ask(mixed.ours[0], "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    topic = f"persistent://{namespace}/t"
    mixed.owner(mixed.ours[0], topic)
    for through in mixed.all:
        for target in (mixed.theirs[0], mixed.ours[0], mixed.theirs[0], mixed.ours[1]):
            mixed.unload_to(through, topic, target)


@pytest.mark.parametrize("apache_keeps", [True, False], ids=["apache-keeps", "ours-keeps"])
def test_policies_of_topics_count_where_the_other_kind_keeps_them(
    led_by_ours: Mixed, *, apache_keeps: bool
) -> None:
    mixed, ours = led_by_ours, led_by_ours.ours[0]
    apache = mixed.theirs[0]
    keeping, serving = (apache, ours) if apache_keeps else (ours, apache)
    namespace = f"public/policies-{apache_keeps}"
    mixed.ask(ours, "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 16}})
    events = f"persistent://{namespace}/__change_events"
    names = (f"persistent://{namespace}/t{index}" for index in range(100))
    topic = next(name for name in names if mixed.bundle(ours, name) != mixed.bundle(ours, events))
    path = f"persistent/{topic.removeprefix('persistent://')}/maxConsumers"
    for name, owner in ((events, keeping), (topic, serving)):
        mixed.owner(ours, name)
        mixed.unload_to(ours, name, owner)
    client = pulsar.Client(serving.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        first = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        mixed.ask(serving, "POST", path, 1)
        until(lambda: mixed.ask(serving, "GET", path) == 1, "it is read back", seconds=PATIENCE)
        refused_another(client, topic)
        assert mixed.owner(ours, events) is keeping
        # And once the topic is served by the other kind.
        first.close()
        mixed.unload_to(ours, topic, keeping)
        first = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        refused_another(client, topic)
    finally:
        client.close()


def refused_another(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
