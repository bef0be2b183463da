"""The stored form of delayed entries: records in sorted runs, and the saved state that names the runs."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.position import Position

BLOCK_RECORDS = 512
_RECORD_SIZE = 24
# A record is one number, which takes little memory and sorts by time. From its highest bits down: delivery
# time in ms since 1970, the ledger id, the entry id, the hash of the key.
_HASH_BITS = 32
_ENTRY_BITS = 48
_LEDGER_BITS = 63
_LEDGER_SHIFT = _HASH_BITS + _ENTRY_BITS
_TIME_SHIFT = _LEDGER_SHIFT + _LEDGER_BITS
_HASH = (1 << _HASH_BITS) - 1
_ENTRY = (1 << _ENTRY_BITS) - 1
_LEDGER = (1 << _LEDGER_BITS) - 1
RECORD_BYTES = 56
"""The memory of one record in a list, in bytes."""
LATEST_MS = (1 << 48) - 1
"""The latest possible delivery time, in ms since 1970: in the year 10889."""
_FORMAT = 1
_PART = 256 * 1024
"""The maximum size of one entry, in bytes."""
_TO_TEXT = bytes.maketrans(b"\x00\x01", b"01")
_TO_MARKS = bytes.maketrans(b"01", b"\x00\x01")


class DamagedIndex(Exception):
    """The ledgers of an index do not contain a valid index."""


def encode_block(records: Sequence[int]) -> bytes:
    """Returns a block of records as one entry of the run's ledger."""
    return zlib.compress(b"".join(record.to_bytes(_RECORD_SIZE, "big") for record in records), 1)


def decode_block(entry: bytes) -> list[int]:
    """Returns the records of a block.

    :raises DamagedIndex: the entry is not a block
    """
    try:
        data = zlib.decompress(entry)
    except zlib.error as error:
        raise DamagedIndex(f"a block of the index is damaged: {error}") from error
    if not data or len(data) % _RECORD_SIZE:
        raise DamagedIndex(f"a block of the index has {len(data)} bytes, not a multiple of {_RECORD_SIZE}")
    parts = range(0, len(data), _RECORD_SIZE)
    return [int.from_bytes(data[at : at + _RECORD_SIZE], "big") for at in parts]


def blocks_of(records: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(records), BLOCK_RECORDS):
        yield records[first : first + BLOCK_RECORDS]


class Run:
    """A ledger of records in ascending order, in blocks of :data:`BLOCK_RECORDS`.

    :param fences: the time at which the first record of each block is due, in ms since 1970
    :param next_block: the index of the first block that is still needed
    """

    __slots__ = ("_read", "fences", "ledger_id", "next_block")

    def __init__(self, ledger_id: int, fences: Sequence[int], next_block: int = 0) -> None:
        self.ledger_id = ledger_id
        self.fences = fences
        self.next_block = next_block
        """The index of the first block that was not read into memory."""
        self._read: deque[int] = deque()
        """For each block that was read and may still have records waiting in memory, its last record."""

    @property
    def due(self) -> int | None:
        """The time at which the next block begins to be due, in ms since 1970; None if no block is left."""
        return self.fences[self.next_block] if self.next_block < len(self.fences) else None

    def was_read(self, records: Sequence[int]) -> None:
        """Reports that the records of the next block are in memory."""
        self.next_block += 1
        self._read.append(records[-1])

    def settle(self, first: int | None) -> None:
        """Forgets the blocks whose records have all been delivered.

        :param first: the first of all records in memory; None: no record is in memory
        """
        while self._read and (first is None or self._read[0] < first):
            self._read.popleft()

    @property
    def wanted_from(self) -> int:
        """The index of the first block that may have waiting records."""
        return self.next_block - len(self._read)

    @property
    def is_used_up(self) -> bool:
        return self.wanted_from >= len(self.fences)


def fences_of(blocks: Iterable[Sequence[int]]) -> list[int]:
    return [time_of(block[0]) for block in blocks]


