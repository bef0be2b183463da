"""Entries in transit through a non-persistent topic."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from magnetar.managed_ledger.position import Position

NON_PERSISTENT_ID: Position = (0, 0)
"""The id of all messages of non-persistent topics, and in their receipts."""

DROPPED_ID: Position = (-1, -1)
"""The id in the receipt of a message that was dropped because too many were in flight."""


class NonPersistentRun:
    """``count`` entries ``buffer[starts[i]:ends[i]]`` with ``sizes[i]`` messages each, ``messages`` in total.

    It must not be kept: the arrays may be reused for the next run.
    """

    __slots__ = ("buffer", "count", "ends", "messages", "sizes", "starts")

    def __init__(
        self, buffer: bytes, starts: array[int], ends: array[int], sizes: array[int], count: int
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        self.sizes = sizes
        self.count = count
        self.messages = sum(sizes[:count])

    def only(self, chosen: Sequence[int]) -> NonPersistentRun:
        """Returns a run of only those entries whose indexes are ``chosen``."""
        return NonPersistentRun(
            self.buffer,
            array("q", [self.starts[index] for index in chosen]),
            array("q", [self.ends[index] for index in chosen]),
            array("i", [self.sizes[index] for index in chosen]),
            len(chosen),
        )

    def messages_in(self, first: int, end: int) -> int:
        """Returns the number of messages in the entries [first, end)."""
        if first == 0 and end == self.count:
            return self.messages
        return sum(self.sizes[first:end])

    def entry_bytes(self, first: int, end: int) -> int:
        """Returns the bytes of the entries [first, end)."""
        return sum(self.ends[first:end]) - sum(self.starts[first:end])

    def bytes_in(self, first: int, end: int) -> int:
        """Returns the bytes of the entries [first, end), including gaps between them."""
        return self.ends[end - 1] - self.starts[first] if first < end else 0
