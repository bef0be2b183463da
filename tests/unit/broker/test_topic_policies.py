"""Policies of single topics in ``__change_events``: written, read again, followed, and what is junk there."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from test_service import NAME, Brokers

from magnetar.broker.admin.all import Admin
from magnetar.broker.system_topics.change_events import PolicyChange, decode, encode, key_of
from magnetar.errors import (
    BrokerError,
    InvalidRequest,
    PreconditionFailed,
    TopicNotFound,
)
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

TOPIC = str(NAME)
EVENTS = "persistent://public/default/__change_events"

RECORDED = bytes.fromhex(
    "020402000202147374616e64616c6f6e650002021470657273697374656e74020261020002000000000000000000000002"
    "00000000020a"
)
"""How Apache Pulsar 4.0.8 begins a record that sets maxProducerPerTopic to 5 for restw/a/t1."""


class Operated(Brokers):
    """A broker and its operator."""

    def __init__(self) -> None:
        super().__init__()
        self.admin = Admin(self.broker)

    def set(self, field: str, value: Any, topic: str = TOPIC, *, everywhere: bool = False) -> None:
        work = self.admin.topic_policies.set_policy(topic, {field: value}, everywhere=everywhere, field=field)
        self.world.run(work)

    def own(self, topic: str = TOPIC, *, everywhere: bool = False) -> Any:
        return self.world.run(self.admin.topic_policies.policies(topic, everywhere=everywhere))


def _encode(policies: dict[str, Any] | None, topic: str, *, everywhere: bool = False) -> bytes:
    return encode(
        TopicName.parse(topic),
        policies,
        everywhere=everywhere,
        cluster="standalone",
        producer="standalone-0-13",
        sequence_id=0,
        publish_time_ms=1795278426269,
        schema_version=bytes(8),
    )


def test_records_are_as_apache_pulsar_writes_them() -> None:
    empty = {"backLogQuotaMap": {}, "subscriptionTypesEnabled": [], "subscriptionPolicies": {}}
    entry = parse_entry(_encode({**empty, "maxProducerPerTopic": 5}, "persistent://restw/a/t1"))
    assert entry.payload.startswith(RECORDED)
    assert len(entry.payload) == 85
    metadata = entry.metadata
    assert metadata.partition_key == "persistent://restw/a/t1"
    assert (list(metadata.replicate_to), metadata.schema_version) == (["standalone"], bytes(8))
    removed = parse_entry(_encode(None, "persistent://restw/a/t1")).metadata
    assert (removed.null_value, removed.uncompressed_size) == (True, 0)
    everywhere = parse_entry(_encode(empty, "persistent://restw/a/t1", everywhere=True)).metadata
    assert everywhere.partition_key == "__G__persistent://restw/a/t1"
    assert not everywhere.replicate_to


def test_records_of_apache_pulsar_are_read() -> None:
    """Entries as Apache Pulsar 4.0.8 stored them: for all clusters, with many policies, a removal."""
    recorded = json.loads((Path(__file__).parent / "change_events_of_pulsar.json").read_text())
    for row in recorded:
        entry = bytes.fromhex(row["entry"])
        assert [[change.key, change.policies] for change in decode(entry)] == row["changes"]
    everywhere, many, removed = (row["changes"][0] for row in recorded)
    assert everywhere[0] == "__G__persistent://restw/a/t1"
    assert everywhere[1]["maxConsumerPerTopic"] == 7
    assert many[1]["retentionPolicies"] == {"retentionSizeInMB": -1, "retentionTimeInMinutes": -1}
    assert many[1]["subscriptionPolicies"]["s1"]["dispatchRate"]["dispatchThrottlingRateInMsg"] == 11
    assert removed == ["persistent://restw/a/t2", None]


def test_an_entry_that_uncompresses_to_more_than_policies_take_is_refused() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.compression = CompressionType.ZLIB
    metadata.uncompressed_size = 16 << 20
    bomb = build_entry(metadata, zlib.compress(bytes(16 << 20)))
    with pytest.raises(ProtocolError, match="at most 1048576"):
        list(decode(bomb))


def test_what_is_written_is_read_again() -> None:
    policies = {
        "maxProducerPerTopic": 5,
        "retentionPolicies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": 3},
        "subscriptionTypesEnabled": ["Failover", "Shared"],
        "schemaCompatibilityStrategy": "BACKWARD",
        "backLogQuotaMap": {
            "message_age": {"limit": -1, "limitSize": -1, "limitTime": 9, "policy": "producer_exception"}
        },
    }
    key = key_of(NAME, everywhere=False)
    assert list(decode(_encode(policies, TOPIC))) == [PolicyChange(key, {**policies, "isGlobal": False})]
    assert list(decode(_encode(None, TOPIC))) == [PolicyChange(key, None)]


def test_junk_is_refused_and_nothing_else_happens() -> None:
    good = bytearray(parse_entry(_encode({"maxProducerPerTopic": 5}, TOPIC)).payload)
    numbers = random.Random(6)
    metadata = parse_entry(_encode({}, TOPIC)).metadata
    from magnetar.protocol.metadata import build_entry

    refused = 0
    for _ in range(2_000):
        payload = bytearray(good)
        for _ in range(numbers.randrange(1, 4)):
            payload[numbers.randrange(len(payload))] = numbers.randrange(256)
        try:
            list(decode(build_entry(metadata, bytes(payload[: numbers.randrange(len(payload) + 1)]))))
        except ProtocolError:
            refused += 1
    assert refused > 1_000


def test_their_schema_is_registered_with_the_first() -> None:
    operated = Operated()
    operated.topic()
    operated.set("maxProducerPerTopic", 3)
    operated.set("maxProducerPerTopic", 4)
    stored = operated.world.run(operated.broker.schemas.versions("public/default/__change_events"))
    assert [(version.version, version.data.type.name) for version in stored] == [(0, "AVRO")]
    assert json.loads(stored[0].data.definition)["name"] == "PulsarEvent"


def test_a_topics_own_policies_win_and_live_topics_follow() -> None:
    operated = Operated()
    topic = operated.topic()
    operated.set("maxProducerPerTopic", 3)
    assert topic.policies.max_producers == 3
    operated.set("maxConsumerPerTopic", 4, everywhere=True)
    assert (topic.policies.max_producers, topic.policies.max_consumers) == (3, 4)
    operated.set("maxConsumerPerTopic", 1)
    assert topic.policies.max_consumers == 1
    assert operated.own()["maxProducerPerTopic"] == 3
    assert operated.own(everywhere=True)["maxConsumerPerTopic"] == 4
    operated.set("maxConsumerPerTopic", None)
    assert topic.policies.max_consumers == 4


def test_they_are_there_after_a_restart() -> None:
    operated = Operated()
    operated.topic()
    operated.set("maxProducerPerTopic", 3)
    operated.world.run(operated.broker.stop())
    from magnetar.broker.service import BrokerService
    from magnetar.io.wheel import TimerWheel

    io = operated.world.simulation.io
    settings = operated.broker.settings
    again = BrokerService(io, TimerWheel(io.loop), operated.world.metadata, operated.world.managed, settings)
    topic = operated.world.run(again.topics.load(NAME, create=False))
    assert topic.policies.max_producers == 3


def test_what_somebody_else_writes_counts_too() -> None:
    operated = Operated()
    topic = operated.topic()
    operated.set("maxProducerPerTopic", 3)
    events = operated.world.run(operated.broker.topics.load(TopicName.parse(EVENTS), create=False))
    entry = _encode({"maxProducerPerTopic": 8}, TOPIC)
    junk = b"no entry at all"
    for data in (junk, entry):
        from array import array

        events.managed_ledger.append(data, array("q", (0,)), array("q", (len(data),)), 1, len(data), None)
    operated.world.wait(1)
    assert topic.policies.max_producers == 8
    operated.set("maxConsumerPerTopic", 1)
    assert (topic.policies.max_producers, topic.policies.max_consumers) == (8, 1)


def test_a_partitions_policies_are_its_topics() -> None:
    operated = Operated()
    parts = "persistent://public/default/parts"
    operated.world.run(operated.admin.partitions.create(parts, 2, {}))
    partition = operated.topic(TopicName.parse(f"{parts}-partition-1"), create=False)
    operated.set("maxProducerPerTopic", 3, parts)
    assert partition.policies.max_producers == 3
    with pytest.raises(PreconditionFailed):
        operated.own(f"{parts}-partition-1")


def test_with_a_topic_its_policies_go() -> None:
    operated = Operated()
    operated.topic()
    operated.set("maxProducerPerTopic", 3)
    operated.set("maxProducerPerTopic", 4, everywhere=True)
    operated.world.run(operated.admin.topics.delete(TOPIC, force=False))
    assert operated.topic().policies.max_producers == 0
    assert (operated.own(), operated.own(everywhere=True)) == ({}, {})


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("retentionPolicies", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}, InvalidRequest),
        ("retentionPolicies", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}, InvalidRequest),
        ("maxMessageSize", -1, PreconditionFailed),
        ("maxMessageSize", 1 << 30, PreconditionFailed),
        ("replicationClusters", ["elsewhere"], PreconditionFailed),
        (
            "persistence",
            {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2},
            PreconditionFailed,
        ),
    ],
)
def test_what_cannot_be_is_refused_and_not_stored(field: str, value: Any, error: type[BrokerError]) -> None:
    operated = Operated()
    operated.topic()
    with pytest.raises(error):
        operated.set(field, value)
    assert operated.own() == {}


def test_no_topic_no_policies() -> None:
    with pytest.raises(TopicNotFound):
        Operated().own()


def test_a_namespace_without_policies_gets_no_topic_for_them() -> None:
    operated = Operated()
    operated.topic()
    names = operated.world.run(operated.broker.topic_names("public/default", system=True))
    assert names == [TOPIC]
