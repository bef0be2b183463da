"""Entries taken apart into columns, in both forms of the module."""

from __future__ import annotations

import base64
import struct
from types import ModuleType
from typing import Any

import pytest
from codec_forms import forms_of
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.message_id import MessageId
from magnetar.protocol.compression import decompress
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import EncryptionKeys, MessageMetadata, SingleMessageMetadata

FORMS = forms_of("magnetar.spark.codec.hot_rows")


@pytest.fixture(params=list(FORMS))
def hot(request: pytest.FixtureRequest) -> ModuleType:
    module = FORMS[request.param]
    if module is None:
        pytest.skip("not compiled")
    return module


def metadata(**more: Any) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=1, publish_time=1234, **more)


def batch(*messages: tuple[bytes, dict[str, Any]], **more: Any) -> bytes:
    body = b""
    for content, own in messages:
        single = SingleMessageMetadata(payload_size=len(content), **own).SerializeToString()
        body += struct.pack(">I", len(single)) + single + content
    return build_entry(metadata(num_messages_in_batch=len(messages), **more), body)


def column(found: Any, count: int) -> list[bytes | None]:
    return [
        bytes(found.data[found.offsets[row] : found.offsets[row + 1]])
        if found.valid[row >> 3] >> (row & 7) & 1
        else None
        for row in range(count)
    ]


def builder(hot: ModuleType, rows: int = 2) -> Any:
    return hot.RowBuilder(5, decompress, rows)


def test_messages_of_a_batch(hot: ModuleType) -> None:
    pair = {"key": "a", "value": "ą"}
    entry = batch(
        (b"one", {"partition_key": "k", "properties": [pair], "event_time": 7}),
        (b"", {"partition_key": base64.b64encode(b"\0\xff").decode(), "partition_key_b64_encoded": True}),
        (b"gone", {"compacted_out": True, "properties": [pair]}),
        (b"", {"null_value": True, "properties": [pair, pair]}),
    )
    rows = builder(hot)
    assert rows.add(8, 9, entry, 0, -1) == 0
    assert rows.count == 3
    assert column(rows.values, 3) == [b"one", b"", None]
    assert column(rows.keys, 3) == [b"k", b"\0\xff", None]
    assert list(rows.publish_times[:3]) == [1_234_000] * 3
    assert list(rows.event_times[:3]) == [7000, 0, 0]
    assert list(rows.properties[:4]) == [0, 1, 1, 3]
    assert column(rows.contents, 3) == ["ą".encode()] * 3
    ids = [MessageId.deserialize(each or b"") for each in column(rows.ids, 3)]
    assert ids == [MessageId(5, 8, 9, index, 4) for index in (0, 1, 3)]


def test_a_message_outside_of_a_batch(hot: ModuleType) -> None:
    rows = builder(hot)
    entry = build_entry(metadata(partition_key="k", schema_version=b"\0" * 8, event_time=3), b"content")
    assert rows.add(1, 2, entry, 0, -1) == 0
    assert column(rows.values, 1) == [b"content"]
    assert column(rows.keys, 1) == [b"k"]
    assert rows.schema_versions[rows.versions[0]] == b"\0" * 8
    assert MessageId.deserialize(column(rows.ids, 1)[0] or b"").batch_index() == -1


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.data())
def test_parts_of_batches_add_up(contents: list[bytes], data: st.DataObject) -> None:
    entry = batch(*((content, {}) for content in contents))
    cut = data.draw(st.integers(0, len(contents)))
    for module in FORMS.values():
        if module is None:
            continue
        rows = builder(module)
        assert rows.add(1, 1, entry, 0, cut) == 0
        assert rows.count == cut
        assert rows.add(1, 1, entry, cut, -1) == 0
        assert column(rows.values, rows.count) == contents


@given(st.data())
def test_damaged_entries_are_found_or_harmless(data: st.DataObject) -> None:
    own = {"partition_key": "key", "properties": [{"key": "a", "value": "b"}]}
    entry = bytearray(batch((b"first", own), (b"second", own)))
    for _ in range(data.draw(st.integers(1, 4))):
        entry[data.draw(st.integers(6, len(entry) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(entry[: data.draw(st.integers(0, len(entry)))])
    found = set()
    for module in FORMS.values():
        if module is None:
            continue
        rows = module.RowBuilder(-1, lambda codec, data, size: data, 4)
        code = rows.add(1, 1, damaged, 0, -1)
        assert code == 0 or (rows.count, rows.values.end, rows.ids.end) == (0, 0, 0)
        found.add((code, rows.count, tuple(column(rows.values, rows.count))))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (build_entry(metadata(encryption_keys=[EncryptionKeys(key="k", value=b"v")]), b"x"), "ENCRYPTED"),
        (build_entry(metadata(num_chunks_from_msg=2, chunk_id=0, uuid="u"), b"x"), "CHUNK"),
        (build_entry(metadata(num_messages_in_batch=2), b"\0\0\0\2\x18"), "BATCH_DAMAGED"),
        (build_entry(metadata(partition_key="abcde", partition_key_b64_encoded=True), b"x"), "KEY_DAMAGED"),
        (b"\0\0\0\7abc", "DAMAGED"),
        (b"", "DAMAGED"),
        # Nanoseconds, as some take times to be, and what is no time at all.
        (build_entry(metadata(event_time=1_800_000_000_000_000_000), b"x"), "TIME_BEYOND"),
        (build_entry(metadata(event_time=(1 << 64) - (1 << 62)), b"x"), "TIME_BEYOND"),
        (batch((b"x", {}), (b"y", {"event_time": (1 << 63) // 1000 + 1})), "TIME_BEYOND"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_left_behind(hot: ModuleType, entry: bytes, code: str) -> None:
    rows = builder(hot)
    assert rows.add(1, 1, batch((b"before", {"properties": [{"key": "a", "value": "b"}]})), 0, -1) == 0
    found = rows.add(1, 2, entry, 0, -1)
    assert hot.REASONS[found] == FORMS["interpreted"].REASONS[getattr(FORMS["interpreted"], code)]
    assert rows.add(1, 3, batch((b"after", {})), 0, -1) == 0
    assert column(rows.values, rows.count) == [b"before", b"after"]
    assert list(rows.properties[:3]) == [0, 1, 1]


def test_the_last_times_that_have_room_are_taken(hot: ModuleType) -> None:
    rows = builder(hot)
    last = ((1 << 63) - 1) // 1000
    assert rows.add(1, 1, batch((b"x", {"event_time": last})), 0, -1) == 0
    assert rows.add(1, 2, batch((b"x", {"event_time": (1 << 64) - last})), 0, -1) == 0
    assert list(rows.event_times[:2]) == [last * 1000, -last * 1000]


def test_markers_are_no_messages(hot: ModuleType) -> None:
    rows = builder(hot)
    assert rows.add(1, 1, build_entry(metadata(marker_type=10), b"x"), 0, -1) == 0
    assert rows.count == 0


def test_keys_and_times_that_are_not_wanted_are_left_out(hot: ModuleType) -> None:
    entry = batch(*((b"%d" % number, {"partition_key": f"k{number}"}) for number in range(12)))
    rows = builder(hot)
    rows.want_keys([b"k1", b"k11", b""])
    assert rows.add(1, 1, entry, 0, -1) == 0
    assert column(rows.values, rows.count) == [b"1", b"11"]
    early = builder(hot)
    early.times_to = 1234
    assert early.add(1, 1, entry, 0, -1) == 0
    assert early.count == 0
    late = builder(hot)
    late.times_from = 1234
    assert late.add(1, 1, entry, 0, -1) == 0
    assert late.count == 12
