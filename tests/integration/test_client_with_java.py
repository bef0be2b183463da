"""Magnetar's client and the official Java client at the two ends of a topic, both ways. The broker is
Magnetar, or Apache Pulsar where MAGNETAR_PEER_URL names it (make client-on-pulsar)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import pytest
from client_programs import java_command
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from java_peer import JavaConsumer, JavaError, JavaMessage, JavaPeer
from server import Server

import magnetar.pulsar as official
from magnetar.client import (
    BatchingType,
    Client,
    CompressionType,
    Consumer,
    ConsumerType,
    CryptoKeyReader,
    DeadLetterPolicy,
    IncompatibleSchema,
    InitialPosition,
    Message,
    ProducerSchema,
    Timeout,
    ValueSchema,
    key_value_schema,
)
from magnetar.client.schemas import AvroSchema as AvroValues
from magnetar.client.schemas import JsonSchema as JsonValues
from magnetar.client.schemas import KeyValue, KeyValueSchema, PrimitiveSchema
from magnetar.pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

__all__ = ["java_command"]

WAIT_MS = 30_000
QUIET_MS = 300
EARLIEST = InitialPosition.Earliest
CODECS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
LARGE = bytes(range(256)) * 1200
"""Of several chunks of 100 KiB."""
HUGE = os.urandom(1 << 16) * 90
"""Larger than the largest entry."""


class Order(Record):
    """The record that the Java program has, too."""

    number = Integer(required=True)
    item = String()


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> str:
    """The service URL of the broker."""
    peer = os.environ.get("MAGNETAR_PEER_URL", "")
    if peer:
        return peer
    start_server: Callable[..., Server] = request.getfixturevalue("start_server")
    return start_server().url


@pytest.fixture(scope="module")
def java(url: str, java_command: list[str]) -> Iterator[JavaPeer]:
    peer = JavaPeer([*java_command[:-1], "interop.Peer"], url)
    yield peer
    peer.close()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{uuid4().hex}"


@pytest.fixture(scope="module", params=["rsa", "ec"])
def keys(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Paths of a public and a private key."""
    folder: Path = tmp_path_factory.mktemp("keys")
    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey = (
        rsa.generate_private_key(65537, 2048)
        if request.param == "rsa"
        else ec.generate_private_key(ec.SECP256R1())
    )
    public, secret = folder / "public.pem", folder / "private.pem"
    public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    secret.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return str(public), str(secret)


def received(consumer: Consumer, count: int) -> list[Message]:
    messages = [consumer.receive(WAIT_MS) for _ in range(count)]
    for message in messages:
        consumer.acknowledge(message)
    return messages


def received_by_java(consumer: JavaConsumer, count: int) -> list[JavaMessage]:
    messages = []
    for _ in range(count):
        messages.append(consumer.receive())
        consumer.acknowledge()
    return messages


# Batches


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_java_are_received(client: Client, java: JavaPeer, topic: str, codec: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = java.producer(topic, batching="default", compression=codec)
    for number in range(20):
        producer.send(b"%d" % number * 50, {"n": f"{number}"}, key="k", ordering=f"o{number}", event=number)
    assert producer.flush() == 1
    messages = received(consumer, 20)
    assert [message.data() for message in messages] == [b"%d" % number * 50 for number in range(20)]
    assert [message.message_id().batch_index() for message in messages] == list(range(20))
    assert {message.message_id().batch_size() for message in messages} == {20}
    for number, message in enumerate(messages):
        assert message.properties() == {"n": f"{number}"}
        assert (message.partition_key(), message.ordering_key()) == ("k", f"o{number}")
        assert message.event_timestamp() == number
    producer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_java_receives_batches(client: Client, java: JavaPeer, topic: str, codec: str) -> None:
    consumer = java.consumer(topic)
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_type=BatchingType.Default,
        batching_max_publish_delay_ms=10_000,
        compression_type={each.name.upper(): each for each in CompressionType}[codec],
    )
    for number in range(20):
        producer.send_async(
            b"%d" % number * 50,
            lambda *_: None,
            properties={"n": f"{number}"},
            partition_key="k",
            ordering_key=f"o{number}",
            event_timestamp=number + 1,
        )
    producer.flush()
    messages = received_by_java(consumer, 20)
    assert len({message.position for message in messages}) == 1
    assert [message.batch_index for message in messages] == list(range(20))
    for number, message in enumerate(messages):
        assert message.data == b"%d" % number * 50
        assert (message.key, message.ordering_key) == ("k", f"o{number}")
        assert (message.properties, message.event_time) == ({"n": f"{number}"}, number + 1)
    consumer.close()


