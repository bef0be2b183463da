"""What reads have learned of bookies: which of them do not answer, which know batch reads."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.io.interfaces import Clock
from magnetar.ledger.bookkeeper.frames import Status

_LAST_SECONDS = 10.0
"""For so long one that did not answer is asked after the others."""
_SINGLES_SECONDS = 60.0
"""For so long one that may have closed its connection over a batch read is asked for single entries."""
_UNKNOWN = (Status.LOST, Status.BAD_REQUEST, Status.BAD_VERSION)


class ReadingMemory:
    """Shared by all readers of a store.

    A bookie before 4.17 closes the connection when it is asked for a batch. So may any bookie that ends: who
    does so twice, and never answered one, is taken for an old one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_until: dict[str, float] = {}
        self._knows_batches: set[str] = set()
        self._singles_until: dict[str, float] = {}
        self._old: set[str] = set()

    def in_order(self, bookies: Sequence[str]) -> list[str]:
        """The order to ask them in: those that did not answer lately come last."""
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
        """What became of a question."""
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
