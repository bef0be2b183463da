"""A run of consecutive entries of one ledger in one buffer."""

from __future__ import annotations

from array import array


class EntryRun:
    """Entries ``first_entry_id`` … ``first_entry_id + count - 1`` of ``ledger_id``.

    Entry i is ``buffer[starts[i]:ends[i]]``. The buffer is immutable and may hold other bytes between the
    entries; no entry is copied out of it before a socket or a group needs it.
    """

    __slots__ = ("buffer", "count", "ends", "first_entry_id", "ledger_id", "starts")

    def __init__(
        self,
        ledger_id: int,
        first_entry_id: int,
        count: int,
        buffer: bytes,
        starts: array[int],
        ends: array[int],
    ) -> None:
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.count = count
        self.buffer = buffer
        self.starts = starts
        self.ends = ends

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + self.count - 1

    def entry(self, index: int) -> bytes:
        """Returns a copy of the entry at ``index`` (0 … count-1)."""
        return self.buffer[self.starts[index] : self.ends[index]]

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(self.ends[: self.count]) - sum(self.starts[: self.count])

    def __repr__(self) -> str:
        return f"EntryRun({self.ledger_id}:{self.first_entry_id}..{self.last_entry_id})"
