"""What reads have learned about bookies: which do not answer, and which support batch reads."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.io.interfaces import Clock
from magnetar.ledger.bookkeeper.frames import Status

_LAST_SECONDS = 10.0
"""For this time, a bookie that did not answer is asked last."""
_SINGLES_SECONDS = 60.0
"""For this time, a bookie that may have closed its connection because of a batch read gets single reads."""
_UNKNOWN = (Status.LOST, Status.BAD_REQUEST, Status.BAD_VERSION)


class ReadingMemory:
    """Shared by all readers of a store.

    A bookie before 4.17 closes the connection at a batch read. But any bookie that stops closes it as well: a
    bookie that did so twice, and never answered a batch read, counts as old.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_until: dict[str, float] = {}
        self._knows_batches: set[str] = set()
        self._singles_until: dict[str, float] = {}
        self._old: set[str] = set()

    def in_order(self, bookies: Sequence[str]) -> list[str]:
        """Returns the bookies in the order of reading: those that recently did not answer come last."""
        if not self._last_until:
            return list(bookies)
        now = self._clock.monotonic()
        return sorted(bookies, key=lambda bookie: self._last_until.get(bookie, now) > now)

    def takes_batches(self, bookie: str) -> bool:
        if bookie in self._knows_batches:
            return True
        until = self._singles_until.get(bookie, 0.0)
        return bookie not in self._old and until <= self._clock.monotonic()

    def told(self, bookie: str, status: int, *, batch: bool) -> None:
        """Records the outcome of a request."""
        now = self._clock.monotonic()
        if status in (Status.LOST, Status.TIMED_OUT):
            self._last_until[bookie] = now + _LAST_SECONDS
        else:
            self._last_until.pop(bookie, None)
        if not batch:
            return
        if status == Status.OK:
            self._knows_batches.add(bookie)
        elif status in _UNKNOWN and bookie not in self._knows_batches:
            if status != Status.LOST or 0 < self._singles_until.get(bookie, 0.0) <= now:
                self._old.add(bookie)
            self._singles_until[bookie] = now + _SINGLES_SECONDS
