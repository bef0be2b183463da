"""Topics that are compacted in a simulated broker: what is published, and what is read compacted."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from lived import Lived

from magnetar.broker.compaction.compactor import CompactionSettings
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.topics.persistent import Topic
from magnetar.managed_ledger.position import EARLIEST
from magnetar.protocol.compression import compress
from magnetar.protocol.metadata import build_batch, build_entry, parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

Message = tuple[str | None, bytes]


def single(key: str | None, value: bytes) -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1_700_000_000_000, uncompressed_size=len(value)
    )
    if key is not None:
        metadata.partition_key = key
    if not value:
        metadata.null_value = True
    return build_entry(metadata, value)


def batch(messages: list[Message], codec: int = CompressionType.NONE) -> bytes:
    made = []
    for key, value in messages:
        each = SingleMessageMetadata(payload_size=len(value))
        if key is not None:
            each.partition_key = key
        made.append((each, value))
    payload = build_batch(made)
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1_700_000_000_000,
        num_messages_in_batch=len(messages),
        uncompressed_size=len(payload),
        compression=codec,
    )
    return build_entry(metadata, payload if codec == CompressionType.NONE else compress(codec, payload))


def messages_of(data: bytes) -> list[Message]:
    entry = parse_entry(data)
    if entry.batch_size is None:
        key = entry.metadata.partition_key if entry.metadata.HasField("partition_key") else None
        return [(key, entry.payload)]
    found: list[Message] = []
    for each in split_batch(entry.uncompressed_payload(), entry.batch_size):
        if not each.metadata.compacted_out:
            key = each.metadata.partition_key if each.metadata.HasField("partition_key") else None
            found.append((key, each.payload))
    return found


def append(lived: Lived, topic: Topic, entries: list[bytes]) -> None:
    for entry in entries:
        topic.managed_ledger.append(entry, array("q", [0]), array("q", [len(entry)]), 1, len(entry), None)
    lived.world.wait(0.1)


def compact(lived: Lived, topic: Topic) -> None:
    topic.compaction.start()
    for _ in range(1000):
        if not topic.compaction.running:
            break
        lived.world.wait(0.05)
    assert (topic.compaction.status.value, topic.compaction.last_error) == ("SUCCESS", "")
    lived.world.wait(0.5)


@dataclass
class Reader:
    """What a consumer that reads compacted gets, without the consumer."""

    lived: Lived
    topic: Topic
    source: Any = field(init=False)

    def __post_init__(self) -> None:
        name = f"r{id(self)}"
        made = self.lived.world.run(
            self.topic.subscriptions.subscribe(name, EARLIEST, {}, durable=False, create=True)
        )
        self.source = made.read_compacted()

    def read(self, at_most: int = 1 << 30) -> list[bytes]:
        found: list[bytes] = []
        while self.source.has_more() and len(found) < at_most:
            run = self.source.read_cached(3, 1 << 20) or self.lived.world.run(self.source.read(3, 1 << 20))
            if run is None:
                continue
            for first, end in self.source.unconsumed_parts(run):
                found += [run.entry(index) for index in range(first, end)]
        return found

    def messages(self) -> list[Message]:
        return [message for entry in self.read() for message in messages_of(entry)]


def newest(messages: list[Message]) -> dict[str, bytes]:
    kept: dict[str, bytes] = {}
    for key, value in messages:
        if key is None:
            continue
        kept.pop(key, None)
        if value:
            kept[key] = value
    return kept


def lived(**options: Any) -> Lived:
    return Lived(EffectivePolicies(), compaction=CompactionSettings(**options))
