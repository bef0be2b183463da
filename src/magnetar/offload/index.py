"""The index object of an offloaded ledger: where its blocks are, and its metadata.

    0 magic DE47DE47 (4) | 4 length of the index (4) | 8 length of the data object (8)
    16 length of a block's header (8) | 24 number of blocks (4) | 28 length of the metadata (4) | metadata
    then for each block: first entry id (8) | part (4) | position in the data object (8)

Numbers are big-endian. Version 2, of objects with several ledgers (Pulsar's streaming offload), is never
written, only read:

    0 magic 3D1FB0BC (4) | 4, 8 and 16 as above
    then for each ledger: id (8) | number of blocks (4) | length of the metadata (4) | metadata | blocks

In version 2, the metadata is a ``ManagedLedgerInfo.LedgerInfo``. A data object may begin and end within a
ledger.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.offload import ledger_metadata
from magnetar.offload.blocks import HEADER_BYTES
from magnetar.offload.interface import OffloadedLedgerDamaged

_START = struct.Struct(">IIqq")
_LEDGER = struct.Struct(">II")
_BLOCK = struct.Struct(">qIq")
_MAGIC = 0xDE47DE47
_SEVERAL = struct.Struct(">qII")
_MAGIC_OF_SEVERAL = 0x3D1FB0BC
_ENTRIES, _SIZE, _CLOSED_MS = 2, 3, 4
"""The numbers of fields of ``LedgerInfo``."""
_BYTES = 2
"""Protobuf's wire type of fields with a length."""


class Block(NamedTuple):
    first_entry_id: int
    part: int
    """The number of the part in the multipart upload, from 1 on."""
    position: int
    """The offset of the block's header in the data object."""


class Index(NamedTuple):
    record: LedgerRecord
    data_length: int
    blocks: Sequence[Block]
    """The blocks in ascending order, at least one."""
    ends: Sequence[int] = ()
    """In an object of several ledgers, the offset of the end of each block; empty: an object of one ledger,
    in which a block ends where the next one begins."""

    def block_of(self, entry_id: int) -> int:
        """Returns the position, in ``blocks``, of the block that contains an entry; the entry must not be
        before the first block."""
        return bisect_right(self.blocks, entry_id, key=_first_entry_id) - 1

    def end_of(self, block: int) -> int:
        """Returns the offset of the end of a block in the data object."""
        if self.ends:
            return self.ends[block]
        if block + 1 < len(self.blocks):
            return self.blocks[block + 1].position
        return self.data_length


def _first_entry_id(block: Block) -> int:
    return block.first_entry_id


def encoded(index: Index) -> bytes:
    metadata = ledger_metadata.encoded(index.record)
    length = _START.size + _LEDGER.size + len(metadata) + len(index.blocks) * _BLOCK.size
    return b"".join(
        (
            _START.pack(_MAGIC, length, index.data_length, HEADER_BYTES),
            _LEDGER.pack(len(index.blocks), len(metadata)),
            metadata,
            *(_BLOCK.pack(*block) for block in index.blocks),
        )
    )


def decoded(name: str, data: bytes) -> Index:
    """Returns the index in an object.

    :param name: the name of the object
    :raises OffloadedLedgerDamaged: the data is not the index of one ledger
    """
    try:
        magic, length, data_length, _header = _START.unpack_from(data)
        if magic != _MAGIC:
            raise OffloadedLedgerDamaged(name, 0, f"the index of a ledger, {_MAGIC:#010x}", f"{magic:#010x}")
        if length != len(data):
            raise OffloadedLedgerDamaged(name, 4, f"the length of the index, {len(data)}", str(length))
        count, size = _LEDGER.unpack_from(data, _START.size)
        at = _START.size + _LEDGER.size
        record = ledger_metadata.decoded(data[at : at + size])
        index = Index(record, data_length, _blocks(data, at + size, count))
    except struct.error as error:
        raise OffloadedLedgerDamaged(
            name, len(data), "the rest of the index", f"its end ({error})"
        ) from error
    except ValueError as error:
        raise OffloadedLedgerDamaged(name, _START.size, "the metadata of a ledger", str(error)) from error
    _check_blocks(name, index)
    return index


