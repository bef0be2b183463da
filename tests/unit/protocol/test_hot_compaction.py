"""Numbering and copying messages, compiled and not: whatever bytes entries have, both ways agree."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from codec_forms import forms_of
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol.metadata import build_batch, build_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import MessageIdData, MessageMetadata, SingleMessageMetadata

FORMS = forms_of("magnetar.protocol.hot_compaction")
IDS = st.integers(0, 2**63 - 1)


@pytest.fixture(scope="module", params=list(FORMS))
def hot(request: pytest.FixtureRequest) -> ModuleType:
    found = FORMS[request.param]
    if found is None:
        pytest.skip("not compiled")
    return found


def run_of(entries: list[bytes]) -> tuple[bytes, array[int], array[int]]:
    """With other bytes between them."""
    buffer, starts, ends = b"", array("q"), array("q")
    for entry in entries:
        buffer += b"\x0e\x01"
        starts.append(len(buffer))
        buffer += entry
        ends.append(len(buffer))
    return buffer, starts, ends


def metadata(**fields: Any) -> MessageMetadata:
    return MessageMetadata(**({"producer_name": "p", "sequence_id": 1, "publish_time": 1} | fields))


def passed(hot: ModuleType, entries: list[bytes]) -> tuple[list[bytes], Any]:
    """What is left of entries, as copied; those that are to be opened count as whole."""
    buffer, starts, ends = run_of(entries)
    latest = hot.LatestKeys(False)
    index = 0
    while index < len(entries):
        index = latest.number(buffer, starts, ends, index, len(entries))
        if index < len(entries):
            latest.number_whole()
            index += 1
    numbered = latest.count
    latest.begin_copy()
    ids = array("q", range(len(entries)))
    out, out_ends = bytearray(), array("q")
    index = 0
    while index < len(entries):
        index = latest.copy(ids, ids, buffer, starts, ends, index, len(entries), -1, out, out_ends)
        if index < len(entries):
            latest.look(buffer, starts[index], ends[index])
            whole = latest.left_of(buffer[latest.payload : ends[index]])
            hot.put_raw(out, out_ends, index, index, -1, whole)
            index += 1
    assert latest.count == numbered
    return [bytes(out[first:end]) for first, end in zip([0, *out_ends], out_ends, strict=False)], latest


def mutated(entry: bytes, changes: list[tuple[int, int]]) -> bytes:
    torn = bytearray(entry)
    for place, value in changes:
        torn[place % len(torn)] = value
    return bytes(torn)


SINGLES = st.builds(
    lambda key, payload: build_entry(metadata(partition_key=key, uncompressed_size=len(payload)), payload),
    st.sampled_from(["a", "b"]),
    st.sampled_from([b"", b"value"]),
)
BATCHES = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([b"", b"value"])), min_size=1).map(
    lambda messages: build_entry(
        metadata(num_messages_in_batch=len(messages)),
        build_batch(
            [(SingleMessageMetadata(partition_key=key, payload_size=0), value) for key, value in messages]
        ),
    )
)
CHANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)
ENTRIES = st.lists(
    st.builds(mutated, st.one_of(SINGLES, BATCHES), CHANGES) | st.binary(max_size=40), max_size=8
)


@given(ENTRIES)
def test_both_forms_and_both_ways_agree_whatever_the_bytes(entries: list[bytes]) -> None:
    found = []
    for form in FORMS.values():
        if form is not None:
            left, latest = passed(form, entries)
            found.append((left, latest.count, bytes(latest.bits)))
    assert all(each == found[0] for each in found)


@given(IDS, IDS, st.integers(-1, 1000), st.binary(max_size=30))
def test_raw_messages_are_what_pulsar_reads(
    hot: ModuleType, ledger_id: int, entry_id: int, partition: int, entry: bytes
) -> None:
    out, ends = bytearray(), array("q")
    hot.put_raw(out, ends, ledger_id, entry_id, partition, entry)
    size = int.from_bytes(out[:4], "big")
    told = MessageIdData.FromString(bytes(out[4 : 4 + size]))
    assert (told.ledgerId, told.entryId, told.partition) == (ledger_id, entry_id, partition)
    assert int.from_bytes(out[4 + size : 8 + size], "big") == len(entry)
    assert out[8 + size :] == entry
    places = [array("q", [0]) for _ in range(3)]
    assert hot.open_raw(bytes(out), array("q", [0]), ends, 1, *places) == 1
    assert [place[0] for place in places] == [ledger_id, entry_id, 8 + size]


@given(st.binary(max_size=60))
def test_what_is_no_raw_message_is_told(data: bytes) -> None:
    counts = set()
    for form in FORMS.values():
        if form is not None:
            places = [array("q", [0]) for _ in range(3)]
            counts.add(form.open_raw(data, array("q", [0]), array("q", [len(data)]), 1, *places))
    assert len(counts) == 1


def test_what_is_gone_from_a_batch_is_marked(hot: ModuleType) -> None:
    messages = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    singles = [(SingleMessageMetadata(partition_key=key, payload_size=0), value) for key, value in messages]
    entry = build_entry(metadata(num_messages_in_batch=3), build_batch(singles))
    left, _latest = passed(hot, [entry])
    payload = left[0][left[0].index(b"\x00\x00\x00\x04\x18\x00\x20\x01") :]
    found = split_batch(payload, 3)
    assert [(each.metadata.compacted_out, each.payload) for each in found] == [
        (True, b""),
        (False, b"2"),
        (False, b"3"),
    ]


def test_markers_go_and_what_is_encrypted_stays(hot: ModuleType) -> None:
    sealed = metadata(num_messages_in_batch=2)
    sealed.encryption_keys.add(key="k", value=b"v")
    entries = [build_entry(metadata(marker_type=1, partition_key="a"), b"x"), build_entry(sealed, b"secret")]
    left, latest = passed(hot, entries)
    assert len(left) == 1
    assert left[0].endswith(entries[1])
    assert latest.count == 2


@given(st.lists(st.integers(0, 2**40)), st.integers(-(2**40), 2**40))
def test_offsets_are_shifted(hot: ModuleType, offsets: list[int], by: int) -> None:
    shifted = array("q", offsets)
    hot.shift(shifted, by)
    assert list(shifted) == [offset + by for offset in offsets]


@given(st.lists(st.integers(1, 5), max_size=5), st.integers(0, 9), st.integers(-1, 1))
def test_ends_that_fill_their_bytes_ascend_to_the_last(
    hot: ModuleType, sizes: list[int], start: int, off: int
) -> None:
    ends = array("q", [start + sum(sizes[: index + 1]) for index in range(len(sizes))])
    assert hot.ascend(ends, start, start + sum(sizes) + off) == (off == 0)
    if sizes:
        ends[-1] = start
        assert not hot.ascend(ends, start, start)
