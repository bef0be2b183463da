"""Why nothing arrives while bookies do not answer: reasons that last too short to be met where they do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from explained import PRODUCERS, administer, side_of, told
from polling import until_wanted
from running import running

KEPT_RANGES = 5
_SHARED = pulsar.ConsumerType.Shared


@pytest.fixture(scope="module")
def started(
    started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        started_cluster,
        maxMessagePublishBufferSizeInMB=1,
        managedLedgerMaxUnackedRangesToPersist=KEPT_RANGES,
    )
    with running([process]):
        yield process


@pytest.fixture
def broker(cluster: BookKeeperServers, started: BrokerProcess) -> BrokerProcess:
    """On servers that run."""
    return started


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(broker.url, logger=logger, operation_timeout_seconds=60)
    yield made
    made.close()


@contextmanager
def silent(servers: BookKeeperServers) -> Iterator[None]:
    """No bookie answers; none is lost."""
    for bookie in servers.bookies:
        bookie.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for bookie in servers.bookies:
            bookie.signal(signal.SIGCONT)


def test_a_read_that_is_not_answered(
    broker: BrokerProcess, cluster: BookKeeperServers, client: pulsar.Client
) -> None:
    topic = "persistent://public/default/explained-reads"
    client.subscribe(topic, "s", _SHARED).close()
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(b"%d" % number)
    producer.close()
    administer(broker, f"pulsar-admin topics unload {topic}")
    administer(broker, f"pulsar-admin topics stats {topic}")
    with silent(cluster):
        client.subscribe(topic, "s", _SHARED)
        told(broker, topic, "reading")
    told(broker, topic, "at_end")


def test_writes_that_are_not_answered_and_a_topic_that_waits_for_them(
    broker: BrokerProcess, cluster: BookKeeperServers, client: pulsar.Client
) -> None:
    topic = "persistent://public/default/explained-writes"
    client.subscribe(topic, "s", _SHARED)
    producer = client.create_producer(topic)
    producer.send(b"first")
    with ThreadPoolExecutor(1) as beside, silent(cluster):
        for _ in range(20):
            producer.send_async(bytes(200_000), None)
        found = told(broker, topic, "in_flight", PRODUCERS)
        assert found["figures"]["bytesOfBroker"] > 1 << 20
        unloading = beside.submit(broker.ask, "PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")
        told(broker, topic, "moving", PRODUCERS)
        told(broker, topic, "moving")
    assert unloading.result()[0] == 204
    producer.flush()
    told(broker, topic, "nothing", PRODUCERS)


def test_more_acknowledged_out_of_order_than_is_kept_in_a_ledger(
    broker: BrokerProcess, client: pulsar.Client
) -> None:
    topic = "persistent://public/default/explained-acks"
    consumer = client.subscribe(topic, "s", _SHARED)
    administer(broker, f"pulsar-admin topicPolicies set-dispatcher-pause-on-ack-state-persistent {topic}")
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(12):
        producer.send(b"%d" % number)
    for number in range(12):
        message = consumer.receive(30_000)
        if number % 2:
            consumer.acknowledge(message)

    def after_one_more() -> str:
        # What comes before the acknowledgements are there is still sent.
        producer.send(b"more")
        return str(side_of(broker, topic)["reason"])

    until_wanted(after_one_more, lambda each: each == "ack_state")
    found = told(broker, topic, "ack_state")
    assert found["figures"]["ranges"] > KEPT_RANGES
    administer(broker, found["try"])
    told(broker, topic, "at_end")
