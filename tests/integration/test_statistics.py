"""Statistics, metrics and operations over HTTP, with the figures of real traffic."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from polling import until_wanted
from raw_client import SECONDS, Client, id_of
from server import VARIANTS, Server

from magnetar.broker.namespaces.registry import new_policies
from magnetar.io.real import real_io
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

pulsar = pytest.importorskip("pulsar")

Json = dict[str, Any]


@pytest.fixture(scope="module", params=list(VARIANTS))
def server(request: pytest.FixtureRequest, start_server) -> Server:  # type: ignore[no-untyped-def]
    return start_server(  # type: ignore[no-any-return]
        statsUpdateFrequencyInSecs=1,
        exposeConsumerLevelMetricsInPrometheus="true",
        exposeProducerLevelMetricsInPrometheus="true",
        **VARIANTS[request.param],
    )


@pytest.fixture
def official(server: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def get(server: Server, path: str) -> Any:
    status, body = server.ask("GET", path)
    assert status == 200, (path, status, body)
    return json.loads(body)


def path_of(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"


def stats(server: Server, topic: str) -> Json:
    found: Json = get(server, f"{path_of(topic)}/stats")
    return found


def internal(server: Server, topic: str) -> Json:
    found: Json = get(server, f"{path_of(topic)}/internalStats")
    return found


def metric(text: str, name: str, **labels: str) -> float:
    """The one sample of a name with these labels among others."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?", line)
        if match is None or match[1] != name:
            continue
        has = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
        if all(has.get(key) == value for key, value in labels.items()):
            found.append(float(match[3]))
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_counters_publishers_and_consumers(server: Server, official: pulsar.Client, topic: str) -> None:
    consumer = official.subscribe(topic, "s", consumer_name="who", properties={"team": "red"})
    producer = official.create_producer(
        topic, producer_name="writer", batching_enabled=False, properties={"host": "h"}
    )
    for _ in range(40):
        producer.send(b"x" * 100)
    messages = [consumer.receive(10_000) for _ in range(40)]
    for message in messages[:15]:
        consumer.acknowledge(message)
    found = until_wanted(
        lambda: (now := stats(server, topic))["subscriptions"]["s"]["msgBacklog"] == 25 and now, bool, SECONDS
    )
    assert found["msgInCounter"] == found["msgOutCounter"] == 40
    assert found["bytesInCounter"] >= 40 * 100
    assert found["storageSize"] == internal(server, topic)["totalSize"]
    [publisher] = found["publishers"]
    assert (publisher["producerName"], publisher["metadata"]) == ("writer", {"host": "h"})
    assert publisher["accessMode"] == "Shared"
    assert publisher["address"].startswith("/127.0.0.1:")
    assert publisher["clientVersion"].startswith("Pulsar")
    subscription = found["subscriptions"]["s"]
    assert (subscription["type"], subscription["isDurable"]) == ("Exclusive", True)
    assert subscription["msgOutCounter"] == 40
    assert 0 < subscription["backlogSize"] <= found["storageSize"]
    assert subscription["lastAckedTimestamp"] >= subscription["lastConsumedFlowTimestamp"] > 0
    [reader] = subscription["consumers"]
    assert (reader["consumerName"], reader["metadata"]) == ("who", {"team": "red"})
    assert subscription["activeConsumerName"] == "who"
    assert reader["msgOutCounter"] == 40
    assert reader["availablePermits"] >= 1000 - 40
    consumer.close()
    producer.close()
    gone = stats(server, topic)
    assert gone["publishers"] == []
    assert gone["subscriptions"]["s"]["consumers"] == []


