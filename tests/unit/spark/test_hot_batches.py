"""Batches made from Arrow buffers are what the protocol's own reader takes apart, in both forms."""

from __future__ import annotations

import base64
from array import array
from types import ModuleType
from typing import Any

import pytest
from codec_forms import forms_of
from hypothesis import given
from hypothesis import strategies as st

from magnetar.naming.hashes import java_string_hash
from magnetar.protocol.metadata import split_batch
from magnetar.protocol.pulsar_api_pb2 import SingleMessageMetadata

NAME = "magnetar.spark.codec.hot_batches"
FORMS = forms_of(NAME)

Row = tuple[bytes | None, str | bytes | None, int, dict[str, str]]


@pytest.fixture(params=list(FORMS))
def hot(request: pytest.FixtureRequest) -> ModuleType:
    module = FORMS[request.param]
    if module is None:
        pytest.skip("not compiled from this source")
    return module


def column(items: list[bytes | None]) -> tuple[memoryview, memoryview, memoryview]:
    offsets = [0]
    for each in items:
        offsets.append(offsets[-1] + len(each or b""))
    nulls = bytes(each is None for each in items) if None in items else b""
    return (
        memoryview(array("q", offsets)),
        memoryview(b"".join(each or b"" for each in items)),
        memoryview(nulls),
    )


def columns(hot: ModuleType, rows: list[Row], binary: bool) -> Any:
    keys = [key.encode() if isinstance(key, str) else key for _, key, _, _ in rows]
    heads: list[bytes | None] = []
    for _, _, _, properties in rows:
        head = SingleMessageMetadata()
        for key, value in properties.items():
            head.properties.add(key=key, value=value)
        heads.append(head.SerializePartialToString())
    return hot.Columns(
        len(rows),
        column([value for value, _, _, _ in rows]),
        column(keys),
        column(heads)[:2],
        memoryview(array("q", [event for _, _, event, _ in rows])),
        binary,
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def rows_with(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    values = st.none() | st.binary(max_size=200)
    row = st.tuples(
        values, st.none() | keys, st.integers(0, 2**62), st.dictionaries(texts, texts, max_size=2)
    )
    return st.lists(row, min_size=1, max_size=30)


def check(hot: ModuleType, rows: list[Row], binary: bool, most: int, size: int) -> None:
    made = columns(hot, rows, binary)
    first = 0
    while first < len(rows):
        end = hot.cut(made, first, most, size)
        assert first < end <= min(len(rows), first + most)
        payload = bytes(hot.encode(made, first, end))
        assert end == first + 1 or len(payload) <= size
        for row, message in zip(rows[first:end], split_batch(payload, end - first), strict=True):
            value, key, event, properties = row
            found = message.metadata
            assert message.payload == (value or b"")
            assert found.null_value == (value is None)
            assert found.HasField("partition_key") == (key is not None)
            if isinstance(key, bytes):
                assert found.partition_key_b64_encoded
                assert found.partition_key == base64.b64encode(key).decode()
            elif key is not None:
                assert not found.partition_key_b64_encoded
                assert found.partition_key == key
            assert found.event_time == event
            assert {each.key: each.value for each in found.properties} == properties
        first = end


@given(rows=rows_with(texts), most=st.integers(1, 40), size=st.integers(1, 2000))
def test_rows_with_text_keys(rows: list[Row], most: int, size: int) -> None:
    for module in FORMS.values():
        if module is not None:
            check(module, rows, False, most, size)


@given(rows=rows_with(st.binary(max_size=12)), most=st.integers(1, 40), size=st.integers(1, 2000))
def test_rows_with_binary_keys(rows: list[Row], most: int, size: int) -> None:
    for module in FORMS.values():
        if module is not None:
            check(module, rows, True, most, size)


@given(keys=st.lists(st.none() | texts, min_size=1, max_size=30), partitions=st.integers(1, 70))
def test_keys_are_routed_by_the_hash_of_their_text(keys: list[str | None], partitions: int) -> None:
    wanted = [-1 if key is None else java_string_hash(key) % partitions for key in keys]
    for module in FORMS.values():
        if module is not None:
            out = array("i", bytes(4 * len(keys)))
            module.route(columns(module, [(b"", key, 0, {}) for key in keys], False), partitions, out)
            assert out.tolist() == wanted


@given(keys=st.lists(st.binary(max_size=12), min_size=1, max_size=30))
def test_binary_keys_are_routed_by_the_hash_of_their_base64(keys: list[bytes]) -> None:
    wanted = [java_string_hash(base64.b64encode(key).decode()) % 7 for key in keys]
    for module in FORMS.values():
        if module is not None:
            out = array("i", bytes(4 * len(keys)))
            module.route(columns(module, [(b"", key, 0, {}) for key in keys], True), 7, out)
            assert out.tolist() == wanted


def test_a_row_outside_is_refused(hot: ModuleType) -> None:
    made = columns(hot, [(b"a", None, 0, {})], False)
    with pytest.raises(IndexError):
        hot.encode(made, 0, 2)


@given(st.lists(st.none() | st.lists(st.tuples(texts, st.none() | texts), max_size=3), max_size=20))
def test_properties_are_what_protobuf_makes_of_them(rows: list[list[tuple[str, str | None]] | None]) -> None:
    for module in FORMS.values():
        if module is not None:
            check_heads(module, rows)


def check_heads(hot: ModuleType, rows: list[list[tuple[str, str | None]] | None]) -> None:
    pairs = [pair for row in rows for pair in row or ()]
    ends_of_rows = [0]
    for row in rows:
        ends_of_rows.append(ends_of_rows[-1] + len(row or ()))
    keys = column([key.encode() for key, _ in pairs])
    values = column([None if value is None else value.encode() for _, value in pairs])
    nulls = bytes(row is None for row in rows) if None in rows else b""
    ends = array("q", bytes(8 * (len(rows) + 1)))
    found = hot.property_heads(
        memoryview(array("i", ends_of_rows)), memoryview(nulls), keys[:2], values[:2], ends
    )
    for number, row in enumerate(rows):
        wanted = SingleMessageMetadata()
        for key, value in row or ():
            wanted.properties.add(key=key, value=value or "")
        assert bytes(found[ends[number] : ends[number + 1]]) == wanted.SerializePartialToString()
    assert ends[-1] == len(found)
