"""Key ranges of an Exclusive consumer, which readers of the Java client may give."""

from __future__ import annotations

import json
import time

import pytest
from raw_client import Client
from server import Server

from magnetar.naming.hashes import murmur3_positive
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    STICKY,
    BaseCommand,
    CommandSubscribe,
    KeySharedMeta,
    MessageMetadata,
)

KEYS = ["a", "b", "c", "d", "e", "f"]
LIMIT = 40_000


def published(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    for number, key in enumerate(KEYS):
        metadata = MessageMetadata(
            producer_name="raw",
            sequence_id=number,
            publish_time=int(time.time() * 1000),
            partition_key=key,
        )
        client.publish(producer, number, build_entry(metadata, key.encode()))
        client.take(BaseCommand.SEND_RECEIPT, producer_id=producer)


def ranges() -> KeySharedMeta:
    asked = KeySharedMeta(keySharedMode=STICKY)
    asked.hashRanges.add(start=0, end=LIMIT)
    return asked


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("permits", [1, 100])
def test_others_are_left_out_and_stay(server: Server, topic: str, durable: bool, permits: int) -> None:
    client = Client(server.port)
    client.close_consumer(client.subscribe(topic, "keep"))
    published(client, topic)
    wanted = [key.encode() for key in KEYS if murmur3_positive(key.encode()) % 65536 <= LIMIT]
    assert 0 < len(wanted) < len(KEYS)
    consumer = client.subscribe(topic, "s", permits=permits, durable=durable, keySharedMeta=ranges())
    found = []
    for _ in wanted:
        found.append(client.message(consumer))
        client.flow(consumer, 1)
    assert [payload for _message, payload in found] == wanted
    assert not client.count_kept(BaseCommand.MESSAGE)
    client.acknowledge(consumer, [message.message_id for message, _payload in found])
    path = topic.replace("://", "/")
    stats = json.loads(server.ask("GET", f"/admin/v2/{path}/stats")[1])
    assert stats["subscriptions"]["s"]["msgBacklog"] == len(KEYS) - len(wanted)
    client.close()


@pytest.mark.parametrize("kind", [CommandSubscribe.Shared, CommandSubscribe.Failover])
def test_other_types_do_not_look_at_them(
    server: Server, topic: str, kind: CommandSubscribe.SubType.ValueType
) -> None:
    client = Client(server.port)
    published(client, topic)
    consumer = client.subscribe(topic, "s", kind, 100, keySharedMeta=ranges())
    assert [payload.decode() for _m, payload in client.messages(consumer, len(KEYS))] == KEYS
    client.close()
