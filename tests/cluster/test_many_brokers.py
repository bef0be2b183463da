"""Three brokers of ours on Apache ZooKeeper and BookKeeper, with the official client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from following_clients import Following, FollowingJava, FollowingMagnetar, FollowingPython
from many_topics import ManyTopics
from polling import until

_numbers = count()
PATIENCE = 60.0


@pytest.fixture(scope="module")
def started(
    started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[BrokerProcess]]:
    with ExitStack() as ends:
        found = []
        for number in range(3):
            process = BrokerProcess(tmp_path_factory.mktemp(f"broker{number}"), started_cluster)
            ends.callback(process.close)
            found.append(process)
        yield found


@pytest.fixture
def brokers(cluster: BookKeeperServers, started: list[BrokerProcess]) -> list[BrokerProcess]:
    """Three that serve; started again where a test has ended one."""
    for process in started:
        if not process.runs:
            process.start()
    until(lambda: len(get(started[0], "brokers/lab")) == 3, "three brokers know each other", seconds=PATIENCE)
    return started


@pytest.fixture
def namespace(brokers: list[BrokerProcess]) -> str:
    """A new one with eight bundles, which nobody owns."""
    name = f"public/many{next(_numbers)}"
    ask(brokers[0], "PUT", f"namespaces/{name}", {"bundles": {"numBundles": 8}})
    return name


@pytest.fixture
def client(brokers: list[BrokerProcess]) -> Iterator[pulsar.Client]:
    client = client_of(*brokers)
    yield client
    client.close()


def client_of(*brokers: BrokerProcess) -> pulsar.Client:
    hosts = ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
    return pulsar.Client(
        f"pulsar://{hosts}",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        operation_timeout_seconds=60,
    )


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> object:
    status, answer = broker.ask(method, f"/admin/v2/{path}", None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer else None


def get(broker: BrokerProcess, path: str) -> list[str]:
    found = ask(broker, "GET", path)
    assert isinstance(found, list)
    return found


def looked_up(broker: BrokerProcess, topic: str) -> tuple[str, int]:
    """The URL of whoever serves a topic, as a broker tells by HTTP; and the number of redirects."""
    path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
    url, redirects = f"{broker.http_url}{path}", 0
    while True:
        connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        try:
            connection.request("GET", url.partition(urlsplit(url).netloc)[2])
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 307:
            assert response.status == 200, body
            return json.loads(body)["brokerUrl"], redirects
        url = response.headers["Location"]
        redirects += 1


def test_all_brokers_tell_the_same_owner_within_three_redirects(
    brokers: list[BrokerProcess], namespace: str
) -> None:
    owners = set()
    for number in range(24):
        topic = f"persistent://{namespace}/t{number}"
        found = [looked_up(broker, topic) for broker in brokers]
        assert len({url for url, _ in found}) == 1
        assert max(redirects for _, redirects in found) <= 2
        # The first lookup is redirected. Then all brokers know the owner, at the latest through a watch.
        known = [(found[0][0], 0)] * 3
        until(
            lambda: [looked_up(broker, topic) for broker in brokers] == known,  # noqa: B023
            "all know the owner",
            seconds=PATIENCE,
        )
        owners.add(found[0][0])
    assert owners == {broker.url for broker in brokers}


def test_topics_of_all_brokers_are_reached_through_any(brokers: list[BrokerProcess], namespace: str) -> None:
    topics = [f"persistent://{namespace}/t{number}" for number in range(12)]
    publishing, consuming = client_of(brokers[0]), client_of(brokers[2])
    try:
        consumers = [consuming.subscribe(topic, "s") for topic in topics]
        for number, topic in enumerate(topics):
            producer = publishing.create_producer(topic)
            for body in range(10):
                producer.send(b"%d of %d" % (body, number))
        for number, consumer in enumerate(consumers):
            for body in range(10):
                message = consumer.receive(timeout_millis=30_000)
                assert message.data() == b"%d of %d" % (body, number)
                consumer.acknowledge(message)
    finally:
        publishing.close()
        consuming.close()


def test_one_leads_and_then_another(brokers: list[BrokerProcess]) -> None:
    def leader(broker: BrokerProcess) -> object:
        found = ask(broker, "GET", "brokers/leaderBroker")
        assert isinstance(found, dict)
        return found["serviceUrl"]

    told = {leader(broker) for broker in brokers}
    assert len(told) == 1
    leading = next(broker for broker in brokers if broker.http_url in told)
    leading.stop()
    others = [broker for broker in brokers if broker is not leading]
    until(
        lambda: (
            len({leader(broker) for broker in others} - told) == 1
            and {leader(broker) for broker in others} < {broker.http_url for broker in others}
        ),
        "another one leads",
        seconds=PATIENCE,
    )


def test_policies_of_topics_count_wherever_topics_and_policies_are_served(
    brokers: list[BrokerProcess], namespace: str, client: pulsar.Client
) -> None:
    topics = [f"persistent://{namespace}/t{number}" for number in range(6)]
    for number, topic in enumerate(topics):
        client.create_producer(topic).close()
        path = f"persistent/{namespace}/t{number}"
        serving = looked_up(brokers[0], topic)[0]
        owner = next(broker for broker in brokers if broker.url == serving)
        ask(owner, "POST", f"{path}/maxConsumers", number + 1)
        assert ask(owner, "GET", f"{path}/maxConsumers") == number + 1
    events = f"persistent://{namespace}/__change_events"
    owners = {looked_up(brokers[0], topic)[0] for topic in topics}
    assert len({*owners, looked_up(brokers[0], events)[0]}) > 1
    # Loaded anew, they are read again.
    ask(brokers[0], "PUT", f"namespaces/{namespace}/unload")
    first = client.subscribe(topics[0], "s", pulsar.ConsumerType.Shared)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topics[0], "s", pulsar.ConsumerType.Shared)
    first.close()


def owner_of(brokers: list[BrokerProcess], topic: str) -> BrokerProcess:
    serving = looked_up(brokers[0], topic)[0]
    return next(broker for broker in brokers if broker.url == serving)


def comes_to(brokers: list[BrokerProcess], topic: str, target: BrokerProcess) -> None:
    """The first broker may hear a moment later than the others that the topic has left its owner."""
    until(lambda: owner_of(brokers, topic) is target, f"{topic} is at the named broker", seconds=PATIENCE)


def bundle_of(broker: BrokerProcess, topic: str) -> str:
    status, found = broker.ask("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle")
    assert status == 200
    return found.decode()


def http_id(broker: BrokerProcess) -> str:
    return broker.http_url.removeprefix("http://")


def test_a_bundle_is_unloaded_to_where_it_is_wanted(
    brokers: list[BrokerProcess], namespace: str, client: pulsar.Client
) -> None:
    topic = f"persistent://{namespace}/t"
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    sent = []
    for round_number in range(6):
        owner = owner_of(brokers, topic)
        target = next(broker for broker in brokers if broker is not owner)
        path = f"/admin/v2/namespaces/{namespace}/{bundle_of(owner, topic)}/unload"
        unload(brokers[round_number % 3], f"{path}?destinationBroker={http_id(target)}")
        comes_to(brokers, topic, target)
        for number in range(5):
            sent.append(b"%d-%d" % (round_number, number))
            producer.send(sent[-1])
    assert received(consumer, len(sent)) == sent
    refused = f"{path}?destinationBroker=nobody:1"
    assert brokers[0].ask("PUT", refused)[0] == 405


def lookups(broker: BrokerProcess) -> int:
    """How often anybody has looked a topic up there."""
    status, text = broker.ask("GET", "/metrics/")
    assert status == 200
    lines = text.decode().splitlines()
    return sum(
        int(float(line.split()[1])) for line in lines if line.startswith("pulsar_broker_lookup_count{")
    )


@pytest.fixture(params=["python", "java", "magnetar"])
def following(
    request: pytest.FixtureRequest, brokers: list[BrokerProcess], namespace: str, tmp_path: Path
) -> Iterator[Following]:
    """One that looks topics up at the first broker."""
    where = brokers[0].url, f"persistent://{namespace}/t"
    if request.param == "java":
        found: Following = FollowingJava(*where, tmp_path)
    else:
        found = FollowingPython(*where) if request.param == "python" else FollowingMagnetar(*where)
    yield found
    found.close()


def test_clients_of_a_bundle_that_goes_to_a_known_broker_follow_it_without_a_lookup(
    brokers: list[BrokerProcess], namespace: str, following: Following
) -> None:
    topic = f"persistent://{namespace}/t"
    following.exchange("first")
    owner = owner_of(brokers, topic)
    bundle = bundle_of(owner, topic)
    for number in range(3):
        target = brokers[2] if owner is brokers[1] else brokers[1]
        before = lookups(brokers[0])
        unload(owner, f"/admin/v2/namespaces/{namespace}/{bundle}/unload?destinationBroker={http_id(target)}")
        following.exchange(f"{number}")
        assert lookups(brokers[0]) == before
        owner = target
        comes_to(brokers, topic, owner)


def unload(broker: BrokerProcess, path: str) -> None:
    """Goes where it is sent."""
    redirects = 0
    url = f"{broker.http_url}{path}"
    while True:
        parts = urlsplit(url)
        connection = HTTPConnection(parts.netloc, timeout=PATIENCE)
        try:
            connection.request("PUT", f"{parts.path}?{parts.query}")
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 307:
            assert response.status == 204, body
            return
        redirects += 1
        assert redirects <= 3
        url = response.headers["Location"]


def received(consumer: pulsar.Consumer, wanted: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < wanted:
        message = consumer.receive(timeout_millis=30_000)
        consumer.acknowledge(message)
        if message.data() not in found:
            found.append(message.data())
    return found


def test_bundles_are_divided_while_clients_publish(
    brokers: list[BrokerProcess], namespace: str, client: pulsar.Client
) -> None:
    topics = [f"persistent://{namespace}/t{number}" for number in range(12)]
    producers = [client.create_producer(topic) for topic in topics]
    consumers = [client.subscribe(topic, "s") for topic in topics]
    ways = ["range_equally_divide", "topic_count_equally_divide", "flow_or_qps_equally_divide"]
    sent = 0
    for way in ways:
        for producer in producers:
            producer.send(b"%d" % sent)
        sent += 1
        bundle = bundle_of(brokers[0], topics[0])
        before = bundles_of(brokers[0], namespace)
        unload(
            brokers[1],
            f"/admin/v2/namespaces/{namespace}/{bundle}/split?splitAlgorithmName={way}&unload=true",
        )
        until(
            lambda: all(bundles_of(each, namespace) == bundles_of(brokers[0], namespace) for each in brokers),
            way,
            seconds=PATIENCE,
        )
        assert set(before) <= set(bundles_of(brokers[0], namespace))
    assert len(bundles_of(brokers[0], namespace)) > 9
    for producer in producers:
        producer.send(b"%d" % sent)
    for consumer in consumers:
        assert received(consumer, sent + 1) == [b"%d" % number for number in range(sent + 1)]


def bundles_of(broker: BrokerProcess, namespace: str) -> list[str]:
    found = ask(broker, "GET", f"namespaces/{namespace}/bundles")
    assert isinstance(found, dict)
    return list(found["boundaries"])


def test_what_is_asked_of_a_namespace_reaches_all_owners(
    brokers: list[BrokerProcess], namespace: str, client: pulsar.Client
) -> None:
    topics = [f"persistent://{namespace}/t{number}" for number in range(12)]
    for topic in topics:
        consumer = client.subscribe(topic, "s")
        consumer.close()
        producer = client.create_producer(topic)
        producer.send(b"left over")
        producer.close()
    assert len({owner_of(brokers, topic).url for topic in topics}) > 1
    ask(brokers[0], "POST", f"namespaces/{namespace}/clearBacklog")
    for topic in topics:
        owner = owner_of(brokers, topic)
        found = ask(owner, "GET", f"persistent/{topic.removeprefix('persistent://')}/stats")
        assert isinstance(found, dict)
        assert found["subscriptions"]["s"]["msgBacklog"] == 0
    ask(brokers[1], "POST", f"namespaces/{namespace}/unsubscribe/s")
    ask(brokers[2], "PUT", f"namespaces/{namespace}/unload")
    for topic in topics:
        path = f"/admin/v2/persistent/{topic.removeprefix('persistent://')}/subscriptions"
        # The first broker may name the previous owner for a moment, which redirects.
        until(
            lambda: owner_of(brokers, topic).ask("GET", path)[0] != 307,  # noqa: B023
            f"{topic} has an owner",
            seconds=PATIENCE,
        )
        assert owner_of(brokers, topic).ask("GET", path) == (200, b"[]")


@pytest.fixture
def load(brokers: list[BrokerProcess], namespace: str) -> Iterator[ManyTopics]:
    hosts = ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
    found = ManyTopics(f"pulsar://{hosts}", [f"persistent://{namespace}/t{number}" for number in range(16)])
    found.start()
    yield found
    found.close()


def test_brokers_are_restarted_one_by_one_and_no_publish_fails(
    brokers: list[BrokerProcess], load: ManyTopics
) -> None:
    load.more(5)
    for broker in brokers:
        broker.restart(kill=False)
        load.more(5)
    assert load.finish() >= 20 * len(load.topics)


def test_what_a_killed_broker_served_is_served_by_others(
    brokers: list[BrokerProcess], load: ManyTopics, namespace: str
) -> None:
    load.more(5)
    lost = owner_of(brokers, load.topics[0])
    lost.kill()
    # Its session ends, and nobody waits for it to come back.
    load.more(20)
    others = [broker for broker in brokers if broker is not lost]
    assert {owner_of(others, topic) for topic in load.topics} <= set(others)
    load.finish()


def test_a_partitioned_topic_is_administered_at_all_owners(
    brokers: list[BrokerProcess], namespace: str, client: pulsar.Client
) -> None:
    topic = f"persistent://{namespace}/p"
    path = f"persistent/{namespace}/p"
    ask(brokers[0], "PUT", f"{path}/partitions", 6)
    parts = [f"{topic}-partition-{number}" for number in range(6)]
    assert len({owner_of(brokers, part).url for part in parts}) > 1
    everything = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    ask(brokers[1], "PUT", f"{path}/subscription/s", everything)
    ask(brokers[2], "POST", f"{path}/partitions", 8)
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"%d" % number)
    stats = ask(brokers[1], "GET", f"{path}/partitioned-stats?perPartition=true")
    assert isinstance(stats, dict)
    assert stats["msgInCounter"] == 40
    assert len(stats["partitions"]) == 8
    assert all("s" in each["subscriptions"] for each in stats["partitions"].values())
    why = ask(brokers[1], "GET", f"{path}/explain?subscription=s")
    assert isinstance(why, dict)
    served = {part: each["servedBy"] for part, each in why["partitions"].items()}
    assert served == {
        f"{topic}-partition-{n}": owner_of(brokers, f"{topic}-partition-{n}").url for n in range(8)
    }
    assert {each["subscriptions"]["s"]["reason"] for each in why["partitions"].values()} == {"no_consumer"}
    status, answer = brokers[2].ask("DELETE", f"/admin/v2/{path}/partitions")
    assert status == 412, answer
    producer.close()
    ask(brokers[0], "POST", f"{path}/subscription/s/skip_all")
    stats = ask(brokers[2], "GET", f"{path}/partitioned-stats")
    assert isinstance(stats, dict)
    assert stats["subscriptions"]["s"]["msgBacklog"] == 0
    ask(brokers[1], "PUT", f"{path}/unload")
    ask(brokers[2], "DELETE", f"{path}/partitions")
    assert get(brokers[0], f"persistent/{namespace}") == []


def test_each_broker_tells_what_it_serves_and_is_healthy(
    brokers: list[BrokerProcess], namespace: str, client: pulsar.Client
) -> None:
    client.create_producer(f"persistent://{namespace}/t").close()
    owner = owner_of(brokers, f"persistent://{namespace}/t")
    bundle = f"{namespace}/{bundle_of(owner, f'persistent://{namespace}/t')}"
    for broker in brokers:
        served = ask(broker, "GET", f"brokers/lab/{http_id(broker)}/ownedNamespaces")
        assert isinstance(served, dict)
        assert (bundle in served) == (broker is owner)
        own = http_id(broker)
        assert {f"pulsar/{own}/0x00000000_0xffffffff", f"pulsar/lab/{own}/0x00000000_0xffffffff"} <= set(
            served
        )
        for _ in range(2):
            assert broker.ask("GET", f"/admin/v2/brokers/health?brokerId={own}") == (200, b"ok")
    status, _ = brokers[0].ask("GET", f"/admin/v2/brokers/health?brokerId={http_id(brokers[1])}")
    assert status == 307


def test_a_namespace_is_deleted_with_what_all_brokers_serve_of_it(
    brokers: list[BrokerProcess], namespace: str, client: pulsar.Client
) -> None:
    for number in range(8):
        client.create_producer(f"persistent://{namespace}/t{number}").send(b"x")
    status, _ = brokers[0].ask("DELETE", f"/admin/v2/namespaces/{namespace}")
    assert status == 409
    for number in range(8):
        topic = f"persistent://{namespace}/t{number}"
        ask(owner_of(brokers, topic), "DELETE", f"persistent/{namespace}/t{number}?force=true")
    ask(brokers[1], "DELETE", f"namespaces/{namespace}")
    assert namespace not in get(brokers[2], "namespaces/public")


def test_a_broker_is_shut_down_by_whoever_may(brokers: list[BrokerProcess], load: ManyTopics) -> None:
    load.more(3)
    ending = owner_of(brokers, load.topics[0])
    status, answer = ending.ask("POST", "/admin/v2/brokers/shutdown?maxConcurrentUnloadPerSec=20")
    assert status == 204, answer
    assert ending.ended(PATIENCE) == 0
    load.more(3)
    load.finish()
