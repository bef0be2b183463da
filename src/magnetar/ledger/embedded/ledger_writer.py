"""Writing a ledger of the embedded store."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

from magnetar.invariants import violated
from magnetar.io.interfaces import Loop
from magnetar.ledger.embedded.group import LEDGER_CLOSED, gather
from magnetar.ledger.embedded.ledger_table import LedgerRow, encode_closed
from magnetar.ledger.embedded.log import CommitLog, LogQueue
from magnetar.ledger.interface import LedgerClosed, LedgerError, LedgerListener


class WriteContext(NamedTuple):
    """The objects that all writers of a store share."""

    log: CommitLog
    loop: Loop
    part_bytes: int
    """The approximate size in bytes of the pieces into which an append is cut."""
    forget: Callable[[LedgerRow, int], None]
    closed: Callable[[int], None]
    """Called with the id of a ledger that its writer has closed."""


class EmbeddedWriter:
    """The only writer of a ledger, in the store's process."""

    def __init__(self, row: LedgerRow, context: WriteContext, *, high_priority: bool) -> None:
        self.ledger_id = row.ledger_id
        self._row = row
        self._context = context
        self._log = context.log
        self._part_bytes = context.part_bytes
        self._queue = LogQueue(row, self.on_durable, self.end, high_priority=high_priority)
        self._next = 0
        self._acknowledged = -1
        self._listener: LedgerListener | None = None
        self._ended: LedgerError | None = None
        self._result: tuple[int, int] | None = None

    def set_listener(self, listener: LedgerListener) -> None:
        self._listener = listener

    def append(self, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int) -> int:
        if self._ended is not None:
            raise LedgerClosed(f"ledger {self.ledger_id} accepts no more entries: {self._ended}")
        entry_id = self._next
        queue = self._queue
        if count < 2 or ends[first + count - 1] - starts[first] <= self._part_bytes:
            queue.parts.append((count, *gather(buffer, starts, ends, first, count)))
        else:
            self._append_pieces(buffer, starts, ends, first, first + count)
        self._next = entry_id + count
        if not queue.waiting:
            self._log.append(queue)
        return entry_id

    def _append_pieces(
        self, buffer: bytes, starts: array[int], ends: array[int], first: int, after: int
    ) -> None:
        limit = self._part_bytes
        begin = first
        size = 0
        for number in range(first, after):
            entry = ends[number] - starts[number]
            if number > begin and size + entry > limit:
                count = number - begin
                self._queue.parts.append((count, *gather(buffer, starts, ends, begin, count)))
                begin, size = number, 0
            size += entry
        count = after - begin
        self._queue.parts.append((count, *gather(buffer, starts, ends, begin, count)))

    async def close(self) -> tuple[int, int]:
        if self._result is not None:
            return self._result
        if self._ended is not None:
            raise self._ended
        self._ended = LedgerClosed(f"the writer of ledger {self.ledger_id} is closed")
        while self._acknowledged + 1 < self._next and not self._queue.ended:
            await self._log.next_completion()
        if not self._queue.ended:
            body = encode_closed(self._row.last_entry_id, self._row.length)
            await self._log.control(LEDGER_CLOSED, self.ledger_id, body)
        if self._queue.ended:
            raise self._ended
        self._queue.ended = True
        self._context.closed(self.ledger_id)
        self._result = (self._row.last_entry_id, self._row.length)
        self._let_go()
        return self._result

    def _let_go(self) -> None:
        """Breaks reference cycles, so that the writer is freed without a garbage collection."""
        self._listener = None
        self._queue.on_durable = self._queue.refused = _nobody

    def forget_before(self, entry_id: int) -> None:
        self._context.forget(self._row, entry_id)

    def end(self, reason: LedgerError) -> None:
        """Ends the writer because of an external event: queued entries are dropped, and entries in flight are
        never acknowledged."""
        if self._queue.ended:
            return
        self._ended = reason
        self._queue.ended = True
        self._queue.parts.clear()
        if self._listener is not None:
            on_failed = self._listener.on_failed
            self._context.loop.call_soon(on_failed, self.ledger_id, self._acknowledged + 1, reason)
        self._let_go()

    def refuse(self, reason: LedgerError) -> None:
        """Accepts no more appends; earlier ones are still committed and reported."""
        if self._ended is None:
            self._ended = reason

    def on_durable(self, last_entry_id: int) -> None:
        if last_entry_id <= self._acknowledged or last_entry_id >= self._next:
            what = f"durable entry of ledger {self.ledger_id}"
            violated(self._log.fail, what, f"one in ({self._acknowledged}, {self._next})", last_entry_id)
        self._acknowledged = last_entry_id
        if self._listener is not None:
            self._listener.on_durable(self.ledger_id, last_entry_id)


def _nobody(_told: object) -> None:
    """Ignores calls; replaces the callbacks of a writer that has ended."""