def test_rates_rise_with_traffic_and_fall_to_zero(
    server: Server, official: pulsar.Client, topic: str
) -> None:
    consumer = official.subscribe(topic, "s")
    producer = official.create_producer(topic, batching_enabled=False)

    def moving() -> Json | None:
        for _ in range(20):
            producer.send(b"x" * 100)
            consumer.acknowledge(consumer.receive(10_000))
        now = stats(server, topic)
        subscription = now["subscriptions"]["s"]
        rates = (now["msgRateIn"], now["msgRateOut"], subscription["messageAckRate"])
        return now if all(rate > 0 for rate in rates) else None

    found = until_wanted(moving, bool, SECONDS)
    assert found["averageMsgSize"] >= 100
    assert found["msgThroughputIn"] == pytest.approx(found["msgRateIn"] * found["averageMsgSize"])
    [publisher], [reader] = found["publishers"], found["subscriptions"]["s"]["consumers"]
    assert publisher["msgRateIn"] > 0
    assert reader["msgRateOut"] > 0
    until_wanted(lambda: stats(server, topic)["msgRateIn"] == 0, bool, SECONDS)
    until_wanted(lambda: stats(server, topic)["subscriptions"]["s"]["msgRateOut"] == 0, bool, SECONDS)


def test_unacknowledged_redelivered_and_batches_on_shared(
    server: Server, official: pulsar.Client, topic: str
) -> None:
    consumer = official.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = official.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=10_000
    )
    for _ in range(30):
        producer.send_async(b"m", None)
    producer.flush()
    messages = [consumer.receive(10_000) for _ in range(30)]
    found = stats(server, topic)
    assert found["msgInCounter"] == 30
    assert found["subscriptions"]["s"]["unackedMessages"] == 30
    assert found["subscriptions"]["s"]["consumers"][0]["avgMessagesPerEntry"] == 10
    for message in messages[:10]:
        consumer.acknowledge(message)
    until_wanted(lambda: stats(server, topic)["subscriptions"]["s"]["unackedMessages"] == 20, bool, SECONDS)
    assert stats(server, topic)["subscriptions"]["s"]["msgBacklog"] == 2
    consumer.redeliver_unacknowledged_messages()
    again = [consumer.receive(10_000) for _ in range(20)]
    assert {m.redelivery_count() for m in again} == {1}


def test_internal_stats_name_ledgers_and_cursors(server: Server, topic: str) -> None:
    client = Client(server.port)
    client.close_consumer(client.subscribe(topic, "keep"))
    producer, _ = client.produce(topic)
    consumer = client.subscribe(topic, "s", permits=1000)
    where = client.published(producer, [b"%d" % n for n in range(30)])
    client.messages(consumer, 30)
    client.acknowledge(consumer, [id_of(where[9])], cumulative=True)
    client.acknowledge(consumer, [id_of(where[12]), id_of(where[15])])
    found = internal(server, topic)
    assert (found["entriesAddedCounter"], found["numberOfEntries"]) == (30, 30)
    assert found["lastConfirmedEntry"] == "{}:{}".format(*where[-1])
    assert found["state"] in ("LedgerOpened", "CreatingLedger")
    assert {ledger for ledger, _entry in where} <= {line["ledgerId"] for line in found["ledgers"]}
    assert sum(line["entries"] for line in found["ledgers"]) + found["currentLedgerEntries"] == 30
    cursor = found["cursors"]["s"]
    assert cursor["markDeletePosition"] == "{}:{}".format(*where[9])
    assert cursor["messagesConsumedCounter"] == 12
    assert cursor["individuallyDeletedMessages"].count("..") == 2
    assert cursor["totalNonContiguousDeletedMessagesRange"] == 2
    assert cursor["active"] is True
    assert found["cursors"]["keep"]["active"] is False
    assert found["cursors"]["keep"]["messagesConsumedCounter"] == 0
    with_metadata = get(server, f"{path_of(topic)}/internalStats?metadata=true")
    assert all("LedgerMetadata" in line["metadata"] for line in with_metadata["ledgers"])


def test_ledgers_roll_and_are_trimmed(server: Server, topic: str) -> None:
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", permits=1000)
    producer, _ = client.produce(topic)
    where = client.published(producer, [b"%d" % n for n in range(30)])
    before = {line["ledgerId"] for line in internal(server, topic)["ledgers"]}
    assert {ledger for ledger, _entry in where} <= before
    client.acknowledge(consumer, [id_of(where[-1])], cumulative=True)
    assert server.ask("PUT", f"{path_of(topic)}/unload")[0] == 204
    gone = until_wanted(
        lambda: not {line["ledgerId"] for line in internal(server, topic)["ledgers"]} & {where[0][0]},
        bool,
        SECONDS,
    )
    assert gone
    assert stats(server, topic)["storageSize"] == 0
    assert stats(server, topic)["subscriptions"]["s"]["msgBacklog"] == 0