def shares(first: dict[str, list[int]], second: dict[str, list[int]]) -> None:
    """Asserts that each key is at one of two consumers, in order, and that both have some."""
    assert not first.keys() & second.keys()
    assert first
    assert second
    assert first | second == {f"k{key}": list(range(key, 60, 12)) for key in range(12)}


def test_key_batches_of_java_go_to_one_consumer_for_each_key(
    client: Client, java: JavaPeer, topic: str
) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared) for _ in range(2)]
    producer = java.producer(topic, batching="key")
    for number in range(60):
        producer.send(b"%d" % number, key=f"k{number % 12}")
    assert producer.flush() == 12
    found: tuple[dict[str, list[int]], ...] = ({}, {})
    deadline = monotonic() + WAIT_MS / 1000
    while sum(len(numbers) for keys in found for numbers in keys.values()) < 60:
        assert monotonic() < deadline, found
        for consumer, by_key in zip(consumers, found, strict=True):
            for message in consumer.batch_receive():
                by_key.setdefault(message.partition_key(), []).append(int(message.data()))
                consumer.acknowledge(message)
    shares(*found)
    producer.close()


@pytest.mark.parametrize("kind", [None, BatchingType.KeyBased])
def test_java_gets_each_key_of_batches_at_one_consumer(
    client: Client, java: JavaPeer, topic: str, kind: BatchingType | None
) -> None:
    consumers = [java.consumer(topic, type="Key_Shared") for _ in range(2)]
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=kind, batching_max_publish_delay_ms=10_000
    )
    for number in range(60):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"k{number % 12}")
    producer.flush()
    found: tuple[dict[str, list[int]], ...] = ({}, {})
    places: dict[str, set[str]] = {}
    deadline = monotonic() + WAIT_MS / 1000
    while sum(len(numbers) for keys in found for numbers in keys.values()) < 60:
        assert monotonic() < deadline, found
        for consumer, by_key in zip(consumers, found, strict=True):
            message = consumer.take(20)
            if message is None:
                continue
            consumer.acknowledge()
            by_key.setdefault(message.key or "", []).append(int(message.data))
            places.setdefault(message.position, set()).add(message.key or "")
    shares(*found)
    assert all(len(keys) == 1 for keys in places.values())
    assert len(places) == 12
    for consumer in consumers:
        consumer.close()


# Chunks and encryption


