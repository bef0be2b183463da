"""A cursor: the read position and the acknowledgements of a subscription."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from magnetar.invariants import must, violated
from magnetar.ledger.interface import EntryRun, LedgerError, NoSuchLedger
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.entry_reader import GONE
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.hot_ranges import consecutive_until, same_ledger_until
from magnetar.managed_ledger.position import Position
from magnetar.metadata.interface import MetadataError

if TYPE_CHECKING:
    from magnetar.managed_ledger.managed_ledger import ManagedLedger


log = logging.getLogger(__name__)


class Cursor:
    """A cursor, which reads forward from ``read_position``.

    Entries at or below ``state.mark_delete``, or in the ranges of ``state``, are consumed.

    :param storage: stores the state; None: the cursor is non-durable, exists only in memory, and does not
        prevent trimming
    """

    def __init__(
        self,
        name: str,
        owner: ManagedLedger,
        state: AcknowledgedState,
        storage: CursorStorage | None,
        now_ms: int,
    ) -> None:
        self.name = name
        self._owner = owner
        self.state = state
        self.storage = storage
        # Ledgers may have been trimmed before the last acknowledgements were written, followed by a crash.
        # The mark-delete position stays even if its ledger was deleted, as a record that there were entries.
        state.forget_ledgers_before(owner.ledgers.first_id())
        self.read_position: Position = owner.ledgers.after(state.mark_delete)
        self._rewinds = 0
        self.read_again_from: Position | None = None
        """The lowest position that will soon be read again; None: no entry will be read again."""
        self.active = False
        self.reads_hidden = False
        """Whether the cursor also reads the entries that open transactions hide."""
        self.messages_consumed = 0
        self._seen_ledger = -1
        self.created_ms = now_ms
        if storage is not None:
            storage.use(state)

    @property
    def durable(self) -> bool:
        return self.storage is not None

    @property
    def mark_delete(self) -> Position:
        return self.state.mark_delete

    # Reading

    def has_more(self) -> bool:
        """Whether an entry can be read now."""
        return self._normalised() <= self._end()

    @property
    def is_held_back(self) -> bool:
        """Whether an open transaction hides the next entry."""
        return not self.has_more() and self.read_position <= self._owner.last_confirmed

    def _end(self) -> Position:
        owner = self._owner
        return owner.last_confirmed if self.reads_hidden else owner.max_read_position

    def _normalised(self) -> Position:
        position = self._owner.ledgers.first_at_or_after(self.read_position)
        self.read_position = position
        return position

    def read_cached(self, max_entries: int, max_bytes: int) -> EntryRun | None:
        """Returns the next entries, and moves the read position past them.

        Returns None if the next entry is not in the cache, or if no entry can be read now.
        """
        position = self._normalised()
        last = self._end()
        if position > last:
            return None
        run = self._owner.reader.read_cached(position, last, max_entries, max_bytes)
        if run is not None:
            self._read(run)
        return run

    async def read(self, max_entries: int, max_bytes: int) -> EntryRun | None:
        """Returns the next entries; None if no entry can be read now, or the read position was moved
        meanwhile.

        :raises LedgerError: the entries cannot be read
        """
        position = self._normalised()
        last = self._end()
        if position > last:
            return None
        rewinds = self._rewinds
        try:
            run = await self._owner.reader.read(position, last, max_entries, max_bytes)
        except GONE as error:
            await self._owner.refresh_ledgers()
            # The entry was acknowledged and trimmed during the read, and the next read continues after it; or
            # it is lost.
            if position[0] in self._owner.ledgers and not self.skip_lost(position, error):
                raise
            return None
        if self.read_position != position or self._rewinds != rewinds:
            # Another read has started from here meanwhile, perhaps from the same position.
            return None
        self._read(run)
        return run

    def skip_lost(self, position: Position, error: Exception) -> bool:
        """Skips a position whose entry is lost, if the settings permit it; returns whether it was skipped.

        The entry then counts as consumed and, if its ledger is lost, the rest of the ledger as well.

        :param error: the error of reading the entry
        """
        lost = self._owner.lost_data
        if not lost.skip or not isinstance(error, GONE):
            return False
        ledger_id, entry_id = position
        summary = self._owner.ledgers.get(ledger_id)
        whole = isinstance(error, NoSuchLedger) and summary is not None
        end = summary.entries if whole and summary is not None else entry_id + 1
        count = self.state.add_range(ledger_id, entry_id, end)
        if count:
            lost.entries += count
            log.error(
                "entries are lost; continuing after them (autoSkipNonRecoverableData)",
                extra={
                    "managed_ledger": self._owner.name,
                    "cursor": self.name,
                    "ledger": ledger_id,
                    "first_entry": entry_id,
                    "last_entry": end - 1,
                    "reason": str(error),
                },
            )
            self._advance()
            self._changed()
        if self.read_position == position:
            self.read_position = (ledger_id, end)
            self._owner.cursors.read_position_moved(self)
        return True

    def _read(self, run: EntryRun) -> None:
        before = self.read_position
        self.read_position = (run.ledger_id, run.first_entry_id + run.count)
        if self.read_position <= before:
            self._violated("read position", f"one behind {before}", self.read_position)
        self._owner.cursors.read_position_moved(self)

    def wanted_from(self) -> Position:
        """Returns the first position that will be read soon."""
        again = self.read_again_from
        return self.read_position if again is None or again > self.read_position else again

    def next_position(self) -> Position:
        """Returns the next position to read, after skipping deleted ledgers."""
        return self._normalised()

    def leap_to(self, position: Position) -> None:
        """Moves the read position forward, over entries that must not be delivered now."""
        before = self.read_position
        if position != before:
            self.read_position = self._owner.ledgers.first_at_or_after(position)
            if self.read_position < before:
                self._violated("read position", f"one behind {before}", self.read_position)
            self._owner.cursors.read_position_moved(self)

    def unconsumed_parts(self, run: EntryRun) -> list[tuple[int, int]]:
        """Returns the parts of a run that are not consumed, as index ranges [first, end)."""
        ledger_id, first = run.ledger_id, run.first_entry_id
        start = 0
        if (ledger_id, first) <= self.state.mark_delete:
            if ledger_id < self.state.mark_delete[0]:
                return []
            start = self.state.mark_delete[1] + 1 - first
        ranges = self.state.ranges.get(ledger_id)
        if ranges is None:
            return [(start, run.count)] if start < run.count else []
        parts = []
        while start < run.count:
            start = ranges.end_of_range_at(first + start) - first
            if start >= run.count:
                break
            following = ranges.start_of_next_range(first + start)
            end = run.count if following is None else min(run.count, following - first)
            parts.append((start, end))
            start = end
        return parts

    def rewind(self) -> None:
        """Moves the read position back to the first unconsumed entry; a read in progress then returns
        None."""
        self._rewinds += 1
        self.read_position = self._owner.ledgers.after(self.state.mark_delete)

    # Acknowledging

    def is_consumed(self, ledger_id: int, entry_id: int) -> bool:
        return self.state.contains(ledger_id, entry_id)

    def delete(self, ledger_id: int, entry_id: int) -> bool:
        """Consumes one entry; returns False if the entry was consumed already or does not exist."""
        if not self._owner.ledgers.exists((ledger_id, entry_id)):
            return False
        if not self.state.add_range(ledger_id, entry_id, entry_id + 1):
            return False
        self.messages_consumed += 1
        self._advance()
        self._changed()
        return True

    def delete_run(self, ledger_ids: array[int], entry_ids: array[int], count: int) -> int:
        """Consumes the first ``count`` positions of two arrays; returns how many were not consumed before."""
        ledgers, state = self._owner.ledgers, self.state
        added = 0
        index = 0
        while index < count:
            ledger_id = ledger_ids[index]
            stop = same_ledger_until(ledger_ids, index, count)
            summary = ledgers.get(ledger_id)
            limit = 0 if summary is None else summary.entries
            if (
                state.mark_delete == (ledger_id, entry_ids[index] - 1)
                and entry_ids[index] < limit
                and not state.batches
                and ledger_id not in state.ranges
            ):
                # In order, as from most consumers: no range is created.
                first = entry_ids[index]
                stop = consecutive_until(entry_ids, index, stop)
                end = min(first + stop - index, limit)
                state.mark_delete = (ledger_id, end - 1)
                self._moved()
                added += end - first
            else:
                added += state.add_each(ledger_id, entry_ids, index, stop, limit)
            index = stop
        if added:
            if not 0 < added <= count:
                self._violated("entries that an acknowledgement consumed", f"at most {count}", added)
            self.messages_consumed += added
            self._advance()
            self._changed()
        return added

    def _advance(self) -> None:
        state, ledgers = self.state, self._owner.ledgers
        if not state.ranges:
            return
        position = state.mark_delete
        while True:
            ledger_id, entry_id = ledgers.after(position)
            ranges = state.ranges.get(ledger_id)
            if ranges is None:
                break
            end = ranges.end_of_range_at(entry_id)
            if end == entry_id:
                break
            position = (ledger_id, end - 1)
        if position != state.mark_delete:
            if position < state.mark_delete:
                self._violated("mark-delete position", f"one behind {state.mark_delete}", position)
            state.move_mark_delete(position)
            self._moved()

    def mark_delete_to(self, position: Position) -> int:
        """Consumes all entries up to ``position``; returns how many were not consumed before.

        A position after the last entry means the last entry. A position at or below the mark-delete position
        changes nothing.
        """
        stored = self._owner.ledgers.before((position[0], min(position[1], 2**62) + 1))
        position = min(stored, self._owner.last_confirmed)
        if position <= self.state.mark_delete:
            return 0
        consumed = self._entries_between(self.state.mark_delete, position)
        if consumed < 0:
            self._violated(f"entries not consumed up to {position}", "at least 0", consumed)
        self.state.move_mark_delete(position)
        self._advance()
        self._moved()
        self._changed()
        self.messages_consumed += consumed
        return consumed

    def _entries_between(self, start: Position, end: Position) -> int:
        """Returns the number of unconsumed entries in (start, end], usually without looking at the
        ledgers."""
        if start[0] == end[0] and not self.state.ranges:
            return end[1] - start[1]
        ledgers = self._owner.ledgers
        stored = ledgers.entries_after(start) - ledgers.entries_after(end)
        return stored - self.state.individually_deleted_up_to(end)

    def consume_batch_indexes(
        self, ledger_id: int, entry_id: int, remaining: int, batch_size: int
    ) -> tuple[int, bool]:
        """Consumes each message of a batch whose bit in ``remaining`` is 0.

        :param batch_size: the number of messages; 0 if unknown
        :return: how many messages this call has consumed, and whether the whole entry is consumed now
        """
        position = (ledger_id, entry_id)
        if not self._owner.ledgers.exists(position) or self.is_consumed(ledger_id, entry_id):
            return 0, True
        known = self.state.batches.get(position)
        if known is None:
            known = (1 << batch_size) - 1 if batch_size else remaining | 1 << remaining.bit_length()
        if known <= 0:
            self._violated(f"messages left of the batch at {position}", "at least one", known)
        left = known & remaining
        cleared = known.bit_count() - left.bit_count()
        if not left:
            self.delete(ledger_id, entry_id)
            return cleared, True
        if cleared:
            self.state.batches[position] = left
            self._changed()
        return cleared, False

    def remaining_bits(self, ledger_id: int, entry_id: int) -> int | None:
        """Returns the bits of a batch's messages that are still to be delivered; None: all messages."""
        return self.state.batches.get((ledger_id, entry_id))

    def reset(self, position: Position) -> None:
        """Resets the cursor: all entries before ``position`` count as consumed, and all entries from
        ``position`` on as not consumed."""
        self._rewinds += 1
        ledgers, last = self._owner.ledgers, self._owner.last_confirmed
        # Without ledgers there is nothing to go back to: the cursor belongs to a shadow without a source.
        target = ledgers.first_at_or_after(position) if len(ledgers) else ledgers.after(last)
        self.state.clear_above()
        if target > last:
            self.state.move_mark_delete(last)
        else:
            self.state.move_mark_delete(ledgers.before(target))
        self.read_position = target
        if self.storage is not None:
            self.storage.moved()
        self._moved()
        self._changed()

    def _moved(self) -> None:
        marked = self.state.mark_delete
        if marked > self._owner.last_confirmed and marked != (self._owner.ledgers.first_id(), -1):
            self._violated("mark-delete position", f"at most {self._owner.last_confirmed}", marked)
        ranges = self.state.ranges
        if ranges and marked[0] in ranges and ranges[marked[0]].contains(marked[1]):
            self._violated("entries consumed individually", f"none at or before {marked}", marked)
        if self.read_position <= marked:
            self.read_position = self._owner.ledgers.after(marked)
            if self.read_position <= marked:
                self._violated("read position", f"one behind {marked}", self.read_position)
        self._owner.cursors.mark_delete_moved(self)

    def _violated(self, what: str, expected: object, found: object) -> NoReturn:
        name = f"cursor {self.name} of managed ledger {self._owner.name}: {what}"
        violated(self._owner.fail, name, expected, found)

    def skip_trimmed(self) -> None:
        """Moves the cursor forward to the first existing ledger; acknowledgements in deleted ledgers are
        dropped."""
        ledgers = self._owner.ledgers
        first = (ledgers.first_id(), -1) if len(ledgers) else self._owner.last_confirmed
        if self.state.mark_delete < first:
            self.state.move_mark_delete(first)
            self._advance()
            self._moved()

    def return_to_end(self) -> None:
        """Moves the mark-delete position back to the last entry if it is after that entry.

        :meth:`skip_trimmed` may have moved it past ledgers that were then listed again.
        """
        last = self._owner.last_confirmed
        if self.state.mark_delete > last:
            self.state.move_mark_delete(last)
            self._moved()

    def left_a_ledger(self) -> bool:
        """Whether ledgers may have become unneeded: the mark-delete position has entered another ledger since
        the last call, or is in a deleted ledger, or at the end of a ledger that is not the last."""
        ledger_id, entry_id = self.state.mark_delete
        if ledger_id != self._seen_ledger:
            self._seen_ledger = ledger_id
            return True
        ledgers = self._owner.ledgers
        summary = ledgers.get(ledger_id)
        return summary is None or (entry_id >= summary.entries - 1 and summary is not ledgers.last())

    def _changed(self) -> None:
        if self.storage is not None:
            self.storage.changed()

    async def flush(self) -> None:
        """Waits until the current state is durable."""
        if self.storage is not None:
            await self.storage.flush()

    async def close(self) -> None:
        """Writes the final state. A failure is only logged, so that other cursors are closed, too."""
        if self.storage is None:
            return
        try:
            await self.storage.close()
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            log.error(
                "cannot write the cursor before closing it", extra={"cursor": self.name, "error": str(error)}
            )

    # Statistics

    def backlog(self) -> int:
        """Returns the number of unconsumed entries."""
        count = self._owner.ledgers.entries_after(self.state.mark_delete)
        if self.state.ranges:
            count -= self.state.individually_deleted()
        return max(count, 0)

    def backlog_bytes(self) -> int:
        """Returns the number of bytes after the mark-delete position; the share of that position's own ledger
        is an estimate."""
        return self._owner.ledgers.size_after(self.state.mark_delete)

    def entries_behind(self) -> int:
        """Returns the number of entries between the read position and the end of the managed ledger."""
        return self._owner.ledgers.entries_after((self.read_position[0], self.read_position[1] - 1))

    def entries_read_ahead(self) -> int:
        """Returns the number of entries between the first unconsumed entry and the read position."""
        return self._owner.ledgers.entries_after(self.state.mark_delete) - self.entries_behind()

    def nth_unconsumed(self, count: int) -> Position:
        """Returns the position of the ``count``-th unconsumed entry.

        :param count: at least 1; if fewer entries are unconsumed, the position of the last entry is returned
        """
        start, ledgers = self.state.mark_delete, self._owner.ledgers
        low, high = count, ledgers.entries_after(start)
        while low < high:
            middle = (low + high) // 2
            position = ledgers.nth_after(start, middle)
            if middle - self.state.individually_deleted_up_to(position) < count:
                low = middle + 1
            else:
                high = middle
        return ledgers.nth_after(start, low) if count > 0 else start

    def first_unconsumed(self) -> Position:
        return self._owner.ledgers.after(self.state.mark_delete)

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the cursor's positions do not fit the ledgers
        """
        self.state.check()
        marked, ledgers = self.state.mark_delete, self._owner.ledgers
        must(self.read_position > marked, self.name, "reads", self.read_position, "and consumed", marked)
        last = max(self._owner.last_confirmed, (ledgers.first_id(), -1))
        must(marked <= last, self.name, "consumed", marked, "of what ends at", last)
        backlog, holes = ledgers.entries_after(marked), self.state.individually_deleted()
        must(holes <= backlog, self.name, "consumed", holes, "of", backlog, "entries")

    def describe_properties(self) -> dict[str, int]:
        return dict(self.storage.properties) if self.storage is not None else {}


def oldest_mark_delete(cursors: Sequence[Cursor]) -> Position | None:
    """Returns the lowest mark-delete position; None without cursors."""
    return min((cursor.mark_delete for cursor in cursors), default=None)
