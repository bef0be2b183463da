"""Entries of a ledger that are being added to bookies, as add requests."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from magnetar.io.interfaces import Buffer, joined
from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.frames import Flag, add_prefix
from magnetar.ledger.bookkeeper.hot_adds import Stripe, add_frames
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.wire import Wire
from magnetar.ledger.interface import EntryTooLarge

Piece = bytes | memoryview

_LARGEST_ID = (1 << 63) - 1

_JOINED_BYTES = 128 << 10
"""Runs up to this size are joined once for all bookies; larger ones are sent in pieces."""


class AddRun:
    """Consecutive entries; each request has two pieces: the bytes before the payload, and the payload.

    The run grows until it is sent to the first bookie.
    """

    __slots__ = ("_size", "_whole", "before", "first", "last", "pieces")

    def __init__(self, first: int, before: int) -> None:
        """:param before: bytes of all payloads before the first"""
        self.first = first
        self.last = first - 1
        self.before = before
        self.pieces: list[Piece] = []
        self._size = 0
        self._whole: Sequence[Buffer] = ()

    def part(self, stripe: Stripe, first: int) -> tuple[Sequence[Buffer], int, int]:
        """Returns the entries of a stripe from ``first`` on: their requests, the last entry, and their bytes.

        0 bytes mean that there are none.
        """
        if first <= self.first and stripe.write == stripe.ensemble:
            if not self._whole:
                self._whole, self._size = _joined(self.pieces)
            return self._whole, self.last, self._size
        chosen: list[Piece] = []
        last = -1
        for entry_id in range(max(first, self.first), self.last + 1):
            if stripe.takes(entry_id):
                at = 2 * (entry_id - self.first)
                chosen += self.pieces[at : at + 2]
                last = entry_id
        pieces, size = _joined(chosen)
        return pieces, last, size

    def payload_bytes(self, first: int) -> int:
        """Returns the bytes of the payloads from ``first`` on."""
        return sum(map(len, self.pieces[2 * max(first - self.first, 0) + 1 :: 2]))


def _joined(pieces: list[Piece]) -> tuple[Sequence[Buffer], int]:
    """Returns the same bytes, as one piece if that is cheap, and their number."""
    size = sum(map(len, pieces))
    return (joined(pieces, size) if size <= _JOINED_BYTES else pieces), size


class AddEncoder:
    """Encodes the requests of one writer; ``length`` is the sum of all payloads so far, in bytes.

    :param max_frame_bytes: the largest request, its length field included
    """

    def __init__(
        self, ledger_id: int, record: LedgerRecord, flags: Flag, wire: Wire, max_frame_bytes: int
    ) -> None:
        self.length = 0
        self._wire = wire
        self._ledger_id = ledger_id
        self._digest = Digest(record.digest, record.password)
        self._key = master_key(record.password)
        self._flags = flags
        self._prefix = add_prefix(self._key, flags)
        head = wire.add_head(_LARGEST_ID, _LARGEST_ID, self._key, max_frame_bytes, flags)
        self._most = max_frame_bytes - len(head) - self._digest.start
        self._in_runs = not wire.numbered and self._digest.kind is DigestType.CRC32C

    def add(
        self,
        run: AddRun,
        confirmed: int,
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        first: int,
        count: int,
    ) -> None:
        """Appends entries ``buffer[starts[i]:ends[i]]``, i in [first, first + count), to a run.

        :raises EntryTooLarge: an entry is larger than bookies accept
        """
        if count > 0 and ends[first + count - 1] - starts[first] > self._most:
            self._check(starts, ends, first, count)
        entry_id = run.last + 1
        if self._in_runs:
            self.length = add_frames(
                self._prefix,
                self._ledger_id,
                entry_id,
                confirmed,
                self.length,
                buffer,
                starts,
                ends,
                first,
                count,
                run.pieces,
            )
            run.last += count
            return
        for index in range(first, first + count):
            payload = buffer[starts[index] : ends[index]]
            self.length += len(payload)
            number = entry_id + index - first
            head = self._digest.head(self._ledger_id, number, confirmed, self.length, payload)
            size = len(head) + len(payload)
            before = self._wire.add_head(self._ledger_id, number, self._key, size, self._flags)
            run.pieces += (before + head, payload)
        run.last += count

    def _check(self, starts: array[int], ends: array[int], first: int, count: int) -> None:
        for index in range(first, first + count):
            size = ends[index] - starts[index]
            if size > self._most:
                raise EntryTooLarge(f"the entry has {size} bytes; bookies accept at most {self._most}", index)
