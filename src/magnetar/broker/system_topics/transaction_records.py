"""The records of system topics with the state of transactions: Avro, with the schemas that Pulsar registers
(PIP-160; segments: PIP-196)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from io import BytesIO
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from magnetar.broker.transactions import TxnId
from magnetar.broker.transactions.buffer import BufferSnapshot
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.position import Position
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import build_entry, parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

if TYPE_CHECKING:
    from fastavro.types import Schema

SCHEMA_PROPERTIES = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
_SPACE = "org.apache.pulsar.broker.transaction.buffer.metadata"


def _record(name: str, *fields: dict[str, object], space: str = "") -> dict[str, object]:
    found: dict[str, object] = {"type": "record", "name": name}
    if space:
        found["namespace"] = space
    return {**found, "fields": list(fields)}


def _longs(*names: str) -> list[dict[str, object]]:
    return [{"name": name, "type": "long"} for name in names]


def _optional(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


def _list_of(record: dict[str, object]) -> dict[str, object]:
    return {"type": "array", "items": record, "java-class": "java.util.List"}


_IDS = _list_of(_record("TxnIDData", *_longs("leastSigBits", "mostSigBits")))
_TOPIC = _optional("topicName", "string")
DEFINITIONS = {
    "__transaction_buffer_snapshot": _record(
        "TransactionBufferSnapshot",
        _optional(
            "aborts",
            _list_of(
                _record("AbortTxnMetadata", *_longs("entryId", "ledgerId", "txnIdLeastBits", "txnIdMostBits"))
            ),
        ),
        *_longs("maxReadPositionEntryId", "maxReadPositionLedgerId"),
        _TOPIC,
        space=_SPACE,
    ),
    "__transaction_buffer_snapshot_segments": _record(
        "TransactionBufferSnapshotSegment",
        _optional("aborts", _IDS),
        *_longs("persistentPositionEntryId", "persistentPositionLedgerId", "sequenceId"),
        _TOPIC,
        space=f"{_SPACE}.v2",
    ),
    "__transaction_buffer_snapshot_indexes": _record(
        "TransactionBufferSnapshotIndexes",
        _optional(
            "indexList",
            _list_of(
                _record(
                    "TransactionBufferSnapshotIndex",
                    *_longs(
                        "abortedMarkEntryID",
                        "abortedMarkLedgerID",
                        "segmentEntryID",
                        "segmentLedgerID",
                        "sequenceID",
                    ),
                )
            ),
        ),
        _optional(
            "snapshot",
            _record(
                "TransactionBufferSnapshotIndexesMetadata",
                _optional("aborts", _IDS),
                *_longs("maxReadPositionEntryId", "maxReadPositionLedgerId"),
            ),
        ),
        _TOPIC,
        space=f"{_SPACE}.v2",
    ),
}
"""The schema of each system topic, by its local name."""
SNAPSHOTS, SEGMENTS, INDEXES = DEFINITIONS


def definition(kind: str) -> str:
    """Returns the definition of the schema that Pulsar registers for a system topic, of type AVRO."""
    return json.dumps(DEFINITIONS[kind], separators=(",", ":"))


@cache
def _schema(kind: str) -> Schema:
    # Only the first transaction of a broker needs the import.
    import fastavro

    return fastavro.parse_schema(json.loads(definition(kind)))


def _written(kind: str, value: dict[str, object]) -> bytes:
    import fastavro

    out = BytesIO()
    fastavro.schemaless_writer(out, _schema(kind), value)
    return out.getvalue()


def _read(kind: str, payload: bytes) -> Any:
    import fastavro

    try:
        return fastavro.schemaless_reader(BytesIO(payload), _schema(kind), None)
    except (ValueError, LookupError, EOFError, TypeError, OverflowError, MemoryError, StructError) as error:
        raise EntryError(f"not a record of {kind}: {error}") from error


@dataclass(frozen=True, slots=True)
class SnapshotSegment:
    """A segment of a topic's aborted transactions, which does not change any more."""

    number: int
    ids: tuple[TxnId, ...]
    last_marker: Position
    """The position, in the topic, of the marker that ended the segment's last transaction."""
    stored_at: Position = (-1, -1)
    """The position of the segment's record in the system topic."""


@dataclass(frozen=True, slots=True)
class SnapshotIndex:
    """The snapshot of a topic that has segments: the valid segments, and the aborted transactions that are in
    no segment.
    """

    segments: tuple[SnapshotSegment, ...]
    """The segments, without their transaction ids."""
    max_read: Position
    ids: tuple[TxnId, ...]
    """The ids of aborted transactions that are in no segment yet."""


def encode_snapshot(topic: str, snapshot: BufferSnapshot) -> bytes:
    """Returns the payload of a record of :data:`SNAPSHOTS`."""
    aborts = [
        {"entryId": at[1], "ledgerId": at[0], "txnIdLeastBits": txn[1], "txnIdMostBits": txn[0]}
        for txn, at in snapshot.aborted.items()
    ]
    ledger_id, entry_id = snapshot.max_read
    return _written(
        SNAPSHOTS,
        {
            "aborts": aborts,
            "maxReadPositionEntryId": entry_id,
            "maxReadPositionLedgerId": ledger_id,
            "topicName": topic,
        },
    )


