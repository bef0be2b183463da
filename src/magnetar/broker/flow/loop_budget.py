"""The loop budget: the amount of work that begins in one turn of the event loop, over all connections.

A thousand consumers that start on a backlog, or a connection full of requests, each take little time alone,
but together they would delay all other clients. So dispatchers and readers of frames ask for admission before
each run. The budget counts bytes, with a price for work whose cost does not depend on size, and checks the
clock. Bytes count, because they are written to sockets later in the same turn, where no clock is checked.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from magnetar.io.interfaces import Clock, Loop

TURN_SECONDS = 0.004
"""The time in a turn, in seconds, after which no more work begins."""

TURN_BYTES = 2 * 1024 * 1024
"""The number of bytes in a turn after which no more work begins."""

STEP_BYTES = 128 * 1024
"""The bytes that a waiting taker gets before the next taker in the queue is served."""

FIRST_STEP_BYTES = 16 * 1024
"""The bytes of a taker's first step: few, so that many simultaneous takers do not delay a taker that has
little to do.
"""

RUN_PRICE = 4 * 1024
"""The price of a run of entries for one consumer, in bytes that are added to the size of the run."""

FRAMES_PRICE = 16 * 1024
"""The price, in bytes, of a few dozen frames or runs of frames that are handled without a protobuf object."""

READ_PRICE = 128 * 1024
"""The price of starting a read from the ledger store, in bytes."""

LOOK_PRICE = 256
"""The price of looking at an entry that may not be sent, in bytes."""

FILTER_PRICE = 16 * 1024
"""The price of applying the filters to an entry, in bytes."""

REQUEST_PRICE = 64 * 1024
"""The price of a command that is not a plain SEND, a plain ACK or a FLOW, in bytes."""


_FIRSTS = STEP_BYTES // FIRST_STEP_BYTES


class BudgetTaker(Protocol):
    """A part of the broker that may have more work than fits into a turn."""

    def go_on(self) -> None:
        """Continues the work; calls :meth:`LoopBudget.admits` before each further part."""
        ...


class LoopBudget:
    """The budget of the current turn, and the queues of takers that wait for another turn.

    Takers that were turned away before they were served wait in one queue, and takers that have used up their
    bytes and need more wait in another; the two queues are served alternately. So a client with little to do
    waits for few others, and no client waits forever. The queues get half of a turn; new work may use the
    other half.
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
        """Whether the work of a turn is being counted, and the beginning of the next turn is scheduled."""
        self._left = 0
        self._floor = 0
        """The part of the budget that the taker being served must leave for others."""
        self._ends = 0.0
        self._served: BudgetTaker | None = None
        self._waiting: set[BudgetTaker] = set()
        self._first: deque[BudgetTaker] = deque()
        self._again: deque[BudgetTaker] = deque()
        self._firsts = 0
        """The number of takers in ``_first`` that were served since a taker in ``_again`` was last served."""
        self.step_bytes = STEP_BYTES
        """The number of bytes that an admitted taker should read at a time."""
        self.put_off = 0
        """How often work had to wait for another turn."""

    @property
    def waiting(self) -> int:
        """Returns the number of waiting takers."""
        return len(self._waiting)

    def admits(self, taker: BudgetTaker) -> bool:
        """Whether ``taker`` may work now; if not, its ``go_on`` is called in a later turn."""
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
        """Subtracts the cost of some work, in bytes, from the rest of the turn's budget."""
        self._left -= size

    def _begin(self) -> None:
        self._planned = True
        self._left = TURN_BYTES
        self._ends = self._clock.monotonic() + TURN_SECONDS
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begins a turn: waiting takers come first, with half of the turn."""
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
        """Serves the next taker of one of the two queues; both queues get equal numbers of bytes."""
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
