"""Why nothing arrives: each reason is brought about by an official client, told by REST and by the command,
and ended by the command that is told with it.

What needs bookies that do not answer is in ``tests/cluster/test_explained_troubles.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from explained import PRODUCERS, Door, administer, asked, shown, side_of, told
from polling import until_wanted
from process_signals import stop
from raw_client import Client
from server import Server

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from magnetar.testing import Broker

pulsar = pytest.importorskip("pulsar")

FILTERS = Path(__file__).parent / "semantics" / "filters"
WAIT_MS = 10_000
KEPT_BATCHES = 2
EXCLUSIVE, SHARED = pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared
FAILOVER, KEY_SHARED = pulsar.ConsumerType.Failover, pulsar.ConsumerType.KeyShared
EARLIEST = pulsar.InitialPosition.Earliest
BROKER_LIMIT = 60


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FILTERS))
        return start_server(
            entryFilterNames="fruit_filters:Later,fruit_filters:Slow",
            dispatcherEntryFilterRescheduledMessageDelay=30_000,
            activeConsumerFailoverDelayTimeMillis=30_000,
            maxUnackedMessagesPerBroker=BROKER_LIMIT,
            keySharedLookAheadMsgInReplayThresholdPerSubscription=20,
            acknowledgmentAtBatchIndexLevelEnabled="true",
            managedLedgerMaxBatchDeletedIndexToPersist=KEPT_BATCHES,
        )


def connect(url: str, seconds: int = 30) -> Any:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(url, operation_timeout_seconds=seconds, logger=logger)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = connect(server.url)
    yield made
    made.close()


def publish(client: Any, topic: str, count: int, **message: Any) -> Any:
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send(b"%d" % number, **message)
    return producer


def publish_keys(client: Any, topic: str, keys: int, times: int = 1) -> None:
    producer = client.create_producer(topic)
    for number in range(keys * times):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % keys}")
    producer.flush()


def subscribe(client: Any, topic: str, kind: Any = SHARED, name: str = "s", **options: Any) -> Any:
    return client.subscribe(topic, name, kind, initial_position=EARLIEST, **options)


def test_nobody_is_connected(server: Server, client: Any, topic: str) -> None:
    subscribe(client, topic).close()
    publish(client, topic, 3)
    found = told(server, topic, "no_consumer")
    assert found["sentence"] == "No consumer is connected; 3 messages wait."
    assert "try" not in found
    assert administer(server, found["look"])


def test_a_consumer_that_receives_no_more(server: Server, client: Any, topic: str) -> None:
    consumer = subscribe(client, topic, receiver_queue_size=2, consumer_name="slow")
    publish(client, topic, 10)
    found = told(server, topic, "no_permits")
    assert [each["name"] for each in found["figures"]["waitingFor"]] == ["slow"]
    for _ in range(10):
        consumer.receive(WAIT_MS)
    assert told(server, topic, "at_end")["figures"]["unacknowledged"] == 10


_HANGS = """
import pulsar, sys
client = pulsar.Client(sys.argv[1], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
consumer = client.subscribe(sys.argv[2], "s", receiver_queue_size=100_000)
print("here", flush=True)
sys.stdin.read()
"""


def test_a_client_that_hangs(server: Server, client: Any, topic: str) -> None:
    arguments = [sys.executable, "-c", _HANGS, server.url, topic]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
            stop(process.pid)
            producer = client.create_producer(topic)
            for _ in range(200):
                producer.send_async(bytes(200_000), None)
            producer.flush()
            told(server, topic, "connection_full")
        finally:
            process.kill()


@pytest.mark.parametrize("whose", ["consumer", "subscription"])
def test_a_limit_of_what_is_outstanding(server: Server, client: Any, topic: str, whose: str) -> None:
    consumer = subscribe(client, topic)
    administer(server, f"pulsar-admin topics set-max-unacked-messages-per-{whose} -m 5 {topic}")
    publish(client, topic, 10)
    for _ in range(5):
        consumer.receive(WAIT_MS)
    found = told(server, topic, f"unacked_{whose}")
    assert found["figures"]["limit"] == 5
    administer(server, found["try"])
    for _ in range(5):
        consumer.receive(WAIT_MS)
    told(server, topic, "at_end")


def test_the_broker_s_limit_of_what_is_outstanding(server: Server, client: Any, topic: str) -> None:
    consumer = subscribe(client, topic)
    publish(client, topic, BROKER_LIMIT + 20)
    messages = [consumer.receive(WAIT_MS) for _ in range(BROKER_LIMIT)]
    found = told(server, topic, "unacked_broker")
    assert found["figures"]["limit"] == BROKER_LIMIT
    for message in messages:
        consumer.acknowledge(message)
    told(server, topic, "at_end")


def test_a_key_that_another_consumer_holds(server: Server, client: Any, topic: str) -> None:
    first = subscribe(client, topic, KEY_SHARED, consumer_name="first")
    publish_keys(client, topic, 20)
    for _ in range(20):
        first.receive(WAIT_MS)
    subscribe(client, topic, KEY_SHARED, consumer_name="second")
    publish_keys(client, topic, 20)
    found = told(server, topic, "key_held")
    assert {each["consumer"] for each in found["figures"]["held"]} == {"first"}
    administer(server, found["try"])
    assert told(server, topic, "at_end")["figures"]["backlog"] == 40


def test_keys_that_no_consumer_takes(server: Server, client: Any, topic: str) -> None:
    policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(0, 20_000)])
    subscribe(client, topic, KEY_SHARED, key_shared_policy=policy)
    publish_keys(client, topic, 20)
    assert told(server, topic, "key_unassigned")["figures"]["waiting"] > 0


def test_keys_that_wait_for_one_consumer_keep_others_waiting(server: Server, client: Any, topic: str) -> None:
    subscribe(client, topic, KEY_SHARED, receiver_queue_size=1, consumer_name="slow")
    subscribe(client, topic, KEY_SHARED, consumer_name="quick")
    publish_keys(client, topic, 20, 4)
    found = told(server, topic, "look_ahead")
    assert [each["name"] for each in found["figures"]["waitingFor"]] == ["slow"]


@pytest.mark.parametrize(
    ("whose", "given"),
    [
        ("Subscription", "topicPolicies set-subscription-dispatch-rate -s s"),
        ("Topic", "topics set-dispatch-rate"),
    ],
)
def test_a_rate_of_dispatch(server: Server, client: Any, topic: str, whose: str, given: str) -> None:
    subscribe(client, topic)
    administer(server, f"pulsar-admin {given} -md 5 -dt 600 {topic}")
    publish(client, topic, 20)
    found = told(server, topic, "rate_limit")
    assert (found["figures"]["limitOf"], found["figures"]["messages"]) == (whose, 5)
    administer(server, found["try"])
    told(server, topic, "at_end")


def test_what_is_delayed(server: Server, client: Any, topic: str) -> None:
    subscribe(client, topic)
    publish(client, topic, 2, deliver_at=int(time.time() * 1000) + 3_600_000)
    found = told(server, topic, "delayed")
    assert found["figures"]["delayed"] == 2
    assert found["figures"]["nextDue"] > time.time() * 1000 + 3_000_000


def test_a_filter_that_puts_off(server: Server, client: Any, topic: str) -> None:
    subscribe(client, topic)
    publish(client, topic, 1, properties={"later": "yes"})
    assert told(server, topic, "filter")["figures"]["filters"] == ["Later", "Slow"]


def test_more_is_acknowledged_in_part_than_is_kept(server: Server, client: Any, topic: str) -> None:
    consumer = subscribe(client, topic, batch_index_ack_enabled=True)
    administer(server, f"pulsar-admin topicPolicies set-dispatcher-pause-on-ack-state-persistent {topic}")
    batches = KEPT_BATCHES + 1
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=2, batching_max_publish_delay_ms=60_000
    )
    for number in range(2 * batches):
        producer.send_async(b"%d" % number, None)
    for _ in range(batches):
        consumer.acknowledge(consumer.receive(WAIT_MS))
        consumer.receive(WAIT_MS)

    def after_one_more() -> str:
        # What comes before the acknowledgements are there is still sent.
        publish(client, topic, 1).close()
        return str(side_of(server, topic)["reason"])

    until_wanted(after_one_more, lambda each: each == "ack_state")
    found = told(server, topic, "ack_state")
    assert (found["figures"]["ranges"], found["figures"]["batches"]) == (0, batches)
    administer(server, found["try"])
    told(server, topic, "at_end")


def test_others_come_first_while_much_is_sent(server: Server, client: Any, topic: str) -> None:
    """Filters think about each entry: a hundred are a turn, and whoever asks needs dozens of turns."""
    messages = 60_000
    producer = client.create_producer(topic, max_pending_messages=messages)
    subscribe(client, topic, EXCLUSIVE).close()
    for _ in range(messages):
        producer.send_async(b"x", None, properties={"slow": "yes"})
    producer.flush()
    consumer = subscribe(client, topic, EXCLUSIVE, receiver_queue_size=2 * messages)
    told(server, topic, "turn")
    consumer.close()
    told(server, topic, "no_consumer")


def test_a_consumer_that_has_just_become_active(server: Server, client: Any, topic: str) -> None:
    subscribe(client, topic, FAILOVER, consumer_name="next")
    publish(client, topic, 1)
    assert told(server, topic, "takeover")["figures"]["active"] == "next"


def test_what_is_not_acknowledged_at_the_end(server: Server, client: Any, topic: str) -> None:
    consumer = subscribe(client, topic, EXCLUSIVE)
    publish(client, topic, 4)
    messages = [consumer.receive(WAIT_MS) for _ in range(4)]
    found = told(server, topic, "at_end")
    assert found["sentence"] == "All messages were delivered; 4 of them are not acknowledged."
    consumer.acknowledge_cumulative(messages[-1])
    until_wanted(
        lambda: asked(server, topic)["subscriptions"]["s"]["sentence"],
        lambda text: text == "All messages were delivered and acknowledged.",
    )


def test_what_is_dropped_where_nothing_is_stored(server: Server, client: Any, topic: str) -> None:
    name = topic.replace("persistent://", "non-persistent://")
    subscribe(client, name, receiver_queue_size=1)
    publish(client, name, 5)
    assert told(server, name, "no_permits")["figures"]["dropped"] >= 3


# Producers


def refused(client: Any, topic: str, **options: Any) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic, **options)


def test_nothing_is_in_the_way_and_json(server: Server, client: Any, topic: str) -> None:
    publish(client, topic, 1)
    told(server, topic, "nothing", PRODUCERS)
    found = json.loads(shown(server, topic, "-o", "json"))
    assert found["servedBy"] == server.url
    assert found["producers"]["reason"] == "nothing"


def test_a_topic_that_is_terminated(server: Server, client: Any, topic: str) -> None:
    publish(client, topic, 1)
    administer(server, f"pulsar-admin topics terminate {topic}")
    refused(client, topic)
    found = told(server, topic, "terminated", PRODUCERS)
    assert found["refused"][0]["message"] == "Topic was already terminated"


def test_a_backlog_quota(server: Server, client: Any, topic: str) -> None:
    subscribe(client, topic, name="behind").close()
    publish(client, topic, 5).close()
    administer(server, f"pulsar-admin topics set-backlog-quota -l 100 -p producer_exception {topic}")
    found = told(server, topic, "backlog_quota", PRODUCERS)
    refused(client, topic)
    assert found["figures"]["slowest"] == "behind"
    administer(server, found["try"])
    told(server, topic, "nothing", PRODUCERS)
    publish(client, topic, 1)


@pytest.mark.broker(settings={"preciseTimeBasedBacklogQuotaCheck": True})
@pytest.mark.parametrize("policy", ["producer_exception", "producer_request_hold"])
def test_a_backlog_that_is_too_old(broker: Broker, topic: str, policy: str) -> None:
    door, client = Door(broker.admin_url), connect(broker.service_url)
    subscribe(client, topic, name="behind").close()
    publish(client, topic, 1).close()
    administer(door, f"pulsar-admin topics set-backlog-quota -lt 1h -t message_age -p {policy} {topic}")
    broker.advance(minutes=90)
    refused(client, topic)
    found = told(door, topic, "backlog_quota", PRODUCERS)
    figures = found["figures"]
    assert (figures["quota"], figures["policy"], figures["limitSeconds"]) == ("time", policy, 3600)
    assert figures["slowest"] == "behind"
    administer(door, found["try"])
    told(door, topic, "nothing", PRODUCERS)
    publish(client, topic, 1)
    client.close()


def test_as_many_producers_as_may_be(server: Server, client: Any, topic: str) -> None:
    publish(client, topic, 1)
    administer(server, f"pulsar-admin topics set-max-producers -p 1 {topic}")

    def refuse() -> bool:
        try:
            client.create_producer(topic).close()
        except pulsar.PulsarException:
            return True
        return False

    until_wanted(refuse, bool)
    found = told(server, topic, "max_producers", PRODUCERS)
    administer(server, found["try"])
    until_wanted(refuse, lambda each: not each)
    told(server, topic, "nothing", PRODUCERS)


def test_a_producer_that_has_the_topic_for_itself(server: Server, client: Any, topic: str) -> None:
    exclusive = pulsar.ProducerAccessMode.Exclusive
    client.create_producer(topic, producer_name="own", access_mode=exclusive)
    refused(client, topic)
    assert told(server, topic, "exclusive_producer", PRODUCERS)["figures"]["owner"] == "own"


def test_a_name_that_is_taken(server: Server, client: Any, topic: str) -> None:
    client.create_producer(topic, producer_name="me")
    other = connect(server.url)
    refused(other, topic, producer_name="me")
    other.close()
    assert "'me'" in told(server, topic, "name_taken", PRODUCERS)["sentence"]


class Order(pulsar.schema.Record):
    number = pulsar.schema.Integer(required=True)


class Bill(pulsar.schema.Record):
    amount = pulsar.schema.Double(required=True)


def test_a_schema_that_does_not_fit(server: Server, client: Any, topic: str) -> None:
    client.create_producer(topic, schema=pulsar.schema.AvroSchema(Order)).close()
    refused(client, topic, schema=pulsar.schema.AvroSchema(Bill))
    found = told(server, topic, "schema_incompatible", PRODUCERS)
    assert "Order" in administer(server, found["look"])


def test_what_has_to_be_encrypted(server: Server, client: Any) -> None:
    """The client repeats a refused request until its time-out."""
    administer(server, "pulsar-admin namespaces create public/locked")
    topic = "persistent://public/locked/t"
    administer(server, f"pulsar-admin topics create {topic}")
    administer(server, "pulsar-admin namespaces set-encryption-required --enable public/locked")
    impatient = connect(server.url, 1)
    refused(impatient, topic)
    impatient.close()
    found = told(server, topic, "encryption_required", PRODUCERS)
    administer(server, found["try"])
    publish(client, topic, 1)


def test_a_message_that_is_too_large(server: Server, topic: str) -> None:
    """The Python client sends what is refused again and again, for ever: this one does not."""
    administer(server, f"pulsar-admin topics create {topic}")
    administer(server, f"pulsar-admin topics set-max-message-size -m 100 {topic}")
    path = f"/admin/v2/{topic.replace('://', '/')}/maxMessageSize"
    until_wanted(lambda: server.ask("GET", path)[1], lambda body: body == b"100")
    client = Client(server.port)
    producer, _ = client.produce(topic)
    metadata = MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1)
    client.publish(producer, 0, build_entry(metadata, bytes(1000)))
    client.take(BaseCommand.SEND_ERROR, producer_id=producer)
    client.close()
    found = told(server, topic, "message_refused", PRODUCERS)
    assert found["try"] == f"pulsar-admin topics set-max-message-size -m 200 {topic}"


def test_a_rate_of_publishing(server: Server, client: Any, topic: str) -> None:
    producer = publish(client, topic, 1)
    administer(server, f"pulsar-admin topics set-publish-rate -m 10 {topic}")

    def send() -> str:
        for _ in range(200):
            producer.send_async(b"x", None)
        producer.flush()
        return str(asked(server, topic)["producers"]["reason"])

    until_wanted(send, lambda reason: reason == "publish_rate")
    found = told(server, topic, "publish_rate", PRODUCERS)
    assert found["figures"]["limitOf"] == "Topic"
    assert found["try"] == f"pulsar-admin topics set-publish-rate -m 100 -b -1 {topic}"


def test_a_disk_without_room(start_server: Callable[..., Server], topic: str) -> None:
    server = start_server(diskUsageThreshold="0.01")
    client = connect(server.url)
    refused(client, topic)
    client.close()
    found = told(server, topic, "storage_full", PRODUCERS)
    assert "diskUsageThreshold" in found["sentence"]
    assert found["look"] == "magnetar storage report"


# Partitions, and what is not there


def test_partitions_are_told_one_by_one(server: Server, client: Any, topic: str) -> None:
    administer(server, f"pulsar-admin topics create-partitioned-topic -p 2 {topic}")
    subscribe(client, topic)
    found = asked(server, topic, "s")
    assert list(found["partitions"]) == [f"{topic}-partition-0", f"{topic}-partition-1"]
    text = shown(server, topic, "-s", "s")
    assert text.startswith(f"{topic}: 2 partitions\n")
    assert text.count("subscription s: at_end") == 2


def test_what_is_not_there(server: Server, client: Any, topic: str) -> None:
    publish(client, topic, 1)
    words = [
        sys.executable,
        "-m",
        "magnetar",
        "explain",
        topic,
        "-s",
        "nobody",
        "--admin-url",
        server.http_url,
    ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Subscription nobody does not exist" in ended.stderr