def test_metrics_tell_the_same(server: Server, topic: str) -> None:
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", CommandSubscribe.Shared, permits=1000, consumer_name="who")
    producer, _ = client.produce(topic, producer_name="p")
    where = client.published(producer, [b"x" * 200] * 25)
    client.messages(consumer, 25)
    client.acknowledge(consumer, [id_of(there) for there in where[:5]])
    text = server.ask("GET", "/metrics")[1].decode()
    of_topic = {"topic": topic, "namespace": "public/default", "cluster": "standalone"}
    of_subscription = of_topic | {"subscription": "s"}
    assert metric(text, "pulsar_in_messages_total", **of_topic) == 25
    assert metric(text, "pulsar_in_bytes_total", **of_topic) >= 25 * 200
    assert metric(text, "pulsar_producers_count", **of_topic) == 1
    assert metric(text, "pulsar_consumers_count", **of_topic) == 1
    assert metric(text, "pulsar_storage_size", **of_topic) == stats(server, topic)["storageSize"]
    assert metric(text, "pulsar_subscription_back_log", **of_subscription) == 20
    assert metric(text, "pulsar_subscription_unacked_messages", **of_subscription) == 20


def test_a_subscription_without_consumers_keeps_its_figures(server: Server, topic: str) -> None:
    client = Client(server.port)
    client.close_consumer(client.subscribe(topic, "s"))
    producer, _ = client.produce(topic)
    client.published(producer, [b"m"] * 10)
    found = stats(server, topic)["subscriptions"]["s"]
    assert (found["msgBacklog"], found["consumers"], found["unackedMessages"]) == (10, [], 0)


def test_waiting_and_exclusive_producers_are_told(server: Server, topic: str) -> None:
    client = Client(server.port)
    client.produce(topic, producer_access_mode=1)
    client.produce(topic, producer_access_mode=2)
    found = stats(server, topic)
    assert found["waitingPublishers"] == 1
    assert found["topicEpoch"] == 0
    assert [p["accessMode"] for p in found["publishers"]] == ["Exclusive"]


def test_statistics_of_what_is_not_there(server: Server) -> None:
    for path in ("stats", "internalStats"):
        assert server.ask("GET", f"/admin/v2/persistent/public/default/no-such-topic/{path}")[0] == 404
    assert server.ask("PUT", "/admin/v2/persistent/public/default/no-such-topic/unload")[0] == 404
    assert server.ask("GET", "/admin/v2/persistent/public/none/t/stats")[0] == 404


def test_asking_creates_nothing(server: Server) -> None:
    server.ask("GET", "/admin/v2/persistent/public/default/asked-for/stats")
    assert not [name for name in get(server, "/admin/v2/persistent/public/default") if "asked-for" in name]


def test_health_again_and_again(server: Server) -> None:
    for _ in range(20):
        assert server.ask("GET", "/admin/v2/brokers/health") == (200, b"ok")


def test_clients_survive_unload(server: Server, official: pulsar.Client, topic: str) -> None:
    consumer = official.subscribe(topic, "s")
    producer = official.create_producer(topic, batching_enabled=False)
    for number in range(30):
        producer.send(b"%d" % number)
        if number % 10 == 5:
            assert server.ask("PUT", f"{path_of(topic)}/unload")[0] == 204
    got: list[int] = []
    while not got or got[-1] != 29:
        message = consumer.receive(10_000)
        got.append(int(message.data()))
        consumer.acknowledge(message)
    assert set(got) == set(range(30))


