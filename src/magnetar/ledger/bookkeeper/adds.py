"""Entries that a ledger's writer adds at one bookie, and the answers of the bookie."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Buffer, joined
from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.frames import Flag, add_prefix
from magnetar.ledger.bookkeeper.hot_adds import Stripe, add_frames
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.wire import Wire
from magnetar.ledger.interface import EntryTooLarge

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.writer import BookKeeperWriter


Piece = bytes | memoryview
_LARGEST_ID = (1 << 63) - 1
_JOINED_BYTES = 128 << 10
"""Runs of up to this many bytes are joined into one buffer for all bookies; others are sent in pieces."""


class AddStream:
    """The adds of a stripe's entries at its bookie, in ascending order. The first entry that the bookie does
    not store ends the stream.

    An ended stream stays registered at its bookie until all of its answers have arrived. Otherwise they would
    be attributed to another stream that adds the same entries to this bookie.
    """

    __slots__ = ("_sent", "_sent_to", "_tells", "ended", "ledger_id", "listener", "stripe", "waits")

    def __init__(self, ledger_id: int, stripe: Stripe, listener: BookKeeperWriter) -> None:
        self.ledger_id = ledger_id
        self.stripe = stripe
        self.listener = listener
        self.ended = False
        """Whether the stream has ended, so that it adds no more entries."""
        self.waits = False
        """Whether the stream is queued for sending."""
        self._tells = True
        self._sent: deque[tuple[int, float, int]] = deque()
        """For each unanswered run: last entry id, time of sending (monotonic clock), and size in bytes."""
        self._sent_to = -1

    @property
    def pending(self) -> bool:
        """Whether the bookie has not answered all requests of the stream yet."""
        return bool(self._sent)

    @property
    def oldest(self) -> float:
        """The time when the oldest unanswered run was sent, by the monotonic clock, in seconds."""
        return self._sent[0][1]

    def leave(self) -> None:
        """Ends the stream without further callbacks; its owner sends the entries to another bookie."""
        self.ended = True
        self._tells = False

    def sent(self, last_entry_id: int, at: float, size: int) -> None:
        self._sent.append((last_entry_id, at, size))
        self._sent_to = last_entry_id

    def expects(self, entry_id: int) -> bool:
        """Whether the bookie may still answer for the entry, which was sent and has no answer yet."""
        return self.stripe.next <= entry_id <= self._sent_to

    def done(self) -> int:
        """Removes the runs that were completely answered since the last call; returns their size in bytes."""
        size = 0
        sent, after = self._sent, self.stripe.next
        while sent and sent[0][0] < after:
            size += sent.popleft()[2]
        return size

    def give_up(self) -> int:
        """Ends the stream because no answers will come, or none are needed; returns the size in bytes of
        the unanswered runs."""
        self.ended = True
        size = sum(each[2] for each in self._sent)
        self._sent.clear()
        return size

    def tell_added(self) -> None:
        if not self.ended:
            self.listener.on_added(self)

    def tell_not_added(self, status: int) -> None:
        """Ends the stream after an error status of the bookie, and informs the owner unless :meth:`leave` was
        called.
        """
        self.ended = True
        if self._tells:
            self._tells = False
            self.listener.on_not_added(self, status)


class AddRun:
    """Requests to add consecutive entries, each in two pieces: the bytes before the payload, and the payload.

    The run grows until it is sent to the first bookie.
    """

    __slots__ = ("_size", "_whole", "before", "first", "last", "pieces")

    def __init__(self, first: int, before: int) -> None:
        """:param before: the total bytes of the ledger's payloads before the first entry of the run"""
        self.first = first
        self.last = first - 1
        self.before = before
        self.pieces: list[Piece] = []
        self._size = 0
        self._whole: Sequence[Buffer] = ()

    def part(self, stripe: Stripe, first: int) -> tuple[Sequence[Buffer], int, int]:
        """Returns (requests, last entry id, number of bytes) for those entries of a stripe that are in the
        run, from ``first`` on. If there are no such entries, the number of bytes is 0."""
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
        """Returns the number of payload bytes of the run's entries from ``first`` on."""
        return sum(map(len, self.pieces[2 * max(first - self.first, 0) + 1 :: 2]))


def _joined(pieces: list[Piece]) -> tuple[Sequence[Buffer], int]:
    """Joins pieces into one if that is cheap; returns the pieces to send, and their total bytes."""
    size = sum(map(len, pieces))
    return (joined(pieces, size) if size <= _JOINED_BYTES else pieces), size


class AddEncoder:
    """Encodes the requests of one writer; ``length`` is the sum of all payloads so far, in bytes.

    :param max_frame_bytes: the maximum size of a request, including its length field
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
                raise EntryTooLarge(
                    f"the entry has {size} bytes; bookies accept at most {self._most}"
                    " (nettyMaxFrameSizeBytes)",
                    index,
                )
