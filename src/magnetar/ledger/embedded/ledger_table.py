"""The state of all ledgers of the store, open or closed: one small row each."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from magnetar.invariants import BrokenInvariant, Fail, must, violated
from magnetar.ledger.interface import LedgerMetadata, LedgerState

_CREATED = struct.Struct("<qI")
_KEY = struct.Struct("<H")
_VALUE = struct.Struct("<I")
_CLOSED = struct.Struct("<qq")

PART_FIELDS = 4
"""The number of array elements of a part (a ledger's entries in one segment): segment id, first entry, last
entry, stored bytes."""


class LedgerRow:
    """The durable state of a ledger, which takes a few hundred bytes."""

    __slots__ = (
        "closed",
        "created",
        "forgotten",
        "last_entry_id",
        "ledger_id",
        "length",
        "parts",
        "recovering",
    )

    def __init__(self, ledger_id: int, created: bytes) -> None:
        self.ledger_id = ledger_id
        self.created = created
        """The body of the run that created the ledger: creation time and custom metadata."""
        self.closed = False
        self.recovering = False
        self.last_entry_id = -1
        self.length = 0
        """The total size of the entries, in bytes."""
        self.forgotten = 0
        """The first entry id that may still be read; the space of earlier entries may be reclaimed."""
        self.parts: array[int] = array("q")
        """The parts, each with :data:`PART_FIELDS` numbers, in the order of the entries."""

    def metadata(self) -> LedgerMetadata:
        if self.closed:
            state = LedgerState.CLOSED
        else:
            state = LedgerState.IN_RECOVERY if self.recovering else LedgerState.OPEN
        ctime_ms, custom = decode_created(self.created)
        return LedgerMetadata(self.ledger_id, state, self.last_entry_id, self.length, ctime_ms, custom)

    def add_run(self, segment_id: int, first: int, count: int, stored: int, entry_bytes: int) -> None:
        """Adds a run of ``stored`` bytes that is durable in a segment. A replay may add the same run
        again."""
        last = first + count - 1
        parts = self.parts
        if len(parts) and parts[-4] == segment_id and parts[-2] + 1 == first:
            parts[-2] = last
            parts[-1] += stored
        else:
            parts.extend((segment_id, first, last, stored))
        if last > self.last_entry_id:
            self.last_entry_id = last
            self.length += entry_bytes

    def part_of(self, entry_id: int) -> tuple[int, int, int] | None:
        """Returns segment id, first and last entry of the part that contains an entry; None: no part contains
        the entry.
        """
        parts = self.parts
        low, high = 0, len(parts) // PART_FIELDS
        while low < high:
            middle = (low + high) // 2
            if parts[middle * PART_FIELDS + 2] < entry_id:
                low = middle + 1
            else:
                high = middle
        at = low * PART_FIELDS
        if at < len(parts) and parts[at + 1] <= entry_id:
            return parts[at], parts[at + 1], parts[at + 2]
        return None

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: an entry that is still needed is in no segment, or in two
        """
        name, parts, last = f"ledger {self.ledger_id}", self.parts, self.last_entry_id
        must(last >= -1 and self.length >= 0, name, "ends at", last, "and has", self.length, "bytes")
        must(len(parts) % PART_FIELDS == 0, name, "has an incomplete part")
        expected = parts[1] if parts else last + 1
        must(expected <= self.forgotten or expected == 0, name, "lacks the entries before", expected)
        for segment_id, first, end, stored in self.each_part():
            must(first == expected, name, "goes on at", first, "and not at", expected, "in", segment_id)
            must(end >= first and stored > 0, name, "has a part", first, "to", end, "of", stored, "bytes")
            expected = end + 1
        must(expected == last + 1, name, "ends at", last, "and its parts at", expected - 1)

    def each_part(self) -> Iterator[tuple[int, int, int, int]]:
        parts = self.parts
        for at in range(0, len(parts), PART_FIELDS):
            yield parts[at], parts[at + 1], parts[at + 2], parts[at + 3]


class _Seen(NamedTuple):
    """The state of a ledger at the last check of invariants."""

    row: LedgerRow
    closed: bool
    last: int


class LedgerTable:
    """All ledgers, and the live bytes of each segment."""

    def __init__(self) -> None:
        self.rows: dict[int, LedgerRow] = {}
        self.next_ledger_id = 1
        self.durable_next_ledger_id = 1
        """A number above the ids of all ledgers that were ever in the table."""
        self.live_bytes: dict[int, int] = {}
        """The bytes of bodies that may still be read, by segment id."""
        self.emptied: set[int] = set()
        """Segments without live bytes; the owner of the table removes them and clears the set."""
        self.fail: Fail | None = None
        """Stops the process after an internal error; None: the store is not open yet."""
        self._looked: dict[int, _Seen] = {}
        """The state of ledgers at the last check."""

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the bytes of ledgers and segments do not match, or a ledger lost entries
        """
        live: dict[int, int] = {}
        seen: dict[int, _Seen] = {}
        for ledger_id, row in self.rows.items():
            must(row.ledger_id == ledger_id < self.next_ledger_id, "ledger", ledger_id, "has another's id")
            row.check()
            now = seen[ledger_id] = _Seen(row, row.closed, row.last_entry_id)
            before = self._looked.get(ledger_id, now)
            must(before.row is row, "ledger", ledger_id, "was deleted and exists again")
            must(
                before.last <= now.last,
                "ledger",
                ledger_id,
                "has its last entry moved from",
                before.last,
                "to",
                now.last,
            )
            same = not before.closed or (now.closed and before.last == now.last)
            must(same, "ledger", ledger_id, "was closed at", before.last, "and is", now)
            for segment_id, _, _, stored in row.each_part():
                live[segment_id] = live.get(segment_id, 0) + stored
        for ledger_id, before in self._looked.items():
            # Ids are never assigned again: a deleted ledger stays deleted.
            seen.setdefault(ledger_id, before)
        self._looked = seen
        must(live == self.live_bytes, "segments hold", self.live_bytes, "and ledgers have", live)

    def create(self, ledger_id: int, created: bytes) -> LedgerRow:
        """Adds a ledger. A ledger that exists already (in a replay) is not changed."""
        row = self.rows.get(ledger_id)
        if row is None:
            row = self.rows[ledger_id] = LedgerRow(ledger_id, created)
        self._known(ledger_id)
        return row

    def adopt(self, row: LedgerRow) -> None:
        """Adds a ledger from a checkpoint."""
        self.rows[row.ledger_id] = row
        self._known(row.ledger_id)
        for segment_id, _, _, stored in row.each_part():
            self.live_bytes[segment_id] = self.live_bytes.get(segment_id, 0) + stored

    def start_at(self, next_ledger_id: int) -> None:
        """Sets the next ledger id from a checkpoint."""
        self.next_ledger_id = self.durable_next_ledger_id = next_ledger_id

    def _known(self, ledger_id: int) -> None:
        self.durable_next_ledger_id = max(self.durable_next_ledger_id, ledger_id + 1)
        self.next_ledger_id = max(self.next_ledger_id, self.durable_next_ledger_id)

    def add_run(
        self, row: LedgerRow, segment_id: int, first: int, count: int, stored: int, entry_bytes: int
    ) -> None:
        row.add_run(segment_id, first, count, stored, entry_bytes)
        self.live_bytes[segment_id] = self.live_bytes.get(segment_id, 0) + stored

    def close(self, ledger_id: int, last_entry_id: int, length: int) -> None:
        row = self.rows.get(ledger_id)
        if row is not None:
            row.closed = True
            row.recovering = False
            row.last_entry_id = last_entry_id
            row.length = length

    def delete(self, ledger_id: int) -> None:
        row = self.rows.pop(ledger_id, None)
        if row is not None:
            self._drop_parts(row, len(row.parts))

    def forget(self, row: LedgerRow, entry_id: int, may_grow: Callable[[int], bool]) -> None:
        """Drops the parts of a ledger whose entries are all below ``entry_id``.

        :param may_grow: returns whether a segment has no index file; a part in such a segment may grow, and
            is kept
        """
        row.forgotten = max(row.forgotten, entry_id)
        gone = 0
        parts = row.parts
        while gone < len(parts) and parts[gone + 2] < row.forgotten and not may_grow(parts[gone]):
            gone += PART_FIELDS
        self._drop_parts(row, gone)

    def replace_parts(
        self, row: LedgerRow, sources: Container[int], new: Sequence[tuple[int, int, int, int]]
    ) -> None:
        """Replaces a ledger's parts in the segments ``sources`` with the rewritten parts ``new``.

        Entries that were forgotten in the meantime are left out.
        """
        kept = []
        for part in row.each_part():
            if part[0] in sources:
                self._drop(part[0], part[3])
            else:
                kept.append(part)
        for part in new:
            if part[2] >= row.forgotten:
                kept.append(part)
                self.live_bytes[part[0]] = self.live_bytes.get(part[0], 0) + part[3]
        kept.sort(key=lambda part: part[1])
        row.parts = array("q", [number for part in kept for number in part])
        if self.fail is not None:
            try:
                row.check()
            except BrokenInvariant as error:
                # The sources still have the entries: the next start reads them.
                violated(self.fail, f"parts of ledger {row.ledger_id}", "each entry once", error.what)

    def _drop_parts(self, row: LedgerRow, end: int) -> None:
        for at in range(0, end, PART_FIELDS):
            self._drop(row.parts[at], row.parts[at + 3])
        del row.parts[:end]

    def _drop(self, segment_id: int, stored: int) -> None:
        left = self.live_bytes[segment_id] - stored
        if left > 0:
            self.live_bytes[segment_id] = left
        else:
            if left < 0:
                violated(self.fail, f"live bytes of segment {segment_id}", "at least 0", left)
            del self.live_bytes[segment_id]
            self.emptied.add(segment_id)


def encode_created(ctime_ms: int, custom: Mapping[str, bytes]) -> bytes:
    """Returns the body of a run that creates a ledger."""
    pieces = [_CREATED.pack(ctime_ms, len(custom))]
    for name, value in custom.items():
        key = name.encode()
        pieces += (_KEY.pack(len(key)), key, _VALUE.pack(len(value)), value)
    return b"".join(pieces)


def decode_created(body: bytes) -> tuple[int, dict[str, bytes]]:
    """Returns the creation time in ms since 1970, and the custom metadata."""
    ctime_ms, count = _CREATED.unpack_from(body)
    at = _CREATED.size
    custom: dict[str, bytes] = {}
    for _ in range(count):
        (length,) = _KEY.unpack_from(body, at)
        at += _KEY.size
        name = body[at : at + length].decode()
        at += length
        (length,) = _VALUE.unpack_from(body, at)
        at += _VALUE.size
        custom[name] = body[at : at + length]
        at += length
    return ctime_ms, custom


def encode_closed(last_entry_id: int, length: int) -> bytes:
    """Returns the body of a run that closes a ledger."""
    return _CLOSED.pack(last_entry_id, length)


def decode_closed(body: bytes) -> tuple[int, int]:
    """Returns the last entry id, and the length of the ledger in bytes."""
    last_entry_id, length = _CLOSED.unpack(body)
    return last_entry_id, length