def test_unloads_at_the_same_time_wait_for_one_another(server: Server, topic: str) -> None:
    """The second took the topic off the list while the first was still closing it."""
    client = Client(server.port)
    client.close_consumer(client.subscribe(topic, "s"))
    producer, _ = client.produce(topic)
    client.published(producer, [b"m"] * 10)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _n: server.ask("PUT", f"{path_of(topic)}/unload")[0], range(24)))
    assert set(answers) == {204}
    assert stats(server, topic)["subscriptions"]["s"]["msgBacklog"] == 10
    assert client.produce(topic, producer_id=9)[1].producer_ready


def test_partitioned_topics(server: Server, official: pulsar.Client, topic: str) -> None:
    path = path_of(topic)
    assert server.ask("PUT", f"{path}/partitions", "3")[0] == 204
    assert server.ask("PUT", f"{path}/partitions", "3")[0] == 409
    assert get(server, f"{path}/partitions")["partitions"] == 3
    assert topic in get(server, "/admin/v2/persistent/public/default/partitioned")
    names = [f"{topic}-partition-{n}" for n in range(3)]
    assert set(names) <= set(get(server, "/admin/v2/persistent/public/default"))
    consumer = official.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = official.create_producer(
        topic,
        batching_enabled=False,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for number in range(30):
        producer.send(b"%d" % number)
    got = set()
    for _ in range(30):
        message = consumer.receive(10_000)
        got.add(int(message.data()))
        consumer.acknowledge(message)
    assert got == set(range(30))
    assert [stats(server, name)["msgInCounter"] for name in names] == [10, 10, 10]
    assert server.ask("PUT", f"{path}/unload")[0] == 204
    until_wanted(
        lambda: all(stats(server, name)["subscriptions"]["s"]["consumers"] for name in names), bool, SECONDS
    )
    assert server.ask("DELETE", f"{path}/partitions")[0] == 412
    producer.close()
    consumer.unsubscribe()
    assert server.ask("DELETE", f"{path}/partitions")[0] == 204
    assert server.ask("GET", f"{path}/partitions")[0] == 404


def test_delete_is_refused_while_in_use(server: Server, topic: str) -> None:
    client = Client(server.port)
    consumer = client.subscribe(topic, "s")
    producer, _ = client.produce(topic)
    client.published(producer, [b"m"])
    assert server.ask("DELETE", path_of(topic))[0] == 412
    assert server.ask("DELETE", f"{path_of(topic)}?force=true")[0] == 204
    client.take(BaseCommand.CLOSE_PRODUCER, producer_id=producer)
    client.take(BaseCommand.CLOSE_CONSUMER, consumer_id=consumer)
    assert server.ask("GET", f"{path_of(topic)}/stats")[0] == 404


def test_legacy_topics_by_their_paths(server: Server) -> None:
    check_legacy(server, "standalone")


def test_legacy_topics_of_the_global_cluster(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server()
    server.stop()
    asyncio.run(add_namespace(server, "sample/global/ns1"))
    server.start()
    check_legacy(server, "global")


async def add_namespace(server: Server, namespace: str) -> None:
    """Into the metadata of a server that does not run."""
    io = real_io(asyncio.get_running_loop(), server.folder / "data")
    store = await EmbeddedMetadataStore.open_store(io, "metadata/metadata.sqlite")
    policies = new_policies(["standalone"], {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1})
    await store.put(f"/admin/policies/{namespace}", json.dumps(policies).encode())
    await store.close()


def check_legacy(server: Server, cluster: str) -> None:
    topic = f"persistent://sample/{cluster}/ns1/legacy"
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", permits=10)
    producer, _ = client.produce(topic)
    client.published(producer, [b"%d" % n for n in range(5)])
    client.messages(consumer, 5)
    for base in ("/admin/persistent", "/admin/v2/persistent"):
        below = f"{base}/sample/{cluster}/ns1"
        assert topic in get(server, below)
        found = get(server, f"{below}/legacy/stats")
        assert (found["msgInCounter"], found["subscriptions"]["s"]["msgBacklog"]) == (5, 5)
        assert get(server, f"{below}/legacy/internalStats")["numberOfEntries"] == 5
    assert server.ask("PUT", f"/admin/persistent/sample/{cluster}/ns1/legacy/unload")[0] == 204
    client.take(BaseCommand.CLOSE_PRODUCER)
