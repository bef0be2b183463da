"""Apache Pulsar's broker and ours serve the same topics, taking turns."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar
import pytest
from apache_broker import ApacheBroker
from bookkeeper_servers import CLUSTER, BookKeeperServers
from cluster_broker import BrokerProcess
from kazoo.client import KazooClient
from pulsar.schema import AvroSchema, Integer, Record, String

NAMESPACE = "public/turns"
TURNS = int(os.environ.get("MAGNETAR_TURNS", "4"))
EVERYTHING = 120_000
"""Milliseconds that a message, or a request, may take. On a machine that is busy otherwise the first ones of
Apache Pulsar's broker take half a minute."""


_MARKS = ("Index", "BrokerTimestamp")
_COMPRESSED = b"\x47\x78"
"""With which compressed records in the metadata begin."""


class Reading(Record):
    sensor = String()
    value = Integer()


class Turns:
    """Either broker, one at a time."""

    def __init__(
        self, folder: Path, servers: BookKeeperServers, of_both: Mapping[str, str] = {}, **of_apaches: str
    ) -> None:
        settings = {
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            "brokerDeduplicationEnabled": "true",
            **of_both,
        }
        self._ours = BrokerProcess(folder / "ours", servers, **settings)
        self._apaches = ApacheBroker(folder / "apaches", servers, **settings, **of_apaches)

    @contextmanager
    def serving(self, turn: int) -> Iterator[tuple[BrokerProcess | ApacheBroker, pulsar.Client]]:
        broker = self._apaches if turn % 2 else self._ours
        broker.start()
        client = patient_client(broker)
        try:
            yield broker, client
        finally:
            client.close()
            broker.stop()

    def close(self) -> None:
        self._ours.close()
        self._apaches.close()


def patient_client(broker: BrokerProcess | ApacheBroker) -> pulsar.Client:
    return pulsar.Client(
        broker.url,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        operation_timeout_seconds=EVERYTHING // 1000,
    )


@pytest.fixture(scope="module")
def turns(started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turns]:
    made = Turns(tmp_path_factory.mktemp("turns"), started_cluster)
    yield made
    made.close()


