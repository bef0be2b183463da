"""Statistics of topics with an official client: each figure follows from what the client did.

``docs/statistics.md`` says which fields there are and where they differ from Apache Pulsar's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from polling import until_wanted
from raw_client import Client, id_of
from server import Server

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

pulsar = pytest.importorskip("pulsar")

Json = dict[str, Any]
SECONDS = 20.0


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server(statsUpdateFrequencyInSecs=1)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def get(server: Server, path: str) -> Any:
    status, body = server.ask("GET", path)
    assert status == 200, (path, status, body)
    return json.loads(body)


def path_of(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"


def stats(server: Server, topic: str, query: str = "", kind: str = "stats") -> Json:
    found: Json = get(server, f"{path_of(topic)}/{kind}?{query}")
    return found


def publish(client: Any, topic: str, *bodies: bytes, **options: Any) -> None:
    producer = client.create_producer(topic, batching_enabled=False, **options)
    for body in bodies:
        producer.send(body)
    producer.close()


# What waits


def test_bytes_out_are_bytes_of_entries(server: Server, client: Any, topic: str) -> None:
    """As Pulsar counts them: not the frames that carry them, and the same as came in."""
    kinds = (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)
    for number, kind in enumerate(kinds):
        consumer = client.subscribe(topic, f"s{number}", kind)
        publish(client, topic, *[b"x" * size for size in (1, 10, 300)], producer_name=f"p{number}")
        for _ in range(3):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.close()
        client.subscribe(topic, f"s{number + 1}").close()
    found = stats(server, topic)
    assert found["bytesInCounter"] == found["storageSize"]
    first = found["subscriptions"]["s0"]["bytesOutCounter"]
    assert first > 311
    assert [found["subscriptions"][f"s{n}"]["bytesOutCounter"] for n in range(3)] == [first] * 3
    assert found["bytesOutCounter"] == found["bytesInCounter"] == 3 * first


def test_earliest_time_in_the_backlog(server: Server, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "ahead")
    client.subscribe(topic, "behind").close()
    client.subscribe(topic, "done").close()
    producer = client.create_producer(topic, batching_enabled=False)
    for body in (b"1", b"2", b"3"):
        producer.send(body)
        time.sleep(0.01)
    messages = [consumer.receive(10_000) for _ in range(3)]
    consumer.acknowledge_cumulative(messages[1])
    assert server.ask("POST", f"{path_of(topic)}/subscription/done/skip_all")[0] == 204
    times = [message.publish_timestamp() for message in messages]

    def asked() -> Json | None:
        found = stats(server, topic, "getEarliestTimeInBacklog=true")
        return found if found["subscriptions"]["ahead"]["msgBacklog"] == 1 else None

    found = until_wanted(asked, bool, SECONDS)
    earliest = {n: s["earliestMsgPublishTimeInBacklog"] for n, s in found["subscriptions"].items()}
    assert earliest == {"ahead": times[2], "behind": times[0], "done": 0}
    assert found["earliestMsgPublishTimeInBacklogs"] == times[0]
    plain = stats(server, topic)
    assert plain["earliestMsgPublishTimeInBacklogs"] == 0
    assert plain["subscriptions"]["behind"]["earliestMsgPublishTimeInBacklog"] == 0


def test_the_age_of_the_oldest_message(server: Server, client: Any, topic: str) -> None:
    assert server.ask("PUT", path_of(topic))[0] == 204
    assert stats(server, topic)["oldestBacklogMessageAgeSeconds"] == -1
    consumer = client.subscribe(topic, "slow")
    client.subscribe(topic, "quick").close()
    publish(client, topic, b"1", b"2")
    assert server.ask("POST", f"{path_of(topic)}/subscription/quick/skip/1")[0] == 204
    found = until_wanted(
        lambda: (now := stats(server, topic))["oldestBacklogMessageAgeSeconds"] >= 1 and now, bool, SECONDS
    )
    assert found["oldestBacklogMessageSubscriptionName"] == "slow"
    for _ in range(2):
        consumer.acknowledge(consumer.receive(10_000))
    found = until_wanted(
        lambda: (now := stats(server, topic))["subscriptions"]["slow"]["msgBacklog"] == 0 and now,
        bool,
        SECONDS,
    )
    assert found["oldestBacklogMessageSubscriptionName"] == "quick"
    assert server.ask("POST", f"{path_of(topic)}/subscription/quick/skip_all")[0] == 204
    found = stats(server, topic)
    assert found["oldestBacklogMessageAgeSeconds"] == -1
    assert "oldestBacklogMessageSubscriptionName" not in found


def test_backlog_size_when_asked_for(server: Server, client: Any, topic: str) -> None:
    client.subscribe(topic, "s").close()
    publish(client, topic, b"x" * 100, b"y" * 100)
    size = stats(server, topic)["storageSize"]
    for query, wanted in (
        ("", size),
        ("subscriptionBacklogSize=true", size),
        ("subscriptionBacklogSize=false", -1),
    ):
        found = stats(server, topic, query)
        assert (found["backlogSize"], found["subscriptions"]["s"]["backlogSize"]) == (size, wanted)
    precise = stats(server, topic, "getPreciseBacklog=true")
    assert precise["subscriptions"]["s"]["msgBacklog"] == 2


def test_the_backlog_quota_in_force(server: Server, client: Any) -> None:
    assert server.ask("PUT", "/admin/v2/namespaces/public/quotas", "{}")[0] == 204
    topic = "persistent://public/quotas/t"
    publish(client, topic, b"m")
    found = stats(server, topic)
    assert (found["backlogQuotaLimitSize"], found["backlogQuotaLimitTime"]) == (-1, -1)
    quota = {"limitSize": 123456, "limitTime": -1, "policy": "producer_exception"}
    where = "/admin/v2/namespaces/public/quotas/backlogQuota?backlogQuotaType=destination_storage"
    assert server.ask("POST", where, json.dumps(quota))[0] == 204
    quota = {"limitSize": -1, "limitTime": 77, "policy": "consumer_backlog_eviction"}
    where = f"{path_of(topic)}/backlogQuota?backlogQuotaType=message_age"
    assert server.ask("POST", where, json.dumps(quota))[0] == 204
    until_wanted(lambda: stats(server, topic)["backlogQuotaLimitTime"] == 77, bool, SECONDS)
    assert stats(server, topic)["backlogQuotaLimitSize"] == 123456


# Clients


def test_clients_are_left_out_on_demand(server: Server, client: Any, topic: str) -> None:
    client.subscribe(topic, "s")
    client.create_producer(topic)
    found = stats(server, topic, "excludePublishers=true&excludeConsumers=true")
    assert (found["publishers"], found["subscriptions"]["s"]["consumers"]) == ([], [])
    found = stats(server, topic)
    assert len(found["publishers"]) == len(found["subscriptions"]["s"]["consumers"]) == 1


def test_a_subscription_nobody_has_used_has_no_type(server: Server, client: Any, topic: str) -> None:
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    assert stats(server, topic)["subscriptions"]["s"]["type"] == "Shared"
    assert server.ask("PUT", f"{path_of(topic)}/unload")[0] == 204
    assert stats(server, topic)["subscriptions"]["s"]["type"] == "None"


def test_chunks_published(server: Server, client: Any, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(b"small")
    assert stats(server, topic)["msgChunkPublished"] is False

    def publishing() -> bool:
        producer.send(b"x" * (5 * 1024 * 1024 + 1))
        return bool(stats(server, topic)["publishers"][0]["chunkedMessageRate"] > 0)

    until_wanted(publishing, bool, SECONDS)
    producer.close()
    assert stats(server, topic)["msgChunkPublished"] is True


def test_a_failover_subscription(server: Server, client: Any, topic: str) -> None:
    other = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for name, owner in (("a", client), ("b", other)):
            owner.subscribe(topic, "s", pulsar.ConsumerType.Failover, consumer_name=name)
        publish(client, topic, b"1", b"2", b"3")

        def served() -> Json | None:
            found: Json = stats(server, topic)["subscriptions"]["s"]
            return found if found["msgOutCounter"] == 3 else None

        found = until_wanted(served, bool, SECONDS)
        counts = {c["consumerName"]: c["msgOutCounter"] for c in found["consumers"]}
        assert counts == {"a": 0, "b": 0, found["activeConsumerName"]: 3}
    finally:
        other.close()


def test_a_reader(server: Server, client: Any, topic: str) -> None:
    publish(client, topic, *[b"%d" % n for n in range(5)])
    reader = client.create_reader(topic, pulsar.MessageId.earliest, reader_name="me")
    for _ in range(3):
        reader.read_next(10_000)
    found = stats(server, topic)
    [subscription] = found["subscriptions"].values()
    assert (subscription["isDurable"], subscription["durable"]) == (False, False)
    assert (subscription["type"], subscription["activeConsumerName"]) == ("Exclusive", "me")
    assert subscription["msgOutCounter"] == 5
    [cursor] = stats(server, topic, kind="internalStats")["cursors"].values()
    assert (cursor["cursorLedger"], cursor["cursorLedgerLastEntry"]) == (-1, -1)
    reader.close()
    assert stats(server, topic)["subscriptions"] == {}


def test_what_a_key_shared_consumer_drains(server: Server, client: Any, topic: str) -> None:
    kind = pulsar.ConsumerType.KeyShared
    producer = client.create_producer(topic, batching_enabled=False)
    first = client.subscribe(topic, "s", kind, consumer_name="first")
    keys = [f"key-{n}" for n in range(40)]
    for key in keys:
        producer.send(b"m", partition_key=key)
    held = [first.receive(10_000) for _ in keys]
    client.subscribe(topic, "s", kind, consumer_name="second")
    for key in keys:
        producer.send(b"n", partition_key=key)

    def consumers() -> tuple[Json, Json, Json]:
        subscription = stats(server, topic)["subscriptions"]["s"]
        by_name = {c["consumerName"]: c for c in subscription["consumers"]}
        return subscription, by_name["first"], by_name["second"]

    def settled() -> tuple[Json, Json, Json] | None:
        subscription, old, new = consumers()
        blocked = sum(each["blockedAttempts"] for each in old["drainingHashes"])
        return (subscription, old, new) if blocked and blocked == subscription["msgInReplay"] else None

    subscription, old, new = until_wanted(settled, bool, SECONDS)
    drained = old["drainingHashes"]
    assert (subscription["keySharedMode"], subscription["allowOutOfOrderDelivery"]) == ("AUTO_SPLIT", False)
    assert old["drainingHashesCount"] == subscription["drainingHashesCount"] == len(drained) > 0
    assert {each["unackMsgs"] for each in drained} == {1}
    assert (
        old["drainingHashesUnackedMessages"] == subscription["drainingHashesUnackedMessages"] == len(drained)
    )
    assert (new["drainingHashesCount"], new["drainingHashes"]) == (0, [])
    ranges = sorted([*old["keyHashRangeArrays"], *new["keyHashRangeArrays"]])
    assert (ranges[0][0], ranges[-1][1]) == (1, 65535)
    assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))
    slots = {each["hash"] for each in drained}
    assert all(any(low <= slot <= high for low, high in new["keyHashRangeArrays"]) for slot in slots)
    for message in held:
        first.acknowledge(message)
    until_wanted(lambda: consumers()[0]["drainingHashesCount"] == 0, bool, SECONDS)
    subscription, old, new = consumers()
    assert old["drainingHashesClearedTotal"] == subscription["drainingHashesClearedTotal"] == len(drained)
    assert (old["drainingHashes"], new["drainingHashesClearedTotal"]) == ([], 0)


def test_key_shared_without_order_drains_nothing(server: Server, client: Any, topic: str) -> None:
    policy = pulsar.ConsumerKeySharedPolicy(
        pulsar.KeySharedMode.Sticky,
        allow_out_of_order_delivery=True,
        sticky_ranges=[(0, 20000), (30000, 40000)],
    )
    client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, key_shared_policy=policy)
    subscription = stats(server, topic)["subscriptions"]["s"]
    [consumer] = subscription["consumers"]
    assert (subscription["keySharedMode"], subscription["allowOutOfOrderDelivery"]) == ("STICKY", True)
    assert consumer["keyHashRangeArrays"] == [[0, 20000], [30000, 40000]]
    assert "drainingHashes" not in consumer


def test_consumer_stats_over_the_binary_protocol(server: Server, topic: str) -> None:
    """The same figures as over HTTP; no official client asks for them by itself."""
    client = Client(server.port)
    policy = f"{path_of(topic)}/maxUnackedMessagesOnConsumer"
    consumer = client.subscribe(topic, "s", CommandSubscribe.Shared, 10, consumer_name="who")
    assert server.ask("POST", policy, "4")[0] == 204
    producer, _ = client.produce(topic)
    where = client.published(producer, [b"%d" % n for n in range(12)])
    held = client.messages(consumer, 4)
    assert len(held) == 4

    def told() -> Any:
        return client.ask(
            BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=consumer
        )

    blocked = told()
    assert blocked.blockedConsumerOnUnackedMsgs
    assert (blocked.unackedMessages, blocked.msgBacklog) == (4, 12)
    for position in where[:3]:
        client.acknowledge(consumer, [id_of(position)])
    until_wanted(lambda: told().msgRateOut > 0 and told().messageAckRate > 0, bool, SECONDS)
    found = told()
    [over_http] = stats(server, topic)["subscriptions"]["s"]["consumers"]
    assert (found.type, found.msgBacklog, found.msgRateExpired) == ("Shared", 9, 0.0)
    assert (found.consumerName, found.address) == (over_http["consumerName"], over_http["address"])
    assert found.connectedSince == over_http["connectedSince"]
    assert (found.unackedMessages, found.availablePermits) == (
        over_http["unackedMessages"],
        over_http["availablePermits"],
    )
    client.close()


# Ledgers and cursors


def test_a_cursor_that_waits(server: Server, client: Any, topic: str) -> None:
    def cursor() -> Json:
        found: Json = stats(server, topic, kind="internalStats")["cursors"]["s"]
        return found

    for kind in (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared):
        consumer = client.subscribe(topic, "s", kind, receiver_queue_size=2)
        until_wanted(
            lambda: cursor()["waitingReadOp"] and cursor()["subscriptionHavePendingRead"], bool, SECONDS
        )
        assert stats(server, topic, kind="internalStats")["waitingCursorsCount"] == 1
        publish(client, topic, b"1", b"2", b"3")
        # Without permits it waits for nothing.
        until_wanted(lambda: not cursor()["waitingReadOp"], bool, SECONDS)
        assert not cursor()["subscriptionHavePendingRead"]
        for _ in range(3):
            consumer.acknowledge(consumer.receive(10_000))
        until_wanted(lambda: cursor()["waitingReadOp"], bool, SECONDS)
        consumer.close()
        assert not cursor()["waitingReadOp"]


def test_ranges_of_a_cursor(server: Server, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    publish(client, topic, *[b"%d" % n for n in range(10)])
    messages = [consumer.receive(10_000) for _ in range(10)]
    ledger = messages[0].message_id().ledger_id()
    for number in (0, 1, 4, 6, 7):
        consumer.acknowledge(messages[number])

    def acknowledged() -> Json | None:
        found: Json = stats(server, topic)["subscriptions"]["s"]
        return found if found["msgBacklog"] == 5 else None

    found = until_wanted(acknowledged, bool, SECONDS)
    assert found["nonContiguousDeletedMessagesRanges"] == 2
    # Two ranges of two positions, each of two numbers, with their tags and sizes.
    assert found["nonContiguousDeletedMessagesRangesSerializedSize"] in range(2 * 12, 2 * 18)
    cursor = stats(server, topic, kind="internalStats")["cursors"]["s"]
    wanted = f"[({ledger}:3..{ledger}:4],({ledger}:5..{ledger}:7]]"
    assert cursor["individuallyDeletedMessages"] == wanted
    assert cursor["totalNonContiguousDeletedMessagesRange"] == 2
    assert (cursor["markDeletePosition"], cursor["readPosition"]) == (f"{ledger}:1", f"{ledger}:10")
    assert cursor["numberOfEntriesSinceFirstNotAckedMessage"] == 9
    assert cursor["messagesConsumedCounter"] == 5
    assert found["lastMarkDeleteAdvancedTimestamp"] > 0


def test_metadata_of_ledgers(server: Server, client: Any, topic: str) -> None:
    client.subscribe(topic, "keep").close()
    publish(client, topic, b"1", b"2")
    assert server.ask("PUT", f"{path_of(topic)}/unload")[0] == 204
    client.create_producer(topic)
    found = stats(server, topic, "metadata=true", "internalStats")
    plain = stats(server, topic, kind="internalStats")
    assert "metadata" not in plain["ledgers"][0]
    first, last = found["ledgers"][0], found["ledgers"][-1]
    assert (first["entries"], first["size"]) == (2, found["totalSize"])
    for part in ("state=CLOSED", "lastEntryId=1", f"length={first['size']}", "ensembleSize=1", "application"):
        assert part in first["metadata"]
    assert "state=OPEN" in last["metadata"]
    assert (last["entries"], last["size"]) == (0, 0)


# Partitioned topics


def test_partitions_together(server: Server, client: Any, topic: str) -> None:
    assert server.ask("PUT", f"{path_of(topic)}/partitions", "2")[0] == 204
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, consumer_name="c")
    producer = client.create_producer(
        topic,
        producer_name="p",
        batching_enabled=False,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for number in range(10):
        producer.send(b"%d" % number)
    messages = [consumer.receive(10_000) for _ in range(10)]
    for message in messages[:4]:
        consumer.acknowledge(message)

    def together() -> Json | None:
        found = stats(server, topic, "getEarliestTimeInBacklog=true", "partitioned-stats")
        return found if found["subscriptions"]["s"]["msgBacklog"] == 6 else None

    found = until_wanted(together, bool, SECONDS)
    parts = found["partitions"]
    assert sorted(parts) == [f"{topic}-partition-{n}" for n in range(2)]
    for field in ("msgInCounter", "bytesInCounter", "bytesOutCounter", "storageSize", "backlogSize"):
        assert found[field] == sum(part[field] for part in parts.values()) > 0, field
    assert found["metadata"]["partitions"] == 2
    [publisher] = found["publishers"]
    assert publisher["producerName"] == "p"
    [reader] = found["subscriptions"]["s"]["consumers"]
    assert (reader["consumerName"], reader["msgOutCounter"], reader["unackedMessages"]) == ("c", 10, 6)
    times = [part["earliestMsgPublishTimeInBacklogs"] for part in parts.values()]
    assert found["earliestMsgPublishTimeInBacklogs"] == min(times) > 0
    assert stats(server, topic, "perPartition=false", "partitioned-stats")["partitions"] == {}
    without = stats(server, topic, "excludePublishers=true&excludeConsumers=true", "partitioned-stats")
    assert (without["publishers"], without["subscriptions"]["s"]["consumers"]) == ([], [])
    for part in stats(server, topic, kind="partitioned-internalStats")["partitions"].values():
        assert part["numberOfEntries"] == 5
        assert part["schemaLedgers"] == []
