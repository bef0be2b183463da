"""One call of append on its way to becoming durable, and who is told."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol

from magnetar.ledger.entry_run import EntryRun


class Append:
    """Entries ``buffer[starts[i]:ends[i]]`` for i in [first, first + count).

    Held until they are durable, because a failed ledger means writing them again. ``context`` is the
    caller's; a split leaves it with both parts, and ``first`` tells which of the caller's slots a part
    covers.
    """

    __slots__ = (
        "buffer",
        "context",
        "count",
        "ends",
        "first",
        "first_entry_id",
        "ledger_id",
        "size",
        "starts",
    )

    def __init__(
        self,
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        first: int,
        count: int,
        size: int,
        context: Any,
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        self.first = first
        self.count = count
        self.size = size
        self.context = context
        self.ledger_id = -1
        self.first_entry_id = -1

    def split(self, count: int) -> Append:
        """Keeps the first ``count`` entries and returns the rest."""
        middle = self.first + count
        end = self.first + self.count
        rest_size = sum(self.ends[middle:end]) - sum(self.starts[middle:end])
        rest = Append(
            self.buffer, self.starts, self.ends, middle, self.count - count, rest_size, self.context
        )
        rest.ledger_id = self.ledger_id
        if self.first_entry_id >= 0:
            rest.first_entry_id = self.first_entry_id + count
        self.count = count
        self.size -= rest_size
        return rest

    def as_run(self) -> EntryRun:
        """The entries as they were written."""
        end = self.first + self.count
        return EntryRun(
            self.ledger_id,
            self.first_entry_id,
            self.count,
            self.buffer,
            self.starts[self.first : end],
            self.ends[self.first : end],
        )


class AppendListener(Protocol):
    """The owner of a managed ledger; called in the loop."""

    def on_durable(self, appends: Sequence[Append]) -> None:
        """These are durable, in the order of their positions. Once a commit."""
        ...

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        """These will not be stored."""
        ...

    def on_fenced(self) -> None:
        """Somebody else owns the managed ledger now; it takes no more appends."""
        ...