def ask(broker: BrokerProcess | ApacheBroker, method: str, path: str, body: object = None) -> Any:
    status, answer = broker.ask(method, f"/admin/v2/{path}", None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer else None


def topic(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


def make_namespace(broker: BrokerProcess | ApacheBroker) -> None:
    if NAMESPACE in ask(broker, "GET", "namespaces/public"):
        return
    ask(broker, "PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 4}})
    ask(
        broker,
        "POST",
        f"namespaces/{NAMESPACE}/retention",
        {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    )


def test_topics_go_from_one_broker_to_the_other_and_back(cluster: BookKeeperServers, turns: Turns) -> None:
    sent: list[bytes] = []
    left: list[bytes] = []
    """What the subscription has not consumed, in order."""
    values: list[int] = []
    latest: dict[str, bytes] = {}
    for turn in range(TURNS):
        with turns.serving(turn) as (broker, client):
            if turn == 0:
                make_namespace(broker)
                ask(broker, "POST", f"namespaces/{NAMESPACE}/maxConsumersPerTopic", 77)
            assert ask(broker, "GET", f"namespaces/{NAMESPACE}/maxConsumersPerTopic") == 77
            left = plain(client, turn, sent, left)
            schemas(client, turn, values)
            deduplicated(client, turn)
            compacted(broker, client, turn, latest)
            batches(client, turn)
            delayed(client, turn)


def test_what_apaches_broker_may_write_otherwise_is_read(cluster: BookKeeperServers, tmp_path: Path) -> None:
    interceptors = (f"org.apache.pulsar.common.intercept.Append{each}MetadataInterceptor" for each in _MARKS)
    turns = Turns(
        tmp_path,
        cluster,
        managedLedgerInfoCompressionType="LZ4",
        managedLedgerInfoCompressionThresholdInBytes="0",
        managedCursorInfoCompressionType="ZSTD",
        managedCursorInfoCompressionThresholdInBytes="0",
        brokerEntryMetadataInterceptors=",".join(interceptors),
        managedLedgerPersistIndividualAckAsLongArray="true",
        persistentUnackedRangesWithMultipleEntriesEnabled="true",
    )
    try:
        sent: list[bytes] = []
        left: list[bytes] = []
        for turn in (1, 0, 1):
            with turns.serving(turn) as (broker, client):
                if not sent:
                    make_namespace(broker)
                left = plain(client, len(sent), sent, left, "otherwise")
            of_topic = f"/managed-ledgers/{NAMESPACE}/persistent/otherwise"
            compressed = [node.startswith(_COMPRESSED) for node in nodes(cluster, of_topic, f"{of_topic}/s")]
            assert compressed == [turn == 1] * 2
    finally:
        turns.close()


def test_ledgers_whose_metadata_has_a_path_of_its_own(cluster: BookKeeperServers, tmp_path: Path) -> None:
    """On a bookie of its own; what the cluster knows otherwise has a path of its own, too."""
    path, store = f"/own/{tmp_path.name}", f"{cluster.metadata_store}/elsewhere/{tmp_path.name}"
    bookies = f"{cluster.metadata_store}{path}"
    cluster.initialize_at(bookies)
    bookie = cluster.another_bookie(tmp_path / "bookie", path)
    bookie.launch()
    uri = f"metadata-store:{bookies}"
    cluster.initialize_at(store, "--existing-bk-metadata-service-uri", uri)
    one = {f"managedLedgerDefault{each}": "1" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
    settings = {"metadataStoreUrl": store, "configurationMetadataStoreUrl": store, **one}
    settings["bookkeeperMetadataServiceUri"] = uri
    turns = Turns(tmp_path, cluster, settings)
    try:
        bookie.wait()
        sent: list[bytes] = []
        left: list[bytes] = []
        values: list[int] = []
        for turn in (0, 1, 0):
            with turns.serving(turn) as (broker, client):
                if not sent:
                    make_namespace(broker)
                left = plain(client, len(sent), sent, left)
                schemas(client, len(sent), values)
    finally:
        turns.close()
        bookie.close()


def nodes(cluster: BookKeeperServers, *paths: str) -> list[bytes]:
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    try:
        return [client.get(path)[0] for path in paths]
    finally:
        client.stop()
        client.close()


def plain(
    client: pulsar.Client, turn: int, sent: list[bytes], left: list[bytes], name: str = "plain"
) -> list[bytes]:
    """Everything is there in order; what single acknowledgements left open comes again, and nothing else."""
    consumer = client.subscribe(topic(name), "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic(name))
    new = [b"%d-%d" % (turn, number) for number in range(60)]
    for body in new:
        producer.send(body)
    sent += new
    reader = client.create_reader(topic(name), pulsar.MessageId.earliest)
    assert [reader.read_next(timeout_millis=EVERYTHING).data() for _ in sent] == sent
    wanted = left + new
    messages = [consumer.receive(timeout_millis=EVERYTHING) for _ in wanted]
    assert sorted(message.data() for message in messages) == sorted(wanted)
    open_ones = []
    for number, message in enumerate(messages):
        if number % 3:
            consumer.acknowledge(message)
        else:
            open_ones.append(message.data())
    consumer.close()
    return open_ones


def schemas(client: pulsar.Client, turn: int, values: list[int]) -> None:
    producer = client.create_producer(topic("schemas"), schema=AvroSchema(Reading))
    producer.send(Reading(sensor="s", value=turn))
    values.append(turn)
    reader = client.create_reader(topic("schemas"), pulsar.MessageId.earliest, schema=AvroSchema(Reading))
    assert [reader.read_next(timeout_millis=EVERYTHING).value().value for _ in values] == values


def deduplicated(client: pulsar.Client, turn: int) -> None:
    """Each turn publishes what the one before did, and then something new."""
    producer = client.create_producer(topic("once"), producer_name="only", send_timeout_millis=0)
    assert producer.last_sequence_id() == (5 * turn or -1)
    for number in range(max(0, 5 * (turn - 1)), 5 * (turn + 1)):
        # The client takes 0 for none.
        producer.send(b"%d" % number, sequence_id=number + 1)
    reader = client.create_reader(topic("once"), pulsar.MessageId.earliest)
    wanted = [b"%d" % number for number in range(5 * (turn + 1))]
    assert [reader.read_next(timeout_millis=EVERYTHING).data() for _ in wanted] == wanted
    assert not reader.has_message_available()


def compacted(
    broker: BrokerProcess | ApacheBroker, client: pulsar.Client, turn: int, latest: dict[str, bytes]
) -> None:
    producer = client.create_producer(topic("keyed"))

    def read() -> dict[str, bytes]:
        reader = client.create_reader(topic("keyed"), pulsar.MessageId.earliest, is_read_compacted=True)
        found = {}
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=EVERYTHING)
            found[message.partition_key()] = message.data()
        reader.close()
        return found

    assert read() == latest
    for number in range(turn, turn + 5):
        producer.send(b"%d" % turn, partition_key=f"key{number}")
        latest[f"key{number}"] = b"%d" % turn
    ask(broker, "PUT", f"persistent/{NAMESPACE}/keyed/compaction")
    while True:
        status = ask(broker, "GET", f"persistent/{NAMESPACE}/keyed/compaction")
        assert isinstance(status, dict)
        if status["status"] != "RUNNING":
            break
    assert status["status"] == "SUCCESS", status
    assert read() == latest


def batches(client: pulsar.Client, turn: int) -> None:
    """Of a batch half is acknowledged in one turn, and the other half comes in the next."""
    consumer = client.subscribe(
        topic("batches"),
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        batch_index_ack_enabled=True,
    )
    if turn:
        odd = [consumer.receive(timeout_millis=EVERYTHING) for _ in range(5)]
        assert sorted(message.data() for message in odd) == [
            b"%d-%d" % (turn - 1, n) for n in (1, 3, 5, 7, 9)
        ]
        for message in odd:
            consumer.acknowledge(message)
    producer = client.create_producer(
        topic("batches"), batching_enabled=True, batching_max_publish_delay_ms=1000, batching_max_messages=10
    )
    for number in range(10):
        producer.send_async(b"%d-%d" % (turn, number), None)
    producer.flush()
    for number in range(10):
        message = consumer.receive(timeout_millis=EVERYTHING)
        assert message.data() == b"%d-%d" % (turn, number)
        if number % 2 == 0:
            consumer.acknowledge(message)
    consumer.close()


def delayed(client: pulsar.Client, turn: int) -> None:
    """What was published to be delivered later in one turn comes in the next."""
    consumer = client.subscribe(topic("delayed"), "s", consumer_type=pulsar.ConsumerType.Shared)
    if turn:
        message = consumer.receive(timeout_millis=EVERYTHING)
        assert message.data() == b"%d" % (turn - 1)
        consumer.acknowledge(message)
    client.create_producer(topic("delayed")).send(b"%d" % turn, deliver_after=timedelta(seconds=2))
    consumer.close()


def test_a_broker_that_was_stopped_for_too_long_acknowledges_nothing_more(
    cluster: BookKeeperServers, tmp_path: Path
) -> None:
    """While it sleeps Apache's broker opens its topic; then it wakes up, with messages on their way."""
    ours, apaches = BrokerProcess(tmp_path / "ours", cluster), ApacheBroker(tmp_path / "apaches", cluster)
    name = f"persistent://public/default/asleep-{tmp_path.name}"
    acknowledged: list[bytes] = []
    try:
        ours.start()
        client = patient_client(ours)
        client.subscribe(name, "s").close()
        producer = client.create_producer(name, batching_enabled=False, send_timeout_millis=0)
        bodies = [b"%d" % number for number in range(2000)]

        def told(body: bytes) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
            def done(result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
                if result == pulsar.Result.Ok:
                    acknowledged.append(body)

            return done

        for body in bodies[:1000]:
            producer.send_async(body, told(body))
        producer.flush()
        for number, body in enumerate(bodies[1000:]):
            producer.send_async(body, told(body))
            if number == 100:
                ours.signal(signal.SIGSTOP)
        apaches.start()
        while ours.http_url.removeprefix("http://") in ask(apaches, "GET", f"brokers/{CLUSTER}"):
            # The topic might still be given to it.
            time.sleep(0.1)
        others = patient_client(apaches)
        consumer = others.subscribe(name, "s")
        others.create_producer(name, send_timeout_millis=EVERYTHING).send(b"from the other one")
        ours.signal(signal.SIGCONT)
        assert ours.ended(EVERYTHING / 1000) == 74
        found = []
        while not found or found[-1] != b"from the other one":
            found.append(consumer.receive(timeout_millis=EVERYTHING).data())
        assert len(acknowledged) >= 1000
        assert found[:-1] == bodies[: len(found) - 1]
        assert set(acknowledged) <= set(found)
        others.close()
        client.shutdown()
    finally:
        ours.close()
        apaches.stop()
