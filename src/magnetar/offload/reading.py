"""The common part of readers of offloaded ledgers: they find the pieces with the requested entries."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.interface import EntryRun, NoSuchEntry
from magnetar.offload.cache import Piece
from magnetar.offload.interface import OffloadedReader

AHEAD_BYTES = 8 << 20
"""The maximum number of bytes that one request reads ahead."""


class PieceStart(NamedTuple):
    """The place where a piece of an offloaded ledger begins: its first entry, and its offset."""

    first_entry_id: int
    position: int
    """The offset, in the object or file, of the bytes that precede the piece's first entry."""
    end: int
    """The offset of the end of the block in an object; 0 in a file, which is read to its end."""
    length: int = 0
    """The size of the first entry in bytes; 0: unknown."""


class PieceReader(OffloadedReader):
    """Reads entries in pieces, and remembers where the pieces start."""

    def __init__(self, name: str, record: LedgerRecord, first_entry_id: int, read_bytes: int) -> None:
        """:param name: the name of the object or file, for errors
        :param read_bytes: the minimum number of bytes that one request reads
        """
        self._name = name
        self._record = record
        self._first_entry_id = first_entry_id
        self._read_bytes = self._fetch_bytes = read_bytes
        self._next = -1
        """The id of the entry after the last entry of the previous read."""
        self._requests = 0
        self._starts: list[PieceStart] = []
        """The known starts of pieces, in ascending order."""

    @property
    def record(self) -> LedgerRecord:
        return self._record

    @property
    def first_entry_id(self) -> int:
        return self._first_entry_id

    @property
    def last_entry_id(self) -> int:
        return self._record.last_entry_id

    @property
    def length(self) -> int:
        return self._record.length

    @property
    def requests(self) -> int:
        return self._requests

    def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        if not self.first_entry_id <= first <= min(last, self.last_entry_id):
            raise NoSuchEntry(
                f"{self._name} has entries {self.first_entry_id} to {self.last_entry_id}, "
                f"but entries {first} to {last} were requested"
            )
        last = min(last, self.last_entry_id)
        if first == self._next:
            self._fetch_bytes = min(self._fetch_bytes * 2, max(AHEAD_BYTES, self._read_bytes))
        else:
            self._fetch_bytes = self._read_bytes
        runs: list[EntryRun] = []
        entry, left = first, max_bytes
        while entry <= last and (left > 0 or not runs):
            run = _part(self._piece_with(entry).run, entry, last, left, at_least_one=not runs)
            if run is None:
                break
            runs.append(run)
            entry += run.count
            left -= run.size()
        self._next = entry
        return runs

    def _piece_with(self, entry_id: int) -> Piece:
        start = self._start_before(entry_id)
        while True:
            piece = self._piece_at(start)
            following = PieceStart(
                piece.run.last_entry_id + 1, piece.next_position, start.end, piece.next_length
            )
            if entry_id < following.first_entry_id:
                return piece
            self._learn(following)
            start = following

    @abstractmethod
    def _start_before(self, entry_id: int) -> PieceStart:
        """Returns the last known start of a piece that is at or before an entry and in the entry's block."""

    @abstractmethod
    def _piece_at(self, start: PieceStart) -> Piece:
        """Returns the piece that begins at ``start``, with at least one entry."""

    def _known_before(self, entry_id: int) -> PieceStart | None:
        at = bisect_right(self._starts, entry_id, key=_first_entry_id) - 1
        return self._starts[at] if at >= 0 else None

    def _learn(self, start: PieceStart) -> None:
        at = bisect_right(self._starts, start.first_entry_id, key=_first_entry_id)
        if at == 0 or self._starts[at - 1].first_entry_id != start.first_entry_id:
            self._starts.insert(at, start)


def _first_entry_id(start: PieceStart) -> int:
    return start.first_entry_id


def _part(run: EntryRun, first: int, last: int, max_bytes: int, *, at_least_one: bool) -> EntryRun | None:
    """Returns the entries from ``first`` to ``last`` in ``run``, at most ``max_bytes`` bytes.

    :param first: one of the entries of ``run``
    :param at_least_one: whether to return one entry even if it is larger than ``max_bytes``
    :return: the entries; None if no entry fits and ``at_least_one`` is false
    """
    start = first - run.first_entry_id
    stop = start
    size = 0
    for at in range(start, min(run.count, last - run.first_entry_id + 1)):
        size += run.ends[at] - run.starts[at]
        if size > max_bytes and not (at_least_one and at == start):
            break
        stop = at + 1
    if stop == start:
        return None
    return EntryRun(
        run.ledger_id, first, stop - start, run.buffer, run.starts[start:stop], run.ends[start:stop]
    )