def pack(deliver_at: int, ledger_id: int, entry_id: int, key_hash: int) -> int:
    """Returns a record of a delayed entry as one number.

    :param deliver_at: ms since 1970, at least 0
    :param key_hash: the hash of the entry's key, 31 bits
    """
    return (
        (min(deliver_at, LATEST_MS) << _LEDGER_BITS | ledger_id) << _ENTRY_BITS | entry_id
    ) << _HASH_BITS | key_hash


def time_of(record: int) -> int:
    return record >> _TIME_SHIFT


def position_of(record: int) -> Position:
    return record >> _LEDGER_SHIFT & _LEDGER, record >> _HASH_BITS & _ENTRY


def hash_of(record: int) -> int:
    return record & _HASH


def behind(deliver_at: int) -> int:
    """Returns a number above all records due at or before ``deliver_at``, and below all records due later."""
    return (deliver_at + 1) << _TIME_SHIFT


@dataclass(slots=True)
class SavedState:
    """The saved state of an index: its runs, and the topic's entries that wait in these runs.
    The state is stored in the first of the ledgers that the cursor's property lists.
    """

    covers: Position
    """The last position of the topic that had been read when the state was written; the runs have no later
    entries."""
    version: int
    """How often the cursor had been moved by other means than acknowledgements."""
    runs: list[Run]
    marks: dict[int, bytes]
    """For each ledger of the topic: its waiting entries, as :func:`pack_marks` returns them."""


def pack_marks(marks: bytes | bytearray) -> bytes:
    """Packs bytes that are 0 or 1 into bits."""
    if not marks:
        return b""
    bits = int(bytes(marks[::-1]).translate(_TO_TEXT), 2)
    return zlib.compress(bits.to_bytes((len(marks) + 7) // 8, "little"), 1)


def unpack_marks(packed: bytes) -> bytearray:
    """Returns the marks that :func:`pack_marks` packed.

    :raises DamagedIndex: the bytes were not packed by :func:`pack_marks`
    """
    try:
        bits = zlib.decompress(packed) if packed else b""
    except zlib.error as error:
        raise DamagedIndex(f"the marks of waiting entries in the index are damaged: {error}") from error
    text = format(int.from_bytes(bits, "little"), f"0{len(bits) * 8}b") if bits else ""
    return bytearray(text.encode()[::-1].translate(_TO_MARKS))


def encode_state(state: SavedState) -> list[bytes]:
    """Encodes a saved state as the entries of the ledger that keeps it."""
    fences = array("q")
    runs = []
    for run in state.runs:
        left = run.fences[run.wanted_from :]
        runs.append([run.ledger_id, run.wanted_from, len(left)])
        fences.extend(left)
    header = {
        "format": _FORMAT,
        "covers": state.covers,
        "version": state.version,
        "runs": runs,
        "marks": [[ledger_id, len(packed)] for ledger_id, packed in state.marks.items()],
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join((len(head).to_bytes(4, "big"), head, fences.tobytes(), *state.marks.values()))
    return [body[at : at + _PART] for at in range(0, len(body), _PART)]


def decode_state(entries: Sequence[bytes]) -> SavedState:
    """Returns the state that is saved in these entries.

    :raises DamagedIndex: the entries are not a saved state of the known format
    """
    body = b"".join(entries)
    try:
        at = 4 + int.from_bytes(body[:4], "big")
        header = json.loads(body[4:at])
        if header["format"] != _FORMAT:
            raise DamagedIndex(
                f"the index has format {header['format']}; this release reads format {_FORMAT}"
            )
        runs = []
        for ledger_id, skipped, count in header["runs"]:
            fences = array("q", bytes(8 * skipped))
            fences.frombytes(_piece(body, at, 8 * count))
            at += 8 * count
            runs.append(Run(ledger_id, fences, skipped))
        marks = {}
        for ledger_id, size in header["marks"]:
            marks[ledger_id] = _piece(body, at, size)
            at += size
        ledger_id, entry_id = header["covers"]
        return SavedState((ledger_id, entry_id), header["version"], runs, marks)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedIndex(f"the state of the index is damaged: {error}") from error


def _piece(body: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(body):
        raise DamagedIndex("the state of the index is truncated")
    return body[at : at + size]
