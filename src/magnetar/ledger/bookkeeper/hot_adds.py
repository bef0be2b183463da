"""Adds of entries: encodes requests for a run of entries, decodes runs of answers, and finds the last entry
up to which an ack quorum has stored all entries.

A hot module: plain Python that is also compiled, with the C types in ``hot_adds.pxd``.
"""

from __future__ import annotations

import struct
from array import array

from magnetar.io.crc32c import crc32c

_HEADER = struct.Struct(">qqqq")
_HEAD = struct.Struct(">I24sqqqqI")
_AROUND = 60
"""The bytes of an add request without its payload and without the frame's length in front."""
_COPY_LIMIT = 4096
"""The payload size in bytes below which the payload is copied, because a copy costs less than a view."""

# An answer to an add: its length, version, operation, flags, status, ledger, entry.
_ANSWER = 28
_GOOD = b"\x00\x00\x00\x18\x02\x01\x00\x00\x00\x00\x00\x00"
_ADDED = 12


def add_frames(
    prefix: bytes,
    ledger_id: int,
    entry_id: int,
    confirmed: int,
    length: int,
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
    pieces: list[bytes | memoryview],
) -> int:
    """Appends to ``pieces`` the requests to add entries ``buffer[starts[i]:ends[i]]``, for ``count`` indexes
    i from ``first`` on.

    Each request has two pieces: the bytes before the payload, with its CRC32C, and the payload.

    :param prefix: version, operation, flags and master key: 24 bytes
    :param entry_id: the id of the first of these entries
    :param confirmed: the last-add-confirmed to send with each entry; -1: no entry is confirmed
    :param length: total bytes of the ledger's payloads before the first entry
    :returns: total bytes of the ledger's payloads, including those of these entries
    """
    view = None
    index = first
    while index < first + count:
        start = starts[index]
        end = ends[index]
        size = end - start
        length += size
        checksum = crc32c(_HEADER.pack(ledger_id, entry_id, confirmed, length))
        if size < _COPY_LIMIT:
            payload = buffer[start:end]
            checksum = crc32c(payload, checksum)
            pieces.append(
                _HEAD.pack(_AROUND + size, prefix, ledger_id, entry_id, confirmed, length, checksum)
            )
            pieces.append(payload)
        else:
            if view is None:
                view = memoryview(buffer)
            part = view[start:end]
            checksum = crc32c(part, checksum)
            pieces.append(
                _HEAD.pack(_AROUND + size, prefix, ledger_id, entry_id, confirmed, length, checksum)
            )
            pieces.append(part)
        entry_id += 1
        index += 1
    return length


class AddedRun:
    """Consecutive successful answers to adds of one ledger; each call of :func:`read_added` replaces them."""

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self.ledger_id = 0
        self.count = 0
        self.entry_ids = array("q", bytes(8 * capacity))
        # A second reference to the array: when compiled, a typed view that costs nothing to take.
        self._ids = self.entry_ids


def read_added(data: bytes, position: int, end: int, run: AddedRun) -> int:
    """Reads successful answers to adds of one ledger into ``run``; returns the position after them.

    Stops at any other answer; ``run.count`` is 0 if the first answer is such an answer.
    """
    count = 0
    while count < run.capacity and end - position >= _ANSWER:
        index = 0
        while index < _ADDED and data[position + index] == _GOOD[index]:
            index += 1
        if index < _ADDED:
            break
        ledger_id = _number_at(data, position + _ADDED)
        if count == 0:
            run.ledger_id = ledger_id
        elif run.ledger_id != ledger_id:
            break
        run._ids[count] = _number_at(data, position + _ADDED + 8)
        count += 1
        position += _ANSWER
    run.count = count
    return position


def _number_at(data: bytes, position: int) -> int:
    high = data[position]
    if high > 127:
        high -= 256
    value = high
    index = position + 1
    while index < position + 8:
        value = value * 256 + data[index]
        index += 1
    return value


class Stripe:
    """The entries of a segment that one bookie of the ensemble gets, and those that it has answered."""

    def __init__(self, index: int, ensemble: int, write: int, first: int) -> None:
        """:param index: the bookie's index in the ensemble
        :param first: the first entry of the segment; the stripe has no earlier entries
        """
        self.index = index
        self.ensemble = ensemble
        self.write = write
        self.next = first
        """The first entry of the stripe without an answer; all earlier entries are answered."""
        self.early: set[int] = set()
        """The entries after ``next`` that the bookie has answered already."""
        if not self.takes(first):
            self._step()

    def takes(self, entry_id: int) -> bool:
        """Whether the bookie is in the entry's write set."""
        return (self.index - entry_id) % self.ensemble < self.write

    def answered(self, entry_ids: array[int], count: int) -> None:
        """Records answers for these entries of the stripe."""
        index = 0
        while index < count:
            if entry_ids[index] == self.next and not self.early:
                if self.write == self.ensemble:
                    self.next += 1
                else:
                    self._step()
            else:
                self.answered_one(entry_ids[index])
            index += 1

    def answered_one(self, entry_id: int) -> None:
        if entry_id > self.next:
            self.early.add(entry_id)
        elif entry_id == self.next:
            self._step()
            while self.next in self.early:
                self.early.discard(self.next)
                self._step()

    def _step(self) -> None:
        self.next += 1
        while not self.takes(self.next):
            self.next += 1


def confirmed_through(stripes: list[Stripe], write: int, ack: int, first: int, end: int) -> int:
    """Returns the last entry of [first, end) up to which ``ack`` bookies of each write set have stored every
    entry; ``first - 1`` if there is no such entry.

    Out-of-order answers count once the gap before them is closed.
    """
    size = len(stripes)
    entry_id = first
    if write == size:
        # The entry after the last one that ``ack`` bookies have stored without a gap.
        nexts = sorted([stripe.next for stripe in stripes])
        entry_id = nexts[size - ack]
        if entry_id < first:
            entry_id = first
        return (entry_id if entry_id < end else end) - 1
    while entry_id < end:
        count = 0
        step = 0
        while step < write:
            stripe = stripes[(entry_id + step) % size]
            if stripe.next > entry_id:
                count += 1
            step += 1
        if count < ack:
            break
        entry_id += 1
    return entry_id - 1
