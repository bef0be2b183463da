"""How much is begun in one turn of the loop, over all connections; what is left goes on in the next turns.

A thousand consumers that start on a backlog, or a connection full of requests, would each alone be quick
enough; together they would keep everybody else waiting. So whoever dispatches or handles frames asks before
each run. It counts bytes, with a price for what costs whatever its size, and it looks at the clock: bytes,
because they are written to sockets later in the same turn, where no clock is asked.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from magnetar.io.interfaces import Clock, Loop

TURN_SECONDS = 0.004
"""After so long in a turn nothing more is begun."""

TURN_BYTES = 2 * 1024 * 1024
"""And after so much."""

STEP_BYTES = 128 * 1024
"""What those that wait get at a time: the next one in the row comes then."""

FIRST_STEP_BYTES = 16 * 1024
"""What they get the first time, so that many who come at once do not keep one waiting who wants little."""

RUN_PRICE = 4 * 1024
"""A run of entries for one consumer, beside its bytes."""

FRAMES_PRICE = 16 * 1024
"""A few dozen frames that are handled without a protobuf object, or runs of them."""

READ_PRICE = 128 * 1024
"""Beginning a read from the ledger store."""

LOOK_PRICE = 256
"""Looking at an entry that may not be sent."""

FILTER_PRICE = 16 * 1024
"""Asking the filters about an entry."""

REQUEST_PRICE = 64 * 1024
"""A command that is not per message."""


_FIRSTS = STEP_BYTES // FIRST_STEP_BYTES


class BudgetTaker(Protocol):
    """Whoever has more to do than fits into a turn."""

    def go_on(self) -> None:
        """Does more of it, and asks :meth:`LoopBudget.admits` on the way."""
        ...


class LoopBudget:
    """The budget of the turn that runs, and the rows of those who wait for another one.

    Who was turned away without having had its share waits in a row of its own, which takes turns with the row
    of those who come again and again: so a client that wants little waits for few others, and nobody waits
    for ever. The rows get half of a turn, and what comes meanwhile may use the other half.
    """

    __slots__ = (
        "_again",
        "_clock",
        "_ends",
        "_first",
        "_firsts",
        "_floor",
        "_left",
        "_loop",
        "_planned",
        "_served",
        "_waiting",
        "put_off",
        "step_bytes",
    )

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._planned = False
        """Whether a turn is counted, and the next one planned."""
        self._left = 0
        self._floor = 0
        """What of the budget is not for the one that is being served."""
        self._ends = 0.0
        self._served: BudgetTaker | None = None
        self._waiting: set[BudgetTaker] = set()
        self._first: deque[BudgetTaker] = deque()
        self._again: deque[BudgetTaker] = deque()
        self._firsts = 0
        """How many of that row came since one of the other."""
        self.step_bytes = STEP_BYTES
        """How much to read at a time for whoever was admitted."""
        self.put_off = 0
        """How often something had to wait for another turn."""

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def admits(self, taker: BudgetTaker) -> bool:
        """Whether ``taker`` may do something now; if not, its ``go_on`` is called in a later turn."""
        if not self._planned:
            self._begin()
        if self._waiting and taker in self._waiting:
            return False
        if self._left > self._floor and self._clock.monotonic() < self._ends:
            return True
        self.put_off += 1
        self._waiting.add(taker)
        (self._again if taker is self._served else self._first).append(taker)
        return False

    def spend(self, size: int) -> None:
        """So many bytes, or their worth, were used."""
        self._left -= size

    def _begin(self) -> None:
        self._planned = True
        self._left = TURN_BYTES
        self._ends = self._clock.monotonic() + TURN_SECONDS
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """A new turn: those who wait come first, and get half of it."""
        self._planned = False
        if not self._waiting:
            return
        self._begin()
        ends = self._ends
        self._ends = ends - TURN_SECONDS / 2
        try:
            self._serve_one()
            while self._waiting and self._left > TURN_BYTES // 2 and self._clock.monotonic() < self._ends:
                self._serve_one()
        finally:
            self._ends = ends
            self._served = None
            self._floor = 0
            self.step_bytes = STEP_BYTES

    def _serve_one(self) -> None:
        """The next of one row; both rows get as many bytes."""
        if self._first and (self._firsts < _FIRSTS or not self._again):
            self._firsts += 1
            self.step_bytes = FIRST_STEP_BYTES
            taker = self._first.popleft()
        else:
            self._firsts = 0
            self.step_bytes = STEP_BYTES
            taker = self._again.popleft()
        self._served = taker
        self._waiting.discard(taker)
        self._floor = self._left - self.step_bytes
        taker.go_on()
