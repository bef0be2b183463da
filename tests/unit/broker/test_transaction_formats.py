"""Markers, snapshots and pending acknowledgements have Apache Pulsar's bytes."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.system_topics import transaction_records as records
from magnetar.broker.transactions import pending_acks
from magnetar.broker.transactions.buffer import marker_entry, with_ids
from magnetar.broker.transactions.records_pb2 import PendingAckMetadataEntry, PendingAckType
from magnetar.errors import NotAllowed
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

_FOLDER = Path(__file__).parents[2] / "vectors" / "transactions"
VECTORS, BATCHED = _FOLDER / "entries.jsonl", _FOLDER / "batched_entries.jsonl"
BATCHED_ANSWERS = _FOLDER / "batched.jsonl"


def recorded(part: str, file: Path = VECTORS) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Iterates over entries of the managed ledgers whose names contain a text."""
    for line in file.read_text("utf-8").splitlines():
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


@pytest.mark.parametrize(
    ("kind", "decode", "encode"),
    [
        (records.SNAPSHOTS, records.decode_snapshot, records.encode_snapshot),
        (records.SEGMENTS, records.decode_segment, records.encode_segment),
        (records.INDEXES, records.decode_index, records.encode_index),
    ],
)
def test_snapshots(kind: str, decode: Callable[[bytes], Any], encode: Callable[[str, Any], bytes]) -> None:
    rows = [*recorded(f"/{kind}"), *recorded(f"/{kind}", BATCHED)]
    rows = [row for row in rows if row[0]["managed_ledger"].endswith(kind)]
    assert rows
    for row, entry in rows:
        metadata = parse_entry(entry).metadata
        [(key, payload)] = records.records_of(entry, 1 << 20)
        assert payload is not None
        assert encode(row["value"]["topicName"], decode(payload)) == payload
        made = records.record_entry(
            key,
            payload,
            metadata.producer_name,
            metadata.sequence_id,
            metadata.publish_time,
            metadata.schema_version,
        )
        assert made == entry
    assert records.records_of(records.record_entry("k", None, "p", 1, 1, b""), 9) == [("k", None)]
    with pytest.raises(EntryError, match="not a record of"):
        decode(b"?")


def test_schemas_of_segments() -> None:
    """That of snapshots in one record was not recorded."""
    found = 0
    for line in BATCHED_ANSWERS.read_text("utf-8").splitlines():
        row = json.loads(line)
        if "/schemas/" in row.get("request", ""):
            found += 1
            assert records.definition(row["request"].split("/")[-2]) == row["answer"]["data"]
    assert found == 2


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
    changed = with_ids((7, 300), b"--" + entry, array("q", [2]), array("q", [2 + len(entry)]))
    assert changed is not None
    buffer, starts, ends = changed
    assert buffer[starts[0] : ends[0]] == build_entry(metadata, b"payload")
    assert with_ids((7, 300), buffer, starts, ends) is None
    with pytest.raises(NotAllowed, match=r"has transaction \(7,300\), but SEND has transaction \(7,301\)"):
        with_ids((7, 301), buffer, starts, ends)
    # Without a checksum there is none afterwards.
    changed = with_ids((7, 300), entry[6:], array("q", [0]), array("q", [len(entry) - 6]))
    assert changed is not None
    assert parse_entry(changed[0]).metadata == metadata
