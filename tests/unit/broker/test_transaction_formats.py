"""Markers, snapshots and pending acknowledgements have Apache Pulsar's bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.system_topics.transaction_snapshots import (
    apply_record,
    decode_snapshot,
    encode_snapshot,
    record_entry,
)
from magnetar.broker.transactions import pending_acks
from magnetar.broker.transactions.buffer import Snapshot, marker_entry, with_ids
from magnetar.broker.transactions.records_pb2 import PendingAckMetadataEntry, PendingAckType
from magnetar.errors import NotAllowed
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

VECTORS = Path(__file__).parents[2] / "vectors" / "transactions" / "entries.jsonl"


def recorded(part: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Iterates over entries of the managed ledgers whose names contain a text."""
    for line in VECTORS.read_text("utf-8").splitlines():
        row = json.loads(line)
        if part in row["managed_ledger"]:
            yield row, bytes.fromhex(row["hex"])


def test_markers() -> None:
    found = 0
    for row, entry in recorded("public/default/persistent/"):
        metadata = row.get("metadata", {})
        if "marker_type" not in metadata:
            continue
        found += 1
        txn = int(metadata["txnid_most_bits"]), int(metadata["txnid_least_bits"])
        made = marker_entry(txn, int(metadata["publish_time"]), commit=metadata["marker_type"] == 21)
        assert made == entry
    assert found > 5


def test_snapshots() -> None:
    rows = list(recorded("__transaction_buffer_snapshot"))
    assert rows
    known: dict[str, Snapshot] = {}
    for row, entry in rows:
        parsed = parse_entry(entry)
        metadata = parsed.metadata
        snapshot = decode_snapshot(bytes(parsed.payload))
        topic = metadata.partition_key
        assert encode_snapshot(topic, snapshot) == bytes(parsed.payload)
        assert snapshot.max_read == (
            row["value"]["maxReadPositionLedgerId"],
            row["value"]["maxReadPositionEntryId"],
        )
        made = record_entry(
            topic,
            bytes(parsed.payload),
            metadata.producer_name,
            metadata.sequence_id,
            metadata.publish_time,
            metadata.schema_version,
        )
        assert made == entry
        apply_record(known, "snapshots", entry, 1 << 20)
        assert known[topic] == snapshot
    gone = record_entry(topic, None, "p", 1, 1, b"")
    apply_record(known, "snapshots", gone, 1 << 20)
    assert topic not in known
    apply_record(
        known,
        "snapshots",
        build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"?"),
        9,
    )
    assert topic not in known


def test_pending_acknowledgements() -> None:
    rows = list(recorded("__transaction_pending_ack"))
    assert rows
    for _row, entry in rows:
        record = PendingAckMetadataEntry.FromString(entry)
        cumulative = record.ack_type == PendingAckType.Cumulative
        again = PendingAckMetadataEntry(
            pending_ack_op=record.pending_ack_op,
            ack_type=record.ack_type,
            txnid_most_bits=record.txnid_most_bits,
            txnid_least_bits=record.txnid_least_bits,
            pending_ack_metadata=[
                pending_acks._metadata(pending_acks._acked(each), cumulative=cumulative)
                for each in record.pending_ack_metadata
            ],
        )
        assert again.SerializeToString() == entry


def test_the_log_of_a_subscription_has_the_name_that_apache_gives_it() -> None:
    name = TopicName.parse("persistent://public/default/java")
    assert (
        pending_acks.pending_acks_of(name, "s") == "public/default/persistent/java-s__transaction_pending_ack"
    )
    found = TopicName.parse("persistent://public/default/java-s__transaction_pending_ack")
    assert found.reserved


def test_missing_ids_are_added_behind_the_other_metadata() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=3, publish_time=5, partition_key="k")
    entry = build_entry(metadata, b"payload")
    metadata.txnid_most_bits, metadata.txnid_least_bits = 7, 300
    changed = with_ids((7, 300), b"--" + entry, [2], [2 + len(entry)])
    assert changed is not None
    buffer, starts, ends = changed
    assert buffer[starts[0] : ends[0]] == build_entry(metadata, b"payload")
    assert with_ids((7, 300), buffer, starts, ends) is None
    with pytest.raises(NotAllowed, match=r"name transaction \(7,300\), and SEND names \(7,301\)"):
        with_ids((7, 301), buffer, starts, ends)
    # Without a checksum there is none afterwards.
    changed = with_ids((7, 300), entry[6:], [0], [len(entry) - 6])
    assert changed is not None
    assert parse_entry(changed[0]).metadata == metadata