def decode_snapshot(payload: bytes) -> BufferSnapshot:
    """Returns the snapshot in a record.

    :raises EntryError: the payload is not a record of :data:`SNAPSHOTS`
    """
    found = _read(SNAPSHOTS, payload)
    return BufferSnapshot(
        (found["maxReadPositionLedgerId"], found["maxReadPositionEntryId"]),
        {
            (each["txnIdMostBits"], each["txnIdLeastBits"]): (each["ledgerId"], each["entryId"])
            for each in found["aborts"] or ()
        },
    )


def _ids_of(aborts: Iterable[Mapping[str, int]] | None) -> tuple[TxnId, ...]:
    return tuple((each["mostSigBits"], each["leastSigBits"]) for each in aborts or ())


def _aborts_of(ids: tuple[TxnId, ...]) -> list[dict[str, int]]:
    return [{"leastSigBits": least, "mostSigBits": most} for most, least in ids]


def segment_key(topic: str, number: int) -> str:
    return f"multiple-{number}-{topic}"


def encode_segment(topic: str, segment: SnapshotSegment) -> bytes:
    """Returns the payload of a record of :data:`SEGMENTS`."""
    ledger_id, entry_id = segment.last_marker
    return _written(
        SEGMENTS,
        {
            "aborts": _aborts_of(segment.ids),
            "persistentPositionEntryId": entry_id,
            "persistentPositionLedgerId": ledger_id,
            "sequenceId": segment.number,
            "topicName": topic,
        },
    )


def decode_segment(payload: bytes) -> SnapshotSegment:
    """Returns the segment in a record.

    :raises EntryError: the payload is not a record of :data:`SEGMENTS`
    """
    found = _read(SEGMENTS, payload)
    marker = (found["persistentPositionLedgerId"], found["persistentPositionEntryId"])
    return SnapshotSegment(found["sequenceId"], _ids_of(found["aborts"]), marker)


def encode_index(topic: str, index: SnapshotIndex) -> bytes:
    """Returns the payload of a record of :data:`INDEXES`."""
    segments = [
        {
            "abortedMarkEntryID": each.last_marker[1],
            "abortedMarkLedgerID": each.last_marker[0],
            "segmentEntryID": each.stored_at[1],
            "segmentLedgerID": each.stored_at[0],
            "sequenceID": each.number,
        }
        for each in index.segments
    ]
    ledger_id, entry_id = index.max_read
    rest = {
        "aborts": _aborts_of(index.ids),
        "maxReadPositionEntryId": entry_id,
        "maxReadPositionLedgerId": ledger_id,
    }
    return _written(INDEXES, {"indexList": segments, "snapshot": rest, "topicName": topic})


def decode_index(payload: bytes) -> SnapshotIndex:
    """Returns the index in a record.

    :raises EntryError: the payload is not a record of :data:`INDEXES`
    """
    found = _read(INDEXES, payload)
    rest = found["snapshot"]
    if rest is None:
        raise EntryError(f"a record of {INDEXES} has no snapshot")
    segments = tuple(
        SnapshotSegment(
            each["sequenceID"],
            (),
            (each["abortedMarkLedgerID"], each["abortedMarkEntryID"]),
            (each["segmentLedgerID"], each["segmentEntryID"]),
        )
        for each in found["indexList"] or ()
    )
    max_read = (rest["maxReadPositionLedgerId"], rest["maxReadPositionEntryId"])
    return SnapshotIndex(segments, max_read, _ids_of(rest["aborts"]))


def record_entry(
    key: str, payload: bytes | None, producer: str, sequence_id: int, publish_time_ms: int, version: bytes
) -> bytes:
    """Returns a record as an entry of its topic.

    :param payload: the payload of the record; None: the entry deletes the record with this key
    :param version: the version of the schema in the topic, as messages carry it
    """
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=sequence_id,
        publish_time=publish_time_ms,
        partition_key=key,
        partition_key_b64_encoded=False,
        uncompressed_size=len(payload or b""),
        schema_version=version,
    )
    if payload is None:
        metadata.null_value = True
    return build_entry(metadata, payload or b"")


def records_of(entry: bytes, max_bytes: int) -> list[tuple[str, bytes | None]]:
    """Returns the keys and payloads of the records in an entry; the payload None deletes the record with the
    key.

    :param max_bytes: the maximum size of the uncompressed records, because any client that may publish to the
        namespace could have sent the entry
    :raises ProtocolError: the entry is damaged
    """
    parsed = parse_entry(entry)
    metadata, payload = parsed.metadata, bytes(parsed.payload)
    if metadata.compression != CompressionType.NONE:
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size, max_bytes)
    if not metadata.HasField("num_messages_in_batch"):
        return [(metadata.partition_key, None if metadata.null_value else payload)]
    return [
        (each.metadata.partition_key, None if each.metadata.null_value else bytes(each.payload))
        for each in split_batch(payload, metadata.num_messages_in_batch)
    ]