def test_chunks_of_java_are_assembled(client: Client, java: JavaPeer, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = java.producer(topic, chunk=100 * 1024)
    producer.send(LARGE, {"size": "large"})
    producer.send(b"small")
    producer.flush()
    large, small = received(consumer, 2)
    assert (large.data(), large.properties()) == (LARGE, {"size": "large"})
    assert small.data() == b"small"
    producer.close()


def test_java_assembles_chunks(client: Client, java: JavaPeer, topic: str) -> None:
    consumer = java.consumer(topic)
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(HUGE, properties={"size": "huge"})
    producer.send(b"small")
    huge, small = received_by_java(consumer, 2)
    assert huge.data == HUGE
    assert huge.properties == {"size": "huge"}
    assert small.data == b"small"
    consumer.close()


@pytest.mark.parametrize("options", [{"batching": "default", "compression": "ZSTD"}, {"chunk": 100 * 1024}])
def test_messages_that_java_encrypts_are_decrypted(
    client: Client, java: JavaPeer, topic: str, keys: tuple[str, str], options: dict[str, object]
) -> None:
    public, private = keys
    consumer = client.subscribe(topic, "s", crypto_key_reader=CryptoKeyReader(private_key_path=private))
    stranger = client.subscribe(topic, "stranger")
    producer = java.producer(topic, public=public, private=private, **options)
    producer.send(b"secret", {"open": "yes"})
    producer.send(LARGE)
    producer.flush()
    first, second = received(consumer, 2)
    assert (first.data(), first.properties(), second.data()) == (b"secret", {"open": "yes"}, LARGE)
    with pytest.raises(Timeout):
        stranger.receive(QUIET_MS)
    stranger.close()
    producer.close()


@pytest.mark.parametrize("is_chunked", [False, True])
def test_java_decrypts_messages(
    client: Client, java: JavaPeer, topic: str, keys: tuple[str, str], is_chunked: bool
) -> None:
    public, private = keys
    consumer = java.consumer(topic, public=public, private=private)
    producer = client.create_producer(
        topic,
        batching_enabled=not is_chunked,
        chunking_enabled=is_chunked,
        compression_type=CompressionType.NONE if is_chunked else CompressionType.LZ4,
        encryption_key="app.key",
        crypto_key_reader=CryptoKeyReader(public_key_path=public),
    )
    contents = [b"secret", HUGE if is_chunked else LARGE]
    for content in contents:
        producer.send(content, properties={"open": "yes"})
    messages = received_by_java(consumer, 2)
    assert [message.data for message in messages] == contents
    assert [message.properties for message in messages] == [{"open": "yes"}] * 2
    consumer.close()


# Schemas


@pytest.mark.parametrize("schema", [JsonSchema(Order), AvroSchema(Order)], ids=["json", "avro"])
def test_records_are_read_by_both(
    url: str, java: JavaPeer, topic: str, request: pytest.FixtureRequest, schema: JsonSchema | AvroSchema
) -> None:
    kind = request.node.callspec.id
    client = official.Client(url)
    by_java = java.consumer(topic, schema=kind)
    consumer = client.subscribe(topic, "python", initial_position=EARLIEST, schema=schema)
    own = client.create_producer(topic, schema=schema)
    own.send(Order(number=1, item="book"))
    own.send(Order(number=2))
    other = java.producer(topic, schema=kind)
    other.send("3:pen")
    other.send("4")
    other.flush()
    values = [consumer.receive(WAIT_MS).value() for _ in range(4)]
    assert [(each.number, each.item) for each in values] == [(1, "book"), (2, None), (3, "pen"), (4, None)]
    assert [message.value for message in received_by_java(by_java, 4)] == ["1:book", "2", "3:pen", "4"]
    by_java.close()
    other.close()
    client.close()


def test_primitive_values_are_read_by_both(client: Client, java: JavaPeer, topic: str) -> None:
    schema = ProducerSchema("INT64")
    by_java = java.consumer(topic, schema="int64")
    consumer = client.subscribe(topic, "python", initial_position=EARLIEST, schema=schema)
    client.create_producer(topic, schema=schema).send((-7).to_bytes(8, signed=True))
    other = java.producer(topic, schema="int64")
    other.send("8")
    other.flush()
    assert [int.from_bytes(message.data(), signed=True) for message in received(consumer, 2)] == [-7, 8]
    assert [message.value for message in received_by_java(by_java, 2)] == ["-7", "8"]
    by_java.close()
    other.close()


@pytest.mark.parametrize("encoding", ["separated", "inline"])
def test_keys_and_values_are_read_by_both(client: Client, java: JavaPeer, topic: str, encoding: str) -> None:
    separated = encoding == "separated"
    schema = key_value_schema(ProducerSchema("STRING"), ProducerSchema("INT64"), separated=separated)
    by_java = java.consumer(topic, schema=encoding)
    consumer = client.subscribe(topic, "python", initial_position=EARLIEST, schema=schema)
    producer = client.create_producer(topic, schema=schema)
    value = (5).to_bytes(8)
    if separated:
        producer.send(value, partition_key_bytes=b"five")
    else:
        producer.send((4).to_bytes(4) + b"five" + (8).to_bytes(4) + value)
    other = java.producer(topic, schema=encoding)
    other.send("six:6")
    other.flush()
    assert [message.value for message in received_by_java(by_java, 2)] == ["five:5", "six:6"]
    last = received(consumer, 2)[1]
    if separated:
        assert (last.partition_key_bytes(), last.data()) == (b"six", (6).to_bytes(8))
    else:
        assert last.data() == (3).to_bytes(4) + b"six" + (8).to_bytes(4) + (6).to_bytes(8)
    by_java.close()
    other.close()


DATES: dict[str, tuple[str, object, str, object]] = {
    "DATE": ("951782400000", date(2000, 2, 29), "-1", date(1969, 12, 31)),
    "TIME": ("45296789", time(12, 34, 56, 789_000), "-3600000", time(23)),
    "TIMESTAMP": (
        "951827696789",
        datetime(2000, 2, 29, 12, 34, 56, 789_000, tzinfo=UTC),
        "-1",
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    ),
    "INSTANT": (
        "1969-02-28T12:34:56.789012Z",
        datetime(1969, 2, 28, 13, 34, 56, 789_012, tzinfo=timezone(timedelta(hours=1))),
        "2000-02-29T12:34:56.789012345Z",
        datetime(2000, 2, 29, 12, 34, 56, 789_012, tzinfo=UTC),
    ),
    "LOCAL_DATE": ("1969-12-31", date(1969, 12, 31), "2000-02-29", date(2000, 2, 29)),
    "LOCAL_TIME": (
        "12:34:56.789012",
        time(12, 34, 56, 789_012),
        "23:59:59.999999999",
        time(23, 59, 59, 999_999),
    ),
    "LOCAL_DATE_TIME": (
        "1969-02-28T12:34:56.789012",
        datetime(1969, 2, 28, 12, 34, 56, 789_012),
        "2000-02-29T00:00:00.000000999",
        datetime(2000, 2, 29),
    ),
}
"""By type: what Java reads of a value, that value, what Java sends, and the value that it is read as."""


@pytest.mark.parametrize("kind", DATES)
def test_dates_and_times_are_read_by_both(client: Client, java: JavaPeer, topic: str, kind: str) -> None:
    text, ours, sent, found = DATES[kind]
    schema = PrimitiveSchema(kind)
    by_java = java.consumer(topic, schema=kind)
    consumer = client.subscribe(topic, "python", initial_position=EARLIEST, schema=schema)
    client.create_producer(topic, schema=schema).send(ours)
    other = java.producer(topic, schema=kind)
    other.send(text)
    other.send(sent)
    other.flush()
    assert [message.value for message in received_by_java(by_java, 3)] == [text, text, sent]
    messages = received(consumer, 3)
    assert [message.value() for message in messages] == [ours, ours, found]
    assert messages[0].data() == messages[1].data()
    by_java.close()
    other.close()


PAIRS: dict[str, tuple[ValueSchema, bool]] = {
    "separated": (KeyValueSchema(PrimitiveSchema("STRING"), PrimitiveSchema("INT64"), separated=True), True),
    "inline": (KeyValueSchema(PrimitiveSchema("STRING"), PrimitiveSchema("INT64")), True),
    "separated-records": (
        KeyValueSchema(AvroValues(Order), JsonValues(Order), separated=True),
        False,
    ),
    "inline-records": (KeyValueSchema(JsonValues(Order), AvroValues(Order)), False),
}
"""Schemas by their names in the Java program, and whether keys are text."""


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_are_read_by_both(client: Client, java: JavaPeer, topic: str, kind: str) -> None:
    schema, is_text = PAIRS[kind]

    def pair(key: str | None, value: int | None) -> KeyValue:
        if is_text:
            return KeyValue(key, value)
        records = [None if each is None else Order(number=int(each), item="x") for each in (key, value)]
        return KeyValue(*records)

    by_java = java.consumer(topic, schema=kind)
    consumer = client.subscribe(topic, "python", initial_position=EARLIEST, schema=schema)
    with client.create_producer(topic, schema=schema) as producer:
        for value in (pair("5", 5), pair(None, 6), pair("7", None)):
            producer.send(value)
    other = java.producer(topic, schema=kind)
    for text in ("5:5", "null:6", "7:null") if is_text else ("5/x:5/x", "null:6/x", "7/x:null"):
        other.send(text)
    other.flush()
    messages = received(consumer, 6)
    expected = [pair("5", 5), pair(None, 6), pair("7", None)] * 2
    assert [message.value() for message in messages] == expected
    assert [message.has_null_partition_key() for message in messages] == [False, kind[0] == "s", False] * 2
    if is_text:
        assert [message.data() for message in messages[:3]] == [message.data() for message in messages[3:]]
    texts = [message.value for message in received_by_java(by_java, 6)]
    assert texts[:3] == texts[3:]
    assert texts[0] == ("5:5" if is_text else "5/x:5/x")
    by_java.close()
    other.close()


def test_both_are_refused_with_an_incompatible_schema(client: Client, java: JavaPeer, topic: str) -> None:
    definition = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "string"}]}
    )
    java.producer(topic, schema="avro").close()
    with pytest.raises(IncompatibleSchema):
        client.create_producer(topic, schema=ProducerSchema("AVRO", definition))
    client.create_producer(f"{topic}-2", schema=ProducerSchema("AVRO", definition))
    with pytest.raises(JavaError, match="IncompatibleSchema"):
        java.producer(f"{topic}-2", schema="avro")


