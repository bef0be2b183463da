"""Rows to entries, without a cluster."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
from magnetar.spark.codec.schemas import NOTHING
from magnetar.spark.errors import InvalidRows
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.cutting import CutEntry, RowCutter

MOMENT = pa.timestamp("us", "UTC")
OPTIONS = {"service.url": "pulsar://h:1", "admin.url": "http://h:2", "topic": "t"}


def cut(columns: dict[str, pa.Array], partitions: int = 0, **producer: str) -> list[CutEntry]:
    types = {pa.binary(): BinaryType(), pa.string(): StringType(), MOMENT: TimestampType()}
    schema = StructType([StructField(name, types[each.type]) for name, each in columns.items()])
    options = QueryOptions.parse(
        {**OPTIONS, **{f"pulsar.producer.{name}": text for name, text in producer.items()}}
    )
    cutter = RowCutter(schema, options, lambda _topic: partitions, lambda _topic: NOTHING)
    return list(cutter.entries(pa.record_batch(columns)))


def metadata(entry: CutEntry) -> MessageMetadata:
    made = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    made.MergeFromString(entry.metadata)
    assert build_entry(made, entry.payload)
    return made


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("keys", [["a", None, "", "ż", "a"], [b"a", None, b"", b"\xff", b"a"]])
def test_entries_of_one_message_tell_their_key(keys: list[str | bytes | None], partitions: int) -> None:
    columns = {"value": pa.array([b"%d" % number for number in range(5)]), "__key": pa.array(keys)}
    told: dict[bytes, MessageMetadata] = {}
    for entry in cut(columns, partitions, batchingEnabled="false"):
        assert entry.count == 1
        told[entry.payload[-1:]] = metadata(entry)
    for number, key in enumerate(keys):
        found = told[b"%d" % number]
        assert found.HasField("partition_key") == (key is not None)
        if isinstance(key, str):
            assert (found.partition_key, found.partition_key_b64_encoded) == (key, False)
        elif key is not None:
            wanted = {b"a": "YQ==", b"": "", b"\xff": "/w=="}[key]
            assert (found.partition_key, found.partition_key_b64_encoded) == (wanted, True)


def test_entries_of_several_messages_have_none() -> None:
    columns = {"value": pa.array([b"1", b"2"]), "__key": pa.array(["a", "b"])}
    (entry,) = cut(columns)
    assert not metadata(entry).HasField("partition_key")


def test_event_times_before_1970_are_refused_and_not_left_out() -> None:
    def rows(*micros: int | None) -> dict[str, pa.Array]:
        return {"value": pa.array([b"x"] * len(micros)), "__eventTime": pa.array(micros, MOMENT)}

    for entry in cut(rows(None, 0, 1_500_000)):
        assert entry.count == 3
    with pytest.raises(InvalidRows, match="__eventTime: -2 ms is before 1970"):
        cut(rows(1_500_000, None, -2_000))


def test_tasks_with_few_rows_write_to_all_partitions() -> None:
    for columns in (
        {"value": pa.array([b"x"])},
        {"value": pa.array([b"x"]), "__key": pa.array([None], pa.string())},
    ):
        chosen = [cut(columns, 3)[0].topic for _task in range(200)]
        assert {each: chosen.count(each) > 20 for each in chosen} == {
            f"persistent://public/default/t-partition-{number}": True for number in range(3)
        }
