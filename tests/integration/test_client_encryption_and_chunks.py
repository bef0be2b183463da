"""Messages that are encrypted, and messages in chunks: ours beside the official Python client, both ways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.cli.pulsar_admin import main as pulsar_admin
from magnetar.client import (
    Client,
    CompressionType,
    ConsumerType,
    CryptoError,
    CryptoFailureAction,
    CryptoKeyReader,
    InitialPosition,
    InvalidConfiguration,
    MessageId,
    PulsarException,
    Timeout,
    aio,
)
from magnetar.client.outgoing_message import PreparedEntry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

pulsar = pytest.importorskip("pulsar")

KEYS = Path(__file__).parent / "semantics" / "keys"
PUBLIC, PRIVATE = str(KEYS / "public.pem"), str(KEYS / "private.pem")
READER = CryptoKeyReader(PUBLIC, PRIVATE)
OFFICIAL_READER = pulsar.CryptoKeyReader(PUBLIC, PRIVATE)
SEALED: dict[str, Any] = {"encryption_key": "app.key", "crypto_key_reader": READER}
LARGE = bytes(range(256)) * 1100
"""Of several entries where an entry has 100 KiB."""
WAIT_MS = 10_000
QUIET_MS = 500


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server(maxMessageSize=100 * 1024)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.fixture(scope="module")
def official(server: Server) -> Iterator[Any]:
    made = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture(scope="module")
def admin(server: Server) -> AdminClient:
    return AdminClient(server.http_url)


def taken(client: Client, topic: str, count: int, **options: Any) -> list[bytes]:
    reader = client.create_reader(topic, MessageId.earliest, **options)
    found = [reader.read_next(WAIT_MS).data() for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


def taken_officially(official: Any, topic: str, count: int) -> list[bytes]:
    reader = official.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=OFFICIAL_READER)
    found = [reader.read_next(WAIT_MS).data() for _ in range(count)]
    reader.close()
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batching_enabled": True},
        {"compression_type": CompressionType.ZLib},
        {"compression_type": CompressionType.LZ4, "batching_enabled": True},
    ],
    ids=str,
)
def test_what_is_encrypted_here_is_decrypted_elsewhere(
    client: Client, official: Any, topic: str, options: dict[str, Any]
) -> None:
    producer = client.create_producer(topic, **SEALED, **options)
    contents = [b"secret" * 50, b"x", b"other"]
    for content in contents:
        producer.send_async(
            content, lambda *_: None, partition_key="k", ordering_key="o", properties={"a": "b"}
        )
    producer.flush()
    assert taken_officially(official, topic, 3) == contents
    assert taken(client, topic, 3, crypto_key_reader=READER) == contents
    raw = client.create_reader(topic, MessageId.earliest).read_next_entry(WAIT_MS)
    assert (raw.is_encrypted, b"secretsecret" in raw.data) == (True, False)


@pytest.mark.parametrize("batching", [False, True])
def test_what_is_encrypted_elsewhere_is_decrypted_here(
    client: Client, official: Any, topic: str, batching: bool
) -> None:
    producer = official.create_producer(
        topic,
        encryption_key="app.key",
        crypto_key_reader=OFFICIAL_READER,
        batching_enabled=batching,
        compression_type=pulsar.CompressionType.ZLib,
    )
    for number in range(3):
        producer.send_async(b"%d" % number, None, partition_key="k")
    producer.flush()
    reader = client.create_reader(topic, MessageId.earliest, crypto_key_reader=READER)
    found = [reader.read_next(WAIT_MS) for _ in range(3)]
    assert [(each.data(), each.partition_key(), each.encryption()) for each in found] == [
        (b"%d" % number, "k", None) for number in range(3)
    ]


@pytest.mark.parametrize("curve", [ec.SECP256R1, ec.SECP384R1, ec.SECP521R1])
def test_keys_on_elliptic_curves(
    client: Client, topic: str, tmp_path: Path, curve: Callable[[], ec.EllipticCurve]
) -> None:
    key = ec.generate_private_key(curve())
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    reader = CryptoKeyReader(f"file:{public}", str(private))
    producer = client.create_producer(topic, encryption_key="curve", crypto_key_reader=reader)
    producer.send(b"curved")
    assert taken(client, topic, 1, crypto_key_reader=reader) == [b"curved"]
    with pytest.raises(Timeout):
        client.create_reader(topic, MessageId.earliest, crypto_key_reader=READER).read_next(QUIET_MS)


def test_without_the_right_key(client: Client, admin: AdminClient, topic: str, tmp_path: Path) -> None:
    client.create_producer(topic, **SEALED).send(b"secret")
    earliest: dict[str, Any] = {"initial_position": InitialPosition.Earliest}
    other = CryptoKeyReader("", str(KEYS / "ec-private.pem"))
    for name, action, reader, delivered, left in (
        ("fail", CryptoFailureAction.FAIL, None, False, 1),
        ("other", CryptoFailureAction.FAIL, other, False, 1),
        ("discard", CryptoFailureAction.DISCARD, other, False, 0),
        ("consume", CryptoFailureAction.CONSUME, other, True, 1),
    ):
        consumer = client.subscribe(
            topic, name, crypto_failure_action=action, crypto_key_reader=reader, **earliest
        )
        try:
            message = consumer.receive(QUIET_MS)
        except Timeout:
            assert not delivered
        else:
            assert delivered
            assert message.encryption() is not None
        consumer.close()
        assert admin.topic_stats(topic)["subscriptions"][name]["msgBacklog"] == left
    (tmp_path / "empty").touch()
    for public, words in (
        (str(tmp_path / "none"), "there is no file"),
        (str(tmp_path / "empty"), "is empty"),
        ("data:;base64,AAAA", "cannot be used"),
        ("", "no public key is set"),
    ):
        with pytest.raises(CryptoError, match=words):
            client.create_producer(topic, encryption_key="app.key", crypto_key_reader=CryptoKeyReader(public))
    with pytest.raises(InvalidConfiguration, match="crypto_key_reader"):
        client.create_producer(topic, encryption_key="app.key")


def test_a_namespace_that_wants_encryption(server: Server, client: Client) -> None:
    lines = ("namespaces create public/sealed", "namespaces set-encryption-required -e public/sealed")
    for line in lines:
        assert pulsar_admin(["--admin-url", server.http_url, *line.split(" ")]) == 0
    topic = "public/sealed/t"
    client.create_producer(topic, **SEALED).send(b"secret")
    assert taken(client, topic, 1, crypto_key_reader=READER) == [b"secret"]
    with pytest.raises(PulsarException, match="ncrypt"):
        client.create_producer(topic).send(b"open")


@pytest.mark.parametrize(
    "options",
    [{}, SEALED, {**SEALED, "compression_type": CompressionType.ZLib}],
    ids=["plain", "sealed", "zlib"],
)
def test_chunks_sent_here(client: Client, official: Any, topic: str, options: dict[str, Any]) -> None:
    producer = client.create_producer(topic, chunking_enabled=True, **options)
    content = LARGE if "compression_type" not in options else _noise(len(LARGE))
    ids = [
        producer.send(each, partition_key="k", properties={"p": "x" * 5000})
        for each in (b"small", content, b"after")
    ]
    entries = [each.entry_id() for each in ids]
    assert entries == [0, entries[2] - 1, entries[2]]
    assert entries[1] > 2
    assert taken_officially(official, topic, 3) == [b"small", content, b"after"]
    assert taken(client, topic, 3, crypto_key_reader=READER) == [b"small", content, b"after"]


def _noise(size: int) -> bytes:
    state, found = 1, bytearray()
    while len(found) < size:
        state = state * 6364136223846793005 % 2**64 + 1
        found += state.to_bytes(8, "big")
    return bytes(found)


def test_chunks_sent_elsewhere(client: Client, official: Any, topic: str) -> None:
    producer = official.create_producer(
        topic, chunking_enabled=True, encryption_key="app.key", crypto_key_reader=OFFICIAL_READER
    )
    producer.send(LARGE, properties={"p": "q"}, partition_key="k")
    producer.send(b"small")
    reader = client.create_reader(topic, MessageId.earliest, crypto_key_reader=READER)
    found = reader.read_next(WAIT_MS)
    assert (found.data(), found.properties(), found.partition_key()) == (LARGE, {"p": "q"}, "k")
    assert reader.read_next(WAIT_MS).data() == b"small"


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
def test_a_message_in_chunks_is_acknowledged_and_delivered_again_as_a_whole(
    client: Client, admin: AdminClient, topic: str, kind: ConsumerType
) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=kind, negative_ack_redelivery_delay_ms=100, receiver_queue_size=2
    )
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(LARGE)
    message = consumer.receive(WAIT_MS)
    consumer.negative_acknowledge(message)
    again = consumer.receive(WAIT_MS)
    assert (again.data(), again.message_id()) == (LARGE, message.message_id())
    consumer.acknowledge(again)
    consumer.close()
    assert admin.topic_stats(topic)["subscriptions"]["s"]["msgBacklog"] == 0


async def _send_first_chunks(url: str, topic: str, uuids: str) -> None:
    """Of messages whose other chunks never come."""
    async with aio.Client(url) as client:
        producer = await client.create_producer(topic)
        assert isinstance(producer, aio.Producer)
        errors: list[object] = []
        for number, uuid in enumerate(uuids):
            metadata = MessageMetadata(uuid=uuid, chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=9)
            entry = PreparedEntry(number, number, 1, metadata.SerializePartialToString(), b"12345")
            producer.enqueue_prepared(entry, lambda _id, error: errors.append(error))
        await producer.send(b"whole")
    assert errors == [None] * len(uuids)


@pytest.mark.parametrize(("acknowledges", "left"), [(False, 4), (True, 2)])
def test_messages_of_which_chunks_are_missing(
    server: Server, client: Client, admin: AdminClient, topic: str, acknowledges: bool, left: int
) -> None:
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=ConsumerType.Shared,
        max_pending_chunked_message=2,
        auto_ack_oldest_chunked_message_on_queue_full=acknowledges,
    )
    asyncio.run(_send_first_chunks(server.url, topic, "abcd"))
    message = consumer.receive(WAIT_MS)
    assert message.data() == b"whole"
    consumer.acknowledge(message)
    consumer.close()
    assert admin.topic_stats(topic)["subscriptions"]["s"]["msgBacklog"] == left


def test_chunks_of_messages_that_never_get_whole_leave_the_backlog(
    server: Server, client: Client, admin: AdminClient, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", expire_time_of_incomplete_chunked_message_ms=200)
    asyncio.run(_send_first_chunks(server.url, topic, "abc"))
    consumer.acknowledge(consumer.receive(WAIT_MS))
    # Nobody takes anything any more, and nothing more comes.
    deadline = time.monotonic() + WAIT_MS / 1000
    while (left := admin.topic_stats(topic)["subscriptions"]["s"]["msgBacklog"]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert left == 0


def test_options_that_do_not_go_together(client: Client, topic: str) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be used together"):
        client.create_producer(topic, chunking_enabled=True, batching_enabled=True)
    with pytest.raises(InvalidConfiguration, match="max_pending_chunked_message"):
        client.subscribe(topic, "s", max_pending_chunked_message=0)
    with pytest.raises(InvalidConfiguration, match="expire_time_of_incomplete_chunked_message_ms"):
        client.subscribe(topic, "s", expire_time_of_incomplete_chunked_message_ms=-1)