# Dead letters and retry letters

_ORIGIN = ("REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID")


def test_dead_letters_of_both_are_alike(client: Client, java: JavaPeer, topic: str) -> None:
    letters = []
    for subscription in ("python", "java"):
        if subscription == "java":
            theirs = java.consumer(topic, subscription="java", type="Shared", redeliver=2)
        else:
            ours = client.subscribe(
                topic,
                subscription,
                consumer_type=ConsumerType.Shared,
                negative_ack_redelivery_delay_ms=50,
                dead_letter_policy=DeadLetterPolicy(2, initial_subscription_name="kept"),
            )
    sent = client.create_producer(topic).send(
        b"poison", partition_key="k", ordering_key="o", properties={"own": "1"}, event_timestamp=7
    )
    for attempt in range(3):
        message = ours.receive(WAIT_MS)
        assert message.redelivery_count() == attempt
        ours.negative_acknowledge(message)
        assert theirs.receive().redeliveries == attempt
        theirs.negative_acknowledge()
    for subscription in ("python", "java"):
        dead = client.subscribe(f"{topic}-{subscription}-DLQ", "kept", initial_position=EARLIEST)
        letters.append(received(dead, 1)[0])
        dead.close()
    assert [letter.data() for letter in letters] == [b"poison"] * 2
    assert [letter.partition_key() for letter in letters] == ["k"] * 2
    origin = f"{sent.ledger_id()}:{sent.entry_id()}:-1"
    for subscription, letter in zip(("python", "java"), letters, strict=True):
        assert {name: letter.properties()[name] for name in (*_ORIGIN, "own")} == {
            "REAL_TOPIC": topic,
            "REAL_SUBSCRIPTION": subscription,
            "ORIGIN_MESSAGE_ID": origin,
            "own": "1",
        }
    ours.close()
    theirs.close()


