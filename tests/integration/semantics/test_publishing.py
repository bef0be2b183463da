"""What policies say of publishing, on live topics and through the official Python client."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

NAMESPACE = "public/publishing"
TOPICS = f"/admin/v2/persistent/{NAMESPACE}"
KEYS = Path(__file__).parent / "keys"
NOT_STORED = (-1, -1)


@pytest.fixture(scope="module")
def server(start_server: Any) -> Server:
    running: Server = start_server()
    assert running.ask("PUT", f"/admin/v2/namespaces/{NAMESPACE}")[0] == 204
    return running


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = pulsar.Client(
        server.url, operation_timeout_seconds=10, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    yield made
    made.close()


def set_policy(server: Server, path: str, value: Any) -> None:
    status, body = server.ask("POST", path, json.dumps(value))
    assert status == 204, (path, status, body)


def stats(server: Server, topic: str) -> dict[str, Any]:
    status, body = server.ask("GET", f"{TOPICS}/{topic}/stats")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def name_of(topic: str) -> str:
    return f"persistent://{NAMESPACE}/{topic}"


def send(producer: Any, sequence_id: int) -> tuple[int, int]:
    found = producer.send(b"m%d" % sequence_id, sequence_id=sequence_id)
    return found.ledger_id(), found.entry_id()


def test_deduplication_can_be_switched_on_and_off_while_somebody_publishes(
    server: Server, client: Any
) -> None:
    consumer = client.subscribe(name_of("switched"), "s")
    producer = client.create_producer(name_of("switched"), producer_name="p", batching_enabled=False)
    assert [send(producer, number) == NOT_STORED for number in (5, 5)] == [False, False]
    set_policy(server, f"{TOPICS}/switched/deduplicationEnabled", True)
    assert stats(server, "switched")["deduplicationStatus"] == "Enabled"
    assert [send(producer, number) == NOT_STORED for number in (6, 6, 5)] == [False, True, True]
    set_policy(server, f"{TOPICS}/switched/deduplicationEnabled", False)
    assert stats(server, "switched")["deduplicationStatus"] == "Disabled"
    assert send(producer, 6) != NOT_STORED
    assert [consumer.receive(10_000).data() for _ in range(4)] == [b"m5", b"m5", b"m6", b"m6"]


def test_deduplication_of_the_namespace_counts_for_topics_made_later(server: Server, client: Any) -> None:
    path = f"/admin/v2/namespaces/{NAMESPACE}/deduplication"
    set_policy(server, path, True)
    try:
        producer = client.create_producer(name_of("inherits"), producer_name="p", batching_enabled=False)
        assert [send(producer, number) == NOT_STORED for number in (1, 1, 2)] == [False, True, False]
    finally:
        assert server.ask("DELETE", path)[0] == 204


def test_where_encryption_is_required_others_are_refused(server: Server, client: Any) -> None:
    path = f"/admin/v2/namespaces/{NAMESPACE}/encryptionRequired"
    set_policy(server, path, True)
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(name_of("secret"))
        keys = pulsar.CryptoKeyReader(str(KEYS / "public.pem"), str(KEYS / "private.pem"))
        consumer = client.subscribe(name_of("secret"), "s", crypto_key_reader=keys)
        producer = client.create_producer(
            name_of("secret"), encryption_key="test", crypto_key_reader=keys, batching_enabled=False
        )
        producer.send(b"not for the broker")
        assert consumer.receive(10_000).data() == b"not for the broker"
    finally:
        set_policy(server, path, False)


def test_encrypted_messages_pass_through_untouched(client: Any) -> None:
    keys = pulsar.CryptoKeyReader(str(KEYS / "public.pem"), str(KEYS / "private.pem"))
    sealed = client.subscribe(
        name_of("sealed"), "blind", crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    opened = client.subscribe(name_of("sealed"), "sees", crypto_key_reader=keys)
    producer = client.create_producer(
        name_of("sealed"),
        encryption_key="test",
        crypto_key_reader=keys,
        batching_enabled=True,
        compression_type=pulsar.CompressionType.LZ4,
    )
    for number in range(20):
        producer.send_async(b"m%d" % number, None)
    producer.flush()
    assert [opened.receive(10_000).data() for _ in range(20)] == [b"m%d" % number for number in range(20)]
    assert b"m0" not in sealed.receive(10_000).data()


def test_a_message_above_the_topics_size_is_refused_and_others_are_not(server: Server, client: Any) -> None:
    producer = client.create_producer(name_of("small"), batching_enabled=False)
    producer.send(bytes(2_000))
    set_policy(server, f"{TOPICS}/small/maxMessageSize", 1_000)
    # The library closes its connection at each refusal and sends again, now and then for ever: with receipts
    # of others still to be read, who would send again too.
    told: list[Any] = []
    stubborn = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        large = stubborn.create_producer(name_of("small"), batching_enabled=False, send_timeout_millis=1_000)
        large.send_async(bytes(2_000), lambda result, _id: told.append(result))
        deadline = time.monotonic() + 5
        while not told and time.monotonic() < deadline:
            time.sleep(0.05)
        assert pulsar.Result.Ok not in told
    finally:
        stubborn.close()
    client.create_producer(name_of("small"), batching_enabled=False).send(bytes(500))
    assert stats(server, "small")["msgInCounter"] == 2


def test_who_publishes_beyond_the_rate_is_slowed_down_and_loses_nothing(server: Server, client: Any) -> None:
    consumer = client.subscribe(name_of("slow"), "s")
    producer = client.create_producer(name_of("slow"), batching_enabled=False)
    set_policy(
        server,
        f"{TOPICS}/slow/publishRate",
        {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": -1},
    )
    for number in range(100):
        producer.send_async(b"m%d" % number, None)
    producer.flush()
    assert [consumer.receive(10_000).data() for _ in range(100)] == [b"m%d" % number for number in range(100)]
    assert stats(server, "slow")["publishRateLimitedTimes"] > 0
