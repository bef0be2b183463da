"""Entries and batches come apart as they were put together, and damage is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import entries

from magnetar.protocol.compression import compress
from magnetar.protocol.errors import ChecksumMismatch, CompressionError, EntryError
from magnetar.protocol.metadata import build_batch, build_entry, parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)

METADATA = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)


@given(st.binary(max_size=100), st.booleans())
def test_an_entry_reads_back(payload: bytes, stored_with_broker_metadata: bool) -> None:
    data = build_entry(METADATA, payload)
    if stored_with_broker_metadata:
        raw = BrokerEntryMetadata(broker_timestamp=5, index=7).SerializeToString()
        data = b"\x0e\x02" + len(raw).to_bytes(4, "big") + raw + data
    entry = parse_entry(data)
    assert (entry.metadata, entry.payload) == (METADATA, payload)
    assert (entry.broker_metadata is not None) == stored_with_broker_metadata
    if entry.broker_metadata is not None:
        assert entry.broker_metadata.index == 7


def test_an_entry_without_checksum() -> None:
    data = build_entry(METADATA, b"payload")[6:]
    assert parse_entry(data).payload == b"payload"


def test_a_wrong_checksum_is_named() -> None:
    data = build_entry(METADATA, b"payload")
    with pytest.raises(ChecksumMismatch, match="the entry says 0x"):
        parse_entry(data[:-1] + b"?")
    assert parse_entry(data[:-1] + b"?", verify_checksum=False).payload == b"payloa?"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends before its metadata"),
        (b"\x0e\x01\x00", "ends inside its checksum"),
        (b"\x00\x00\x00\x09abc", "the metadata has 9 bytes, of which only 3 are there"),
        (b"\x0e\x02\x00", "ends before its broker metadata"),
        (b"\x0e\x02\x00\x00\x00\x09", "the broker metadata has 9 bytes, of which only 0 are there"),
        (b"\x00\x00\x00\x02\x0a\x7f", "the metadata cannot be parsed"),
        (b"\x00\x00\x00\x00", "the metadata lacks the required producer_name, "),
    ],
)
def test_damaged_entries(data: bytes, reason: str) -> None:
    with pytest.raises(EntryError, match=reason):
        parse_entry(data)


@given(entries() | st.binary(max_size=60), st.data())
def test_a_truncated_entry_gives_an_error_or_less_payload(data: bytes, drawn: st.DataObject) -> None:
    cut = data[: drawn.draw(st.integers(0, len(data)))]
    try:
        parse_entry(cut, verify_checksum=False)
    except EntryError:
        return


def test_the_size_of_a_batch() -> None:
    assert parse_entry(build_entry(METADATA, b"")).batch_size is None
    batch = MessageMetadata()
    batch.CopyFrom(METADATA)
    batch.num_messages_in_batch = 1
    assert parse_entry(build_entry(batch, b"")).batch_size == 1


@pytest.mark.parametrize("codec", CompressionType.values())
def test_a_compressed_entry(codec: CompressionType) -> None:
    payload = b"some payload " * 20
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, compression=codec, uncompressed_size=len(payload)
    )
    entry = parse_entry(build_entry(metadata, compress(codec, payload)))
    assert entry.uncompressed_payload() == payload
    if codec != CompressionType.NONE:
        with pytest.raises(CompressionError):
            entry.uncompressed_payload(max_size=100)


def test_an_encrypted_entry_is_not_decompressed() -> None:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, compression=CompressionType.LZ4, uncompressed_size=9
    )
    metadata.encryption_keys.add(key="k", value=b"v")
    with pytest.raises(EntryError, match="encrypted"):
        parse_entry(build_entry(metadata, b"secret")).uncompressed_payload()


@given(st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=50)), max_size=5), st.binary(max_size=3))
def test_a_batch_reads_back(messages: list[tuple[str, bytes]], behind: bytes) -> None:
    built = build_batch((SingleMessageMetadata(partition_key=key), payload) for key, payload in messages)
    read = split_batch(built + behind, len(messages))
    assert [(each.metadata.partition_key, each.payload) for each in read] == messages


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "ends before message 0"),
        (b"\x00\x00\x00", "ends before message 0"),
        (b"\x00\x00\x00\x09\x18\x00", "the metadata of message 0 has 9 bytes, of which only 2 are there"),
        (b"\x00\x00\x00\x00", "metadata of message 0 lacks the required payload_size"),
        (b"\x00\x00\x00\x02\x18\x05abc", "the payload of message 0 has 5 bytes, of which only 3 are there"),
        (
            b"\x00\x00\x00\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "the payload of message 0 has -1 bytes, of which only 0 are there",
        ),
        (b"\x00\x00\x00\x02\x18\x00", "ends before message 1"),
    ],
    ids=lambda value: value.hex() if isinstance(value, bytes) else value,
)
def test_damaged_batches(payload: bytes, reason: str) -> None:
    with pytest.raises(EntryError, match=reason):
        split_batch(payload, 2)


def test_a_batch_cannot_make_the_reader_take_memory() -> None:
    with pytest.raises(EntryError):
        split_batch(b"\x00\x00\x00\x02\x18\x00", 2**31 - 1)
