"""The data object of an offloaded ledger: blocks with a header and whole entries, filled up with padding.

    0 magic FBDBABCB (4) | 4 length of the header (8) | 12 length of the block (8)
    20 first entry id (8) | zeros to 128
    then entries: length (4) | entry id (8) | bytes
    then FE DC DE AD, again and again, to the length of the block

In objects of several ledgers, the magic of a block is 26A66D32, and the ledger id (8) is at 28.

Numbers are big-endian. One block is one part of a multipart upload. All blocks but the last have at least the
configured length, and the last has no padding; readers accept any lengths.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.io.crc32c import crc32c
from magnetar.ledger.interface import EntryRun
from magnetar.offload.cache import Piece
from magnetar.offload.interface import OffloadedLedgerDamaged

_HEADER = struct.Struct(">IQQQ")
_ENTRY = struct.Struct(">Iq")
_CHECKSUM = struct.Struct(">HI")
_BROKER_METADATA = struct.Struct(">HI")
_LEDGER_ID = struct.Struct(">q")
_MAGIC, _MAGIC_OF_SEVERAL = 0xFBDBABCB, 0x26A66D32
_PADDING = bytes.fromhex("FEDCDEAD")
_PADDING_LENGTH = int.from_bytes(_PADDING, "big")
_CHECKSUM_MAGIC, _BROKER_METADATA_MAGIC = 0x0E01, 0x0E02
HEADER_BYTES = 128
ENTRY_HEADER_BYTES = _ENTRY.size


def object_name(uuid: object, ledger_id: int) -> str:
    return f"{uuid}-ledger-{ledger_id}"


_OBJECT_NAME = re.compile(r"([^/]+?)-ledger-([0-9]{1,18})(?:-index)?")


def parsed_object_name(name: str) -> tuple[str, int] | None:
    """Returns the uuid and the ledger id in the name of an object; None if it is not the name of a ledger's
    object."""
    found = _OBJECT_NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


class BlockBuilder:
    """Collects the entries of one block."""

    def __init__(self, block_bytes: int, first_entry_id: int) -> None:
        """:param block_bytes: the length of a full block in bytes"""
        self.first_entry_id = first_entry_id
        self.entries = 0
        self.entry_bytes = 0
        self._block_bytes = block_bytes
        self._parts: list[bytes | memoryview] = []
        self._size = HEADER_BYTES

    def add(self, entry: bytes | memoryview) -> bool:
        """Adds the next entry; returns False, without adding the entry, if the block has no room for it.

        A block accepts its first entry regardless of the entry's length, and becomes longer if necessary.
        """
        size = self._size + ENTRY_HEADER_BYTES + len(entry)
        if size > self._block_bytes and self.entries:
            return False
        self._parts += (_ENTRY.pack(len(entry), self.first_entry_id + self.entries), entry)
        self._size = size
        self.entries += 1
        self.entry_bytes += len(entry)
        return True

    def built(self, *, last: bool) -> bytes:
        """Returns the block, with padding unless it is the ``last`` one."""
        length = self._size if last else max(self._size, self._block_bytes)
        header = _HEADER.pack(_MAGIC, HEADER_BYTES, length, self.first_entry_id).ljust(HEADER_BYTES, b"\0")
        missing = length - self._size
        padding = (_PADDING * (missing // len(_PADDING) + 1))[:missing]
        return b"".join((header, *self._parts, padding))


class BlockHeader(NamedTuple):
    header_length: int
    block_length: int
    first_entry_id: int


def read_header(
    name: str, position: int, data: bytes, first_entry_id: int, ledger_id: int | None = None
) -> BlockHeader:
    """Returns the header at the start of ``data``.

    :param name: the name of the object
    :param position: the offset of the header in the object
    :param first_entry_id: the block's first entry according to the index
    :param ledger_id: in an object of several ledgers, the ledger of the block; None: an object of one ledger
    :raises OffloadedLedgerDamaged: ``data`` does not begin with a header, or begins with the header of
        another block
    """
    least = _HEADER.size if ledger_id is None else _HEADER.size + _LEDGER_ID.size
    if len(data) < least:
        raise OffloadedLedgerDamaged(name, position, "the header of a block", f"{len(data)} bytes")
    magic, header_length, block_length, first = _HEADER.unpack_from(data)
    expected = _MAGIC if ledger_id is None else _MAGIC_OF_SEVERAL
    if magic != expected:
        raise OffloadedLedgerDamaged(
            name, position, f"the header of a block, {expected:#010x}", f"{magic:#010x}"
        )
    if ledger_id is not None:
        (found,) = _LEDGER_ID.unpack_from(data, _HEADER.size)
        if found != ledger_id:
            raise OffloadedLedgerDamaged(
                name, position + _HEADER.size, f"a block of ledger {ledger_id}", f"a block of ledger {found}"
            )
    if not least <= header_length < block_length:
        raise OffloadedLedgerDamaged(
            name,
            position + 4,
            f"a header of at least {least} bytes in a longer block",
            f"a header of {header_length} bytes in a block of {block_length}",
        )
    if first != first_entry_id:
        raise OffloadedLedgerDamaged(name, position + 20, f"first entry {first_entry_id}", f"entry {first}")
    return BlockHeader(header_length, block_length, first)


def read_entries(
    name: str, ledger_id: int, position: int, data: bytes, end: int, next_entry_id: int, piece_bytes: int
) -> Sequence[tuple[int, Piece]]:
    """Returns pieces of about ``piece_bytes`` with the entries that lie completely in ``data``, each with its
    offset in the object.

    :param position: the offset of ``data`` in the object, where an entry or padding begins
    :param end: the offset of the end of the block in the object
    :param next_entry_id: the id of the first entry in ``data``
    :returns: at least one piece. In a piece without entries, ``next_length`` is the length of the entry that
        is incomplete in ``data``, or 0 at the end of the block's entries
    :raises OffloadedLedgerDamaged: ``data`` has other entries, or an entry does not match its checksum
    """
    pieces: list[tuple[int, Piece]] = []
    view = memoryview(data)
    start = at = 0
    first = next_entry_id
    starts, ends = array("q"), array("q")
    following = 0

    def cut(next_length: int) -> None:
        nonlocal start, first, starts, ends
        run = EntryRun(ledger_id, first, len(starts), data[start:at], starts, ends)
        pieces.append((position + start, Piece(run, position + at, next_length)))
        start, first = at, next_entry_id
        starts, ends = array("q"), array("q")

    while at + ENTRY_HEADER_BYTES <= len(data):
        length, entry_id = _ENTRY.unpack_from(data, at)
        if length == _PADDING_LENGTH:
            break
        entry = at + ENTRY_HEADER_BYTES
        if entry_id != next_entry_id or position + entry + length > end:
            raise OffloadedLedgerDamaged(
                name,
                position + at,
                f"entry {next_entry_id} within {end - position - entry} bytes",
                f"entry {entry_id} of {length} bytes",
            )
        if entry + length > len(data):
            following = length
            break
        if starts and entry + length - start > piece_bytes:
            cut(length)
        if not is_sound(view, entry, entry + length):
            verify(name, position + entry, entry_id, view[entry : entry + length])
        starts.append(entry - start)
        ends.append(entry + length - start)
        at = entry + length
        next_entry_id += 1
    if starts:
        cut(following)
    return pieces or [
        (position, Piece(EntryRun(ledger_id, first, 0, b"", starts, ends), position, following))
    ]


def is_sound(data: memoryview, start: int, end: int) -> bool:
    """Whether an entry begins with a valid checksum, as almost all entries do. If the result is False, the
    caller calls :func:`verify`, which also accepts entries without a checksum.

    :param start: the offset of the entry in ``data``
    :param end: the offset of the end of the entry in ``data``
    """
    if end - start < _CHECKSUM.size:
        return False
    magic, expected = _CHECKSUM.unpack_from(data, start)
    return bool(magic == _CHECKSUM_MAGIC and crc32c(data[start + _CHECKSUM.size : end]) == expected)


def verify(name: str, position: int, entry_id: int, entry: memoryview) -> None:
    """Verifies the checksum that Pulsar's clients put into an entry; an entry without a checksum is accepted.

    :param position: the offset of the entry in the object or file

    :raises OffloadedLedgerDamaged: the checksum is wrong
    """
    at = 0
    if len(entry) >= _BROKER_METADATA.size:
        magic, length = _BROKER_METADATA.unpack_from(entry)
        if magic == _BROKER_METADATA_MAGIC:
            at = _BROKER_METADATA.size + length
    if len(entry) < at + _CHECKSUM.size:
        return
    magic, expected = _CHECKSUM.unpack_from(entry, at)
    if magic != _CHECKSUM_MAGIC:
        return
    found = crc32c(entry[at + _CHECKSUM.size :])
    if found != expected:
        raise OffloadedLedgerDamaged(
            name, position + at, f"entry {entry_id} with checksum {expected:#010x}", f"{found:#010x}"
        )
