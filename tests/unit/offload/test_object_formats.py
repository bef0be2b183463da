"""The formats of object stores, against objects that Apache Pulsar wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offloaded import objects, record_of, recorded

from magnetar.io.crc32c import crc32c
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.interface import LedgerState
from magnetar.offload import blocks, ledger_metadata
from magnetar.offload import index as index_format
from magnetar.offload.index import Block, Index
from magnetar.offload.interface import OffloadedLedgerDamaged

APACHE_BLOCK_BYTES = 5 << 20
"""As configured when the objects were recorded."""


def entries_of(data: bytes, index: Index, piece_bytes: int = 1 << 20) -> list[bytes]:
    entries: list[bytes] = []
    for number, block in enumerate(index.blocks):
        header = blocks.read_header("object", block.position, data[block.position :], block.first_entry_id)
        start, end = block.position + header.header_length, index.end_of(number)
        for _position, piece in blocks.read_entries(
            "object", 7, start, data[start:end], end, block.first_entry_id, piece_bytes
        ):
            assert piece.run.first_entry_id == len(entries)
            entries += [piece.run.entry(each) for each in range(piece.run.count)]
    return entries


def written(entries: list[bytes], block_bytes: int) -> tuple[bytes, list[Block]]:
    builder = blocks.BlockBuilder(block_bytes, 0)
    out, placed = [], [Block(0, 1, 0)]
    for entry in entries:
        if not builder.add(entry):
            out.append(builder.built(last=False))
            builder = blocks.BlockBuilder(block_bytes, builder.first_entry_id + builder.entries)
            placed.append(Block(builder.first_entry_id, len(placed) + 1, sum(map(len, out))))
            builder.add(entry)
    out.append(builder.built(last=True))
    return b"".join(out), placed


@pytest.mark.parametrize("name", objects())
def test_objects_of_pulsar_are_written_identically(name: str) -> None:
    data, index_bytes = recorded(name)
    index = index_format.decoded(name, index_bytes)
    entries = entries_of(data, index)
    assert len(entries) == index.record.last_entry_id + 1
    assert sum(map(len, entries)) == index.record.length
    assert index.data_length == len(data)
    assert written(entries, APACHE_BLOCK_BYTES) == (data, list(index.blocks))
    assert index_format.encoded(index) == index_bytes


def test_metadata_that_pulsar_recorded() -> None:
    record = index_format.decoded("index", recorded(objects()[0])[1]).record
    assert record.state is LedgerState.CLOSED
    assert (record.last_entry_id, record.length, record.ctime_ms) == (9, 755, 1795711892564)
    assert record.custom["pulsar/managed-ledger"] == b"public/default/persistent/small"
    assert not record.password


@given(
    entries=st.lists(st.binary(max_size=300), min_size=1, max_size=60),
    block_bytes=st.integers(200, 2000),
    piece_bytes=st.integers(1, 500),
)
def test_blocks_round_trip(entries: list[bytes], block_bytes: int, piece_bytes: int) -> None:
    entries = [b"m" + entry for entry in entries]
    data, placed = written(entries, block_bytes)
    index = Index(record_of(entries), len(data), placed)
    again = index_format.decoded("index", index_format.encoded(index))
    assert again == index
    assert entries_of(data, again, piece_bytes) == entries


def test_an_entry_that_is_longer_than_a_block_makes_its_block_longer() -> None:
    entries = [b"a" * 10, b"b" * 1000, b"c" * 10]
    data, placed = written(entries, 300)
    assert [block.first_entry_id for block in placed] == [0, 1, 2]
    assert entries_of(data, Index(record_of(entries), len(data), placed)) == entries


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        (0, b"\x00", "header of a block"),
        (11, b"\x01", "header of at least 28 bytes"),
        (27, b"\x05", "first entry 0"),
        (128, b"\x7f", "entry 0 within"),
        (139, b"\x05", "entry 0 within"),
        (160, b"\xff", "entry 0 with checksum"),
    ],
)
def test_a_damaged_block_is_refused(position: int, value: bytes, expected: str) -> None:
    data, index_bytes = recorded(objects()[0])
    damaged = data[:position] + value + data[position + 1 :]
    with pytest.raises(OffloadedLedgerDamaged, match=expected):
        entries_of(damaged, index_format.decoded("index", index_bytes))


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        (0, b"\x3d", "index of a ledger"),
        (7, b"\x00", "length of the index"),
        (27, b"\x09", "rest of the index"),
        (32, b"\xff", "metadata of a ledger"),
        (-1, b"\xff", ""),
        (-8, b"\x7f", "ascending blocks"),
    ],
)
def test_a_damaged_index_is_refused(position: int, value: bytes, expected: str) -> None:
    data = bytearray(recorded(objects()[0])[1])
    data[position] = value[0]
    if expected:
        with pytest.raises(OffloadedLedgerDamaged, match=expected):
            index_format.decoded("index", bytes(data))
    else:
        assert index_format.decoded("index", bytes(data)).blocks[0].position == 255


def test_a_short_index_is_refused() -> None:
    data = recorded(objects()[0])[1]
    for length in (0, 3, 20, 40, len(data) - 1):
        with pytest.raises(OffloadedLedgerDamaged):
            index_format.decoded("index", data[:length])


def test_checksums_behind_broker_metadata_are_verified() -> None:
    entry = b"\x0e\x01" + crc32c(b"rest").to_bytes(4, "big") + b"rest"
    with_metadata = b"\x0e\x02" + (3).to_bytes(4, "big") + b"abc" + entry
    for sound in (b"", b"\x00", entry, with_metadata, b"\x00\x00\x00\x05plain"):
        blocks.verify("object", 0, 0, memoryview(sound))
    for damaged in (entry[:-1] + b"T", with_metadata[:-1] + b"T"):
        with pytest.raises(OffloadedLedgerDamaged, match="entry 3 with checksum"):
            blocks.verify("object", 0, 3, memoryview(damaged))


@pytest.mark.parametrize(
    "record",
    [
        replace(record_of([b"x"]), state=LedgerState.OPEN),
        replace(record_of([b"x"]), last_entry_id=-1),
        record_of([b""]),
    ],
)
def test_open_and_empty_ledgers_are_not_offloaded(record: LedgerRecord) -> None:
    with pytest.raises(ValueError, match="ledger 7 cannot be offloaded"):
        ledger_metadata.check_offloadable(7, record)
