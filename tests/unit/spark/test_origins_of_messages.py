"""Producers and clusters of messages, as columns that a query asks for."""

from __future__ import annotations

from pyspark.sql.types import StructType

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar.spark.codec.columns import BYTES, ORIGIN, VALUE
from magnetar.spark.codec.rows import EntryPart, Malformed, RowSelection, record_batches


def entry(place: int, messages: int = 0, **more: object) -> EntryPart:
    metadata = MessageMetadata(sequence_id=1, publish_time=place, **more)
    payload = b"x"
    if messages:
        metadata.num_messages_in_batch = messages
        single = SingleMessageMetadata(payload_size=1).SerializeToString()
        payload = (len(single).to_bytes(4, "big") + single + b"x") * messages
    return EntryPart(1, place, build_entry(metadata, payload))


PARTS = [
    entry(1, producer_name="a", replicate_to=["west"]),
    entry(2, 3, producer_name="b", replicated_from="east"),
    entry(3, producer_name="c", replicate_to=["south", "west"]),
]


def rows(*parts: EntryPart, first: int = 0) -> list[dict[str, object]]:
    malformed: list[Malformed] = []
    schema = StructType([*(each for each in BYTES if each.name == VALUE), *ORIGIN])
    wanted = RowSelection(times_from=first)
    found = list(record_batches("t", -1, parts, schema, wanted, None, malformed.append))
    assert not malformed
    return [row for batch in found for row in batch.to_pylist()]


def test_each_message_of_an_entry_has_the_origin_of_its_entry() -> None:
    found = [tuple(row.values()) for row in rows(*PARTS)]
    assert found == [
        (b"x", "a", ["west"], None),
        *[(b"x", "b", [], "east")] * 3,
        (b"x", "c", ["south", "west"], None),
    ]


def test_what_a_filter_leaves_out_shifts_no_origin() -> None:
    assert [row["__producerName"] for row in rows(*PARTS, first=2)] == ["b", "b", "b", "c"]


def test_origins_of_one_batch_do_not_reach_into_the_next() -> None:
    parts = [entry(1, 9000, producer_name="first"), entry(2, producer_name="second")]
    found = [row["__producerName"] for row in rows(*parts)]
    assert found == ["first"] * 9000 + ["second"]
