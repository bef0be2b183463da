"""Objects of several ledgers, as Apache Pulsar's streaming offload lays them out, are read."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from faulty_object_store import ObjectStore, object_store
from offloaded import cache, read_all

from magnetar.ledger.interface import NoSuchEntry
from magnetar.managed_ledger import records_pb2 as pb
from magnetar.offload import driver_for
from magnetar.offload import index as index_format
from magnetar.offload.interface import OffloadedLedgerDamaged, OffloadedLedgerMissing, OffloadKey

UUID_OF_OBJECT = UUID("01234567-89ab-cdef-0123-456789abcdef")
NAME = "public/default/persistent/topic"
BLOCK_BYTES, HEADER_BYTES = 600, 128
ENTRIES = {
    3: [b"ledger 3, entry %d" % number for number in range(40)],
    4: [b"ledger 4, entry %d" % number + b"." * number for number in range(25)],
}
FIRST = {3: 30, 4: 0}
"""The object begins within ledger 3."""


def laid_out() -> tuple[bytes, bytes]:
    """Returns a data object and its index, written as ``BufferedOffloadStream`` and
    ``OffloadIndexBlockV2Impl`` do."""
    data, sections, part = b"", b"", 0
    for ledger_id, entries in ENTRIES.items():
        blocks = []
        entry_id = FIRST[ledger_id]
        while entry_id < len(entries):
            part += 1
            blocks.append(struct.pack(">qIq", entry_id, part, len(data)))
            block = struct.pack(">IQQqq", 0x26A66D32, HEADER_BYTES, BLOCK_BYTES, entry_id, ledger_id)
            block = block.ljust(HEADER_BYTES, b"\0")
            while entry_id < len(entries) and len(block) + 12 + len(entries[entry_id]) <= BLOCK_BYTES:
                block += struct.pack(">Iq", len(entries[entry_id]), entry_id) + entries[entry_id]
                entry_id += 1
            data += block + (b"\xfe\xdc\xde\xad" * BLOCK_BYTES)[: BLOCK_BYTES - len(block)]
        info = pb.ManagedLedgerInfo.LedgerInfo(
            ledgerId=ledger_id, entries=len(entries), size=sum(map(len, entries)), timestamp=1_700_000_000_000
        )
        info.offloadContext.driverMetadata.name = "aws-s3"
        metadata = info.SerializeToString()
        sections += struct.pack(">qII", ledger_id, len(blocks), len(metadata)) + metadata + b"".join(blocks)
    start = struct.pack(">IIqq", 0x3D1FB0BC, 24 + len(sections), len(data), HEADER_BYTES)
    return data, start + sections


def stored(store: ObjectStore) -> None:
    data, index = laid_out()
    store.put(str(UUID_OF_OBJECT), data)
    store.put(f"{UUID_OF_OBJECT}-index", index)


def test_each_ledger_of_an_object_is_read() -> None:
    with object_store() as store:
        stored(store)
        driver = driver_for(
            "aws-s3", store.settings(s3ManagedLedgerOffloadReadBufferSizeInBytes="4096"), cache()
        )
        reader = driver.open(OffloadKey(NAME, 4, UUID_OF_OBJECT))
        assert read_all(reader) == ENTRIES[4]
        assert (reader.first_entry_id, reader.length) == (0, sum(map(len, ENTRIES[4])))
        within = driver.open(OffloadKey(NAME, 3, UUID_OF_OBJECT))
        assert (within.first_entry_id, within.last_entry_id) == (30, 39)
        (run,) = within.read(33, 39, 1 << 20)
        assert [run.entry(number) for number in range(run.count)] == ENTRIES[3][33:]
        with pytest.raises(NoSuchEntry, match="entries 30 to 39"):
            within.read(29, 39, 1 << 20)
        with pytest.raises(OffloadedLedgerDamaged, match=r"expected ledger 5, found ledgers \[3, 4\]"):
            driver.open(OffloadKey(NAME, 5, UUID_OF_OBJECT))
        with pytest.raises(OffloadedLedgerMissing, match="-ledger-3-index"):
            driver.open(OffloadKey(NAME, 3, UUID(int=1)))
        driver.close()


def test_a_block_of_another_ledger_is_refused() -> None:
    data, index = laid_out()
    wrong = bytearray(data)
    wrong[index_format.decoded_of_several("index", index, 4).blocks[0].position + 35] = 9
    with object_store() as store:
        store.put(str(UUID_OF_OBJECT), bytes(wrong))
        store.put(f"{UUID_OF_OBJECT}-index", index)
        driver = driver_for("aws-s3", store.settings(), cache())
        with pytest.raises(OffloadedLedgerDamaged, match="block of ledger 4, found a block of ledger 9"):
            read_all(driver.open(OffloadKey(NAME, 4, UUID_OF_OBJECT)))
        driver.close()


def test_a_damaged_index_is_refused() -> None:
    index = laid_out()[1]
    for length in (0, 3, 20, 30, 45, len(index) - 1):
        with pytest.raises(OffloadedLedgerDamaged):
            index_format.decoded_of_several("index", index[:length], 4)
    for position in range(len(index)):
        changed = bytearray(index)
        changed[position] ^= 0xFF
        try:
            found = index_format.decoded_of_several("index", bytes(changed), 4)
        except OffloadedLedgerDamaged:
            continue
        assert found.blocks