@pytest.mark.parametrize("first", ["python", "java"])
def test_both_share_the_retry_letters_of_a_subscription(
    client: Client, java: JavaPeer, topic: str, first: str
) -> None:
    policy = DeadLetterPolicy(2, initial_subscription_name="kept")
    options = {"consumer_type": ConsumerType.Shared, "retry_enabled": True, "dead_letter_policy": policy}
    sent = client.create_producer(topic).send(b"content", partition_key="k", properties={"own": "1"})
    turns = ["python", "java", "python"] if first == "python" else ["java", "python", "java"]
    for times, turn in enumerate(turns):
        if turn == "python":
            ours = client.subscribe(topic, "s", initial_position=EARLIEST, **options)
            message = ours.receive(WAIT_MS)
            told = (message.data(), message.properties())
            ours.reconsume_later(message, 10)
            ours.close()
        else:
            theirs = java.consumer(topic, type="Shared", retry=1, redeliver=2)
            found = theirs.receive()
            told = (found.data, dict(found.properties))
            theirs.reconsume_later(10)
            theirs.close()
        assert told[0] == b"content"
        assert told[1].get("RECONSUMETIMES", "0") == str(times)
    dead = client.subscribe(f"{topic}-s-DLQ", "kept", initial_position=EARLIEST)
    [letter] = received(dead, 1)
    assert (letter.data(), letter.partition_key()) == (b"content", "k")
    origin = f"{sent.ledger_id()}:{sent.entry_id()}:-1"
    assert {name: letter.properties()[name] for name in (*_ORIGIN, "own", "RECONSUMETIMES")} == {
        "REAL_TOPIC": topic,
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": origin,
        "own": "1",
        "RECONSUMETIMES": "3",
    }
    dead.close()


