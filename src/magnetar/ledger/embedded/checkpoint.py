"""The checkpoint: the state of the store before a segment of the log, so that only later segments are
replayed."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from dataclasses import field

from magnetar.io.crc32c import crc32c
from magnetar.io.interfaces import Disk
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.identity import replace_file
from magnetar.ledger.embedded.ledger_table import PART_FIELDS, LedgerRow
from magnetar.ledger.interface import DataDamaged

CHECKPOINT_NAME = "checkpoint"
_MAGIC = b"MGCHECKP"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQ")
"""Magic, format version, checksum of the body, length of the body."""
_BODY = struct.Struct("<qQQQII")
"""Next ledger id, next segment id, id of the log's first segment, first sequence number of that segment,
number of segments, number of ledgers."""
_SEGMENT = struct.Struct("<QIIQQQQQ")
"""Segment id, kind, settled, size of the file, end of the last group, number of runs, bytes of all bodies,
bytes of the bodies of the ledger with the most bytes."""
_LEDGER = struct.Struct("<qIqqqII")
"""Ledger id, closed, last entry, length, first entry still needed, length of metadata, number of parts."""
_PART = struct.Struct("<qqqq")
_BLOCK_BYTES = 256 << 10
_SWAP = sys.byteorder != "little"


@dataclass
class SealedSegment:
    """A complete segment with an index file."""

    segment_id: int
    kind: int
    size: int
    end: int
    runs: int
    stored: int = 0
    """Bytes of the bodies of all runs of entries when the segment was sealed."""
    largest: int = 0
    """The bytes in ``stored`` of the ledger with the most bytes."""
    settled: bool = False
    """Whether the segment is sorted by ledger, or need not be sorted."""

    def fields(self) -> tuple[int, ...]:
        """Returns the fields in the order of the checkpoint."""
        return (
            self.segment_id,
            self.kind,
            self.settled,
            self.size,
            self.end,
            self.runs,
            self.stored,
            self.largest,
        )


@dataclass
class Checkpoint:
    next_ledger_id: int = 1
    next_segment_id: int = 1
    log_segment_id: int = 1
    """The segment where replay begins."""
    log_sequence: int = 1
    """The sequence number of the first group in the segment where replay begins."""
    segments: list[SealedSegment] = field(default_factory=list)
    ledgers: list[LedgerRow] = field(default_factory=list)


class CheckpointRows:
    """The rows of ledgers in a checkpoint, joined into blocks as they are added.

    A checkpoint of many ledgers is never joined into one piece, because that would block the loop too long.
    """

    def __init__(self, sealed: frozenset[int]) -> None:
        """:param sealed: ids of the segments in the checkpoint; parts in other segments are left out"""
        self.count = 0
        self._sealed = sealed
        self._rows: list[bytes] = []
        self._bytes = 0
        self._blocks: list[bytes] = []

    def add(self, row: LedgerRow) -> None:
        parts = self._parts_of(row)
        head = _LEDGER.pack(
            row.ledger_id,
            row.closed,
            row.last_entry_id,
            row.length,
            row.forgotten,
            len(row.created),
            len(parts) // _PART.size,
        )
        self.count += 1
        self._rows += (head, row.created, parts)
        self._bytes += len(head) + len(row.created) + len(parts)
        if self._bytes >= _BLOCK_BYTES:
            self._end_block()

    def blocks(self) -> list[bytes]:
        """Returns all added rows, in blocks."""
        self._end_block()
        return self._blocks

    def _end_block(self) -> None:
        self._blocks.append(b"".join(self._rows))
        self._rows = []
        self._bytes = 0

    def _parts_of(self, row: LedgerRow) -> bytes:
        parts = row.parts
        # Nearly all ledgers are in one segment or two.
        few = 0 < len(parts) <= 2 * PART_FIELDS and not _SWAP
        if few and parts[0] in self._sealed and parts[-PART_FIELDS] in self._sealed:
            return parts.tobytes()
        return b"".join(_PART.pack(*part) for part in row.each_part() if part[0] in self._sealed)


def encode_checkpoint(checkpoint: Checkpoint, rows: CheckpointRows) -> list[bytes]:
    """Returns the pieces of a checkpoint's file, with ``rows`` instead of the checkpoint's ledgers."""
    pieces = [
        _BODY.pack(
            checkpoint.next_ledger_id,
            checkpoint.next_segment_id,
            checkpoint.log_segment_id,
            checkpoint.log_sequence,
            len(checkpoint.segments),
            rows.count,
        )
    ]
    pieces += [_SEGMENT.pack(*segment.fields()) for segment in checkpoint.segments]
    pieces = [b"".join(pieces), *rows.blocks()]
    checksum = 0
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    length = sum(map(len, pieces))
    pieces.insert(0, _HEADER.pack(_MAGIC, _VERSION, checksum, length))
    return pieces if length > _BLOCK_BYTES else [b"".join(pieces)]


def decode_checkpoint(data: bytes, path: str) -> Checkpoint:
    """Returns the checkpoint in a file.

    :raises DataDamaged: the file is too short, or its header or checksum is wrong
    """
    if len(data) < _HEADER.size:
        raise DataDamaged(f"{path} is damaged: it is shorter than a checkpoint's header")
    magic, version, checksum, length = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or version != _VERSION or len(body) != length or crc32c(body) != checksum:
        raise DataDamaged(f"{path} is damaged: its header or checksum is wrong")
    next_ledger, next_segment, log_segment, sequence, segments, ledgers = _BODY.unpack_from(body)
    checkpoint = Checkpoint(next_ledger, next_segment, log_segment, sequence)
    at = _BODY.size
    for _ in range(segments):
        segment_id, kind, settled, size, end, runs, stored, largest = _SEGMENT.unpack_from(body, at)
        checkpoint.segments.append(
            SealedSegment(segment_id, kind, size, end, runs, stored, largest, bool(settled))
        )
        at += _SEGMENT.size
    for _ in range(ledgers):
        row, at = _decode_row(body, at)
        checkpoint.ledgers.append(row)
    return checkpoint


def _decode_row(body: memoryview, at: int) -> tuple[LedgerRow, int]:
    ledger_id, closed, last, length, forgotten, created_bytes, parts = _LEDGER.unpack_from(body, at)
    at += _LEDGER.size
    row = LedgerRow(ledger_id, bytes(body[at : at + created_bytes]))
    at += created_bytes
    row.closed, row.last_entry_id, row.length, row.forgotten = bool(closed), last, length, forgotten
    end = at + parts * _PART.size
    row.parts.frombytes(body[at:end])
    if _SWAP:
        row.parts.byteswap()
    return row, end


def write_checkpoint(disk: Disk, directory: str, pieces: Iterable[bytes]) -> None:
    """Replaces the last checkpoint; durable when this returns."""
    replace_file(disk, directory, CHECKPOINT_NAME, *pieces)
