"""Keys of message ids sort as the ids do, in both forms."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pytest
from codec_forms import forms_of
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol.pulsar_api_pb2 import MessageIdData
from magnetar.spark.codec.message_order import keys_of

NAME = "magnetar.spark.codec.hot_ids"
FORMS = [form for form in forms_of(NAME).values() if form is not None]

_ids = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 2))


def serialized(place: tuple[int, int, int], partition: int) -> bytes:
    ledger, entry, index = place
    made = MessageIdData(ledgerId=ledger, entryId=entry, partition=partition, batch_index=index)
    if index >= 0:
        made.batch_size = index + 1
        made.ack_set.append(-1)
    return made.SerializeToString()


@given(st.lists(_ids, max_size=20), st.integers(-1, 5))
def test_keys_sort_as_places_do(places: list[tuple[int, int, int]], partition: int) -> None:
    ids = pa.array([serialized(place, partition) for place in places], pa.large_binary())
    _, offsets, data = ids.buffers()
    for form in FORMS:
        keys = form.sort_keys(
            memoryview(offsets).cast("B").cast("q")[: len(ids) + 1], memoryview(data or b"").cast("B")
        )
        found = [bytes(keys[20 * n : 20 * n + 20]) for n in range(len(places))]
        by_key = [place for _, place in sorted(zip(found, places, strict=True))]
        assert by_key == sorted(places)


def test_nulls_stay_and_slices_are_what_they_are() -> None:
    ids = pa.array([serialized((1, 2, 3), -1), None, serialized((1, 2, 4), -1)], pa.binary())
    keys = keys_of(ids).to_pylist()
    assert keys[1] is None
    assert keys[0] < keys[2]
    assert keys_of(ids.slice(2)).to_pylist() == keys[2:]
    assert keys_of(ids.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize("wrong", [b"\x08", b"\x09\1", b"\x08\xff\xff", b"\x2a\x05a", b"\xff\x01\x01"])
def test_what_is_no_id_is_refused(wrong: bytes) -> None:
    for form in FORMS:
        with pytest.raises(ValueError, match="no message id"):
            form.sort_keys(memoryview(array("q", [0, len(wrong)])), memoryview(wrong))