# Table views


def test_table_views_of_both_are_alike(client: Client, java: JavaPeer, topic: str) -> None:
    producer = client.create_producer(topic)
    for key, content in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("c", b"")):
        producer.send(content, partition_key=key)
    theirs, ours = java.table_view(topic), client.create_table_view(topic)
    assert ours.contents() == theirs.contents() == {"a": b"3", "b": b"2"}
    other = java.producer(topic, batching="default")
    for key, content in (("d", b"5"), ("b", b""), ("a", b"6")):
        other.send(content, key=key)
    other.flush()
    expected = {"a": b"6", "d": b"5"}
    deadline = monotonic() + WAIT_MS / 1000
    while ours.contents() != expected or theirs.contents() != expected:
        assert monotonic() < deadline, (ours.contents(), theirs.contents())
        sleep(0.02)
    ours.close()
    theirs.close()
    other.close()


@pytest.mark.parametrize("kind", ["avro", "separated"])
def test_table_views_of_both_have_the_same_values(
    client: Client, java: JavaPeer, topic: str, kind: str
) -> None:
    def text(value: object) -> str:
        return f"{value.number}:x" if isinstance(value, Order) else f"{value.key}:{value.value}"

    schema = AvroValues(Order) if kind == "avro" else PAIRS[kind][0]
    producer = client.create_producer(topic, schema=schema)
    for number, key in enumerate("abac"):
        value = Order(number=number, item="x") if kind == "avro" else KeyValue(key, number)
        producer.send(value, **({"partition_key": key} if kind == "avro" else {}))
    if kind == "avro":
        producer.send(None, null_value=True, partition_key="c")
    else:
        producer.send(KeyValue("c", None))
    theirs, ours = java.table_view(topic, schema=kind), client.create_table_view(topic, schema=schema)
    found = theirs.values()
    assert found == {key: text(value) for key, value in ours.contents().items()}
    assert len(found) == 2
    other = java.producer(topic, schema=kind)
    other.send("9:x" if kind == "avro" else "d:9", **({"key": "d"} if kind == "avro" else {}))
    other.flush()
    deadline = monotonic() + WAIT_MS / 1000
    while len(ours) < 3 or len(theirs.values()) < 3:
        assert monotonic() < deadline
        sleep(0.02)
    assert theirs.values() == {key: text(value) for key, value in ours.contents().items()}
    ours.close()
    theirs.close()
    other.close()