def decoded_of_several(name: str, data: bytes, ledger_id: int) -> Index:
    """Returns the index of one ledger from an index of version 2.

    :param name: the name of the object
    :raises OffloadedLedgerDamaged: the data is not such an index, or lacks the ledger
    """
    try:
        magic, length, data_length, _header = _START.unpack_from(data)
        if magic != _MAGIC_OF_SEVERAL:
            raise OffloadedLedgerDamaged(
                name, 0, f"an index of several ledgers, {_MAGIC_OF_SEVERAL:#010x}", f"{magic:#010x}"
            )
        if length != len(data):
            raise OffloadedLedgerDamaged(name, 4, f"the length of the index, {len(data)}", str(length))
        ledgers: dict[int, tuple[bytes, list[Block]]] = {}
        at = _START.size
        while at < length:
            each, count, size = _SEVERAL.unpack_from(data, at)
            at += _SEVERAL.size
            ledgers[each] = data[at : at + size], _blocks(data, at + size, count)
            at += size + count * _BLOCK.size
        if ledger_id not in ledgers:
            raise OffloadedLedgerDamaged(name, _START.size, f"ledger {ledger_id}", f"ledgers {list(ledgers)}")
        metadata, blocks = ledgers[ledger_id]
        positions = sorted(block.position for _metadata, found in ledgers.values() for block in found)
        following = dict(zip(positions, [*positions[1:], data_length], strict=True))
        index = Index(_closed(metadata), data_length, blocks, [following[block.position] for block in blocks])
    except struct.error as error:
        raise OffloadedLedgerDamaged(
            name, len(data), "the rest of the index", f"its end ({error})"
        ) from error
    except (ValueError, IndexError) as error:
        raise OffloadedLedgerDamaged(name, _START.size, "the metadata of a ledger", str(error)) from error
    _check_blocks(name, index)
    return index


def _closed(data: bytes) -> LedgerRecord:
    """Returns the metadata of a ledger from a ``LedgerInfo``.

    :raises ValueError: the data is not a ``LedgerInfo``, or the ledger has no entries
    :raises IndexError: the data is truncated
    """
    numbers: dict[int, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == _BYTES:
            at += value
        elif tag & 7 == 0:
            numbers[tag >> 3] = value
        else:
            raise ValueError(f"not a valid LedgerInfo: field {tag >> 3} has type {tag & 7}")
    if numbers.get(_ENTRIES, 0) < 1:
        raise ValueError("a LedgerInfo without entries")
    return ledger_metadata.without_bookies(
        numbers[_ENTRIES] - 1, numbers.get(_SIZE, 0), numbers.get(_CLOSED_MS, 0)
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a protobuf varint, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _blocks(data: bytes, at: int, count: int) -> list[Block]:
    if count * _BLOCK.size > len(data) - at:
        raise struct.error(f"the index ends before the last of its {count} blocks, which begin at byte {at}")
    return [Block(*_BLOCK.unpack_from(data, at + number * _BLOCK.size)) for number in range(count)]


def _check_blocks(name: str, index: Index) -> None:
    blocks = index.blocks
    ordered = all(
        one.first_entry_id < other.first_entry_id and one.position < other.position
        for one, other in pairwise(blocks)
    )
    inside = blocks and blocks[0].position >= 0 and blocks[-1].position < index.data_length
    if not (ordered and inside and blocks[-1].first_entry_id <= index.record.last_entry_id):
        raise OffloadedLedgerDamaged(
            name,
            _START.size,
            f"ascending blocks within {index.data_length} bytes and {index.record.last_entry_id + 1} entries",
            str([tuple(block) for block in blocks[:5]]),
        )
