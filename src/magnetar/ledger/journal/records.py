"""The entries of a metadata journal (``docs/metadata-journal.md``), encoded and decoded."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from magnetar.ledger.interface import DataDamaged
from magnetar.metadata.interface import Node
from magnetar.metadata.progress import Edit, Numbered, Tally

COMPONENT = b"metadata-journal"
"""The ``component`` in the custom metadata of a journal's ledgers."""

CONTINUES = "magnetar/continues"
"""The key in a ledger's custom metadata for the id of the previous ledger of the journal. A journal's first
ledger does not have this key.
"""

_HEADER = struct.Struct("<4sBBH16sqqQ")
"""Magic, format version, kind, whether the snapshot is complete, metadata id, generation, tally."""
_MAGIC = b"MGMJ"
_VERSION = 1
_LENGTH = struct.Struct("<I")
_NUMBERS = struct.Struct("<qqq")
_NUMBER = struct.Struct("<q")
_ENTRY_BYTES = 256 << 10
"""The approximate size at which an entry ends."""


class RecordKind(IntEnum):
    PART = 1
    """All nodes in a range of paths; they replace earlier nodes in that range."""
    EDITS = 2
    """The changes of one transaction; of a transaction in several entries, the changes in the last entry."""
    MORE_EDITS = 3
    """Changes of a transaction that continues in the next entry."""


class _Op(IntEnum):
    NODE = 0
    DELETED = 1
    NUMBERED = 2


class Header(NamedTuple):
    kind: RecordKind
    complete: bool
    """Whether the ledgers up to this entry contain all metadata."""
    metadata_id: bytes
    generation: int
    tally: Tally
    """The number and the checksum of all persistent nodes at this generation."""


class Record(NamedTuple):
    header: Header
    after: str
    """The range of a part begins after this path."""
    upto: str
    """The last path of a part's range; empty for a range without an end."""
    edits: list[Edit]


def encode_part(header: Header, after: str, upto: str, edits: Iterable[Edit]) -> bytes:
    pieces = [_encode_header(header._replace(kind=RecordKind.PART)), _text(after), _text(upto)]
    pieces += map(_encode_edit, edits)
    return b"".join(pieces)


def encode_edits(header: Header, edits: Iterable[Edit]) -> list[bytes]:
    """Encodes one transaction: entries of :attr:`RecordKind.MORE_EDITS`, then one of
    :attr:`RecordKind.EDITS`."""
    more = _encode_header(header._replace(kind=RecordKind.MORE_EDITS))
    entries: list[bytes] = []
    pieces: list[bytes] = []
    size = 0
    for edit in edits:
        piece = _encode_edit(edit)
        if pieces and size + len(piece) > _ENTRY_BYTES:
            entries.append(b"".join((more, *pieces)))
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    entries.append(b"".join((_encode_header(header._replace(kind=RecordKind.EDITS)), *pieces)))
    return entries


def _encode_header(header: Header) -> bytes:
    return _HEADER.pack(
        _MAGIC, _VERSION, header.kind, header.complete, header.metadata_id, header.generation, *header.tally
    )


def _encode_edit(edit: Edit) -> bytes:
    if isinstance(edit, Numbered):
        return b"".join((bytes((_Op.NUMBERED,)), _text(edit.parent), _NUMBER.pack(edit.following)))
    if isinstance(edit, str):
        return bytes((_Op.DELETED,)) + _text(edit)
    numbers = _NUMBERS.pack(edit.version, edit.created_ms, edit.modified_ms)
    value = (_LENGTH.pack(len(edit.value)), edit.value)
    return b"".join((bytes((_Op.NODE,)), _text(edit.path), numbers, *value))


def _text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def decode_header(entry: bytes, where: str) -> Header:
    """Returns the header of an entry.

    :raises DataDamaged: the entry does not belong to a journal, or a newer release wrote it
    """
    if len(entry) < _HEADER.size or entry[:4] != _MAGIC:
        raise DataDamaged(f"{where} is not an entry of a metadata journal")
    _, version, kind, complete, metadata_id, generation, nodes, checksum = _HEADER.unpack_from(entry)
    if version != _VERSION or kind not in RecordKind.__members__.values():
        raise DataDamaged(
            f"{where} has version {version} and kind {kind}; this release knows version {_VERSION}"
        )
    return Header(RecordKind(kind), bool(complete), metadata_id, generation, Tally(nodes, checksum))


def decode_record(entry: bytes, where: str) -> Record:
    """Returns the record in an entry.

    :raises DataDamaged: the entry does not belong to a journal
    """
    header = decode_header(entry, where)
    reader = _Reader(entry, _HEADER.size)
    try:
        part = header.kind is RecordKind.PART
        after = reader.text() if part else ""
        upto = reader.text() if part else ""
        edits: list[Edit] = []
        while reader.left:
            edits.append(reader.edit())
    except (struct.error, ValueError, IndexError) as error:
        raise DataDamaged(f"{where} is not an entry of a metadata journal: {error}") from error
    return Record(header, after, upto, edits)


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def _bytes(self) -> bytes:
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        begin = self._at + _LENGTH.size
        if begin + length > len(self._data):
            raise ValueError(f"a field of {length} bytes extends beyond the end of the entry")
        self._at = begin + length
        return self._data[begin : self._at]

    def text(self) -> str:
        return self._bytes().decode()

    def edit(self) -> Edit:
        op = _Op(self._data[self._at])
        self._at += 1
        path = self.text()
        if op is _Op.DELETED:
            return path
        if op is _Op.NUMBERED:
            (following,) = _NUMBER.unpack_from(self._data, self._at)
            self._at += _NUMBER.size
            return Numbered(path, following)
        version, created_ms, modified_ms = _NUMBERS.unpack_from(self._data, self._at)
        self._at += _NUMBERS.size
        return Node(path, self._bytes(), version, created_ms, modified_ms, False)
