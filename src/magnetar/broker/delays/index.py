"""The index of delayed entries: their positions in memory, their records in ledgers, and the saved state."""

from __future__ import annotations

import heapq
import logging
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from magnetar.broker.delays.runs import (
    BLOCK_RECORDS,
    RECORD_BYTES,
    DamagedIndex,
    Run,
    SavedState,
    blocks_of,
    decode_block,
    decode_state,
    encode_block,
    encode_state,
    pack_marks,
    time_of,
    unpack_marks,
)
from magnetar.invariants import Fail
from magnetar.io.interfaces import Task
from magnetar.io.slices import Slice, let_others, next_turn
from magnetar.io.tasks import TaskScope
from magnetar.ledger.interface import DataDamaged, EntryRun, LedgerError, NoSuchEntry, NoSuchLedger
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.owned_record import perhaps_written
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.side_ledgers import SideLedgers
from magnetar.metadata.interface import MetadataError

log = logging.getLogger(__name__)
PROPERTY = "magnetar.delayed"
"""The cursor's property with the ledgers of the index and the last position that the index covers."""
KIND = "delayed index"
"""The name of this work among the kinds of background work that runs in slices."""
_AHEAD_MS = 1000
"""A block is read this many milliseconds before its first entry is due."""
_READ_MOST = 16 * BLOCK_RECORDS
"""The number of records in memory, apart from one block per run, at which no more blocks are read ahead."""
LOST = (DamagedIndex, DataDamaged, NoSuchLedger, NoSuchEntry)
"""Errors that mean that an index is lost: reading it again would fail, too."""
_ROOM = 4096
"""The number of entries by which the marks of a ledger in :class:`WaitingPositions` grow."""


class DelayIndex:
    """The index of one subscription's delayed entries: runs of sorted records in ledgers.

    :param told: called with False when records were read into memory, and with True when the index was lost
    """

    def __init__(self, side: SideLedgers, told: Callable[[bool], None], failed: Fail) -> None:
        self._side = side
        self._told = told
        self.runs: list[Run] = []
        self.near: list[int] = []
        """Heap of records that were read from runs."""
        self.covers: Position = (-1, -1)
        """The last position that was waiting when the index was written, or a later one."""
        self._next: Run | None = None
        """The run whose next block is due first."""
        self._tasks = TaskScope(
            side.io.loop, "an index of delayed messages", lambda _work, error: failed(error)
        )
        self._reading: Task[None] | None = None
        self.closed = False

    def add_run(self, run: Run) -> None:
        self.runs.append(run)
        self._find_next()

    def _find_next(self) -> None:
        left = [run for run in self.runs if run.due is not None]
        self._next = min(left, key=lambda run: run.due or 0, default=None)

    @property
    def first_wanted_ms(self) -> int | None:
        """The time at which a record is due or a block must be read next, in ms since 1970; None: never."""
        found: int | None = None
        if self._next is not None and self._reading is None and not self._has_enough():
            found = (self._next.due or 0) - _AHEAD_MS
        if self.near:
            first = time_of(self.near[0])
            found = first if found is None else min(found, first)
        return found

    def size(self) -> int:
        return len(self.near) * RECORD_BYTES + sum(8 * len(run.fences) for run in self.runs)

    def _has_enough(self) -> bool:
        return len(self.near) >= _READ_MOST + BLOCK_RECORDS * len(self.runs)

    # Reading runs

    def read_due(self, cutoff_ms: int) -> None:
        """Starts to read the blocks whose first entries are due at ``cutoff_ms`` (ms since 1970) or soon
        after."""
        if self._reading is None and not self.closed and self._next_run(cutoff_ms) is not None:
            self._reading = self._tasks.start(self._read_due(cutoff_ms), "reading what is due")

    def _next_run(self, cutoff_ms: int) -> Run | None:
        """Returns the run whose next block is due first; None if that block need not be read yet."""
        found = self._next
        if found is None or self._has_enough() or (found.due or 0) > cutoff_ms + _AHEAD_MS:
            return None
        return found

    async def _read_due(self, cutoff_ms: int) -> None:
        lost = False
        try:
            while not self.closed and (run := self._next_run(cutoff_ms)) is not None:
                block = run.next_block
                entries = await self._side.read(run.ledger_id, block, block)
                if run not in self.runs:
                    continue
                records = decode_block(entries[0])
                run.was_read(records)
                self._find_next()
                for record in records:
                    heapq.heappush(self.near, record)
                await let_others(self._side.io.loop)
        except LOST as error:
            log.warning("index of delayed messages lost; rebuilding it", extra={"error": str(error)})
            lost = True
        except LedgerError as error:
            log.warning(
                "cannot read the index of delayed messages; trying again", extra={"error": str(error)}
            )
            await let_others(self._side.io.loop, 1.0)
        finally:
            self._reading = None
        if not self.closed:
            self._told(lost)

    # Writing

    async def write_run(self, records: Sequence[int]) -> Run:
        """Writes records, in ascending order, to a new run.

        :raises LedgerError: the run cannot be written
        """
        fences = array("q")

        async def entries() -> AsyncIterator[bytes]:
            running = Slice(self._side.io, KIND)
            for block in blocks_of(records):
                fences.append(time_of(block[0]))
                yield encode_block(block)
                if running.is_over():
                    running.end()
                    await next_turn(self._side.io)
                    running.begin()
            running.end()

        return Run(await self._side.write(entries()), fences)

    async def delete_run(self, run: Run) -> None:
        """Deletes a run that the cursor's property does not name."""
        await self._side.delete((run.ledger_id,))

    async def save(
        self, version: int, waiting: WaitingPositions, unsaved: Callable[[], WaitingPositions]
    ) -> None:
        """Saves the state of the index for the next load, and deletes runs that are no longer needed.

        :param version: how often the cursor was moved by other means than acknowledgements
        :param waiting: the positions of all waiting entries
        :param unsaved: returns the positions of ``waiting`` that are in no run at the moment
        :raises LedgerError, MetadataError, ManagedLedgerError: the state was not written; the previous state
            stays valid
        """
        for run in self.runs:
            run.settle(self.near[0] if self.near else None)
        if self.closed:
            return
        used_up = {run.ledger_id for run in self.runs if run.is_used_up}
        self.runs = [run for run in self.runs if not run.is_used_up]
        await self._side.delete(used_up - set(self._side.all))
        # First the runs, then what waits: an entry that is delivered in between may be in both without harm.
        runs = [Run(run.ledger_id, run.fences, run.wanted_from) for run in self.runs]
        if not runs:
            if PROPERTY in self._side.properties:
                await self._side.name(PROPERTY, None)
            return
        marks: dict[int, bytes] = {}
        running = Slice(self._side.io, KIND)
        for ledger_id in waiting.ledgers:
            packed = pack_marks(waiting.marks_without(ledger_id, unsaved()))
            if packed:
                marks[ledger_id] = packed
            if running.is_over():
                running.end()
                await next_turn(self._side.io)
                running.begin()
        running.end()
        state = encode_state(SavedState(self.covers, version, runs, marks))
        ledger_id = await self._side.write(_one_by_one(state))
        if self.closed:
            # A new index may have been started.
            await self._side.delete((ledger_id,))
            return
        ledgers = [ledger_id, *(run.ledger_id for run in runs)]
        try:
            await self._side.name(PROPERTY, {"ledgers": ledgers, "covers": self.covers, "version": version})
        except (MetadataError, ManagedLedgerError) as error:
            if not perhaps_written(error):
                await self._side.delete((ledger_id,))
            raise

    async def load(self, state: AcknowledgedState, version: int) -> WaitingPositions | None:
        """Loads the saved state; returns the waiting entries, or None if there is no usable state.

        :param state: the acknowledgements of the cursor
        :param version: how often the cursor was moved by other means than acknowledgements
        :raises LedgerError: the state cannot be read now
        """
        described = self._side.described(PROPERTY)
        if described is None:
            return None
        try:
            if described.get("version") != version:
                raise DamagedIndex("the cursor was moved after the index was saved")
            ledgers = described["ledgers"]
            saved = decode_state(await self._side.read(ledgers[0], 0, -1))
            if any(run.ledger_id not in ledgers[1:] for run in saved.runs):
                raise DamagedIndex(
                    "the index has runs in ledgers that the properties of the cursor do not list"
                )
            waiting = await self._unpack(saved, state)
        except (KeyError, IndexError, TypeError, *LOST) as error:
            log.warning(
                "cannot use the stored index of delayed messages; discarding it", extra={"error": str(error)}
            )
            await self.forget()
            return None
        self.runs, self.covers = saved.runs, saved.covers
        self._find_next()
        return waiting

    async def _unpack(self, saved: SavedState, state: AcknowledgedState) -> WaitingPositions:
        waiting = WaitingPositions()
        running = Slice(self._side.io, KIND)
        for ledger_id, packed in saved.marks.items():
            marks = unpack_marks(packed)
            ranges = state.ranges.get(ledger_id)
            if ranges is not None:
                ranges.clear_in(marks)
            waiting.take_marks(ledger_id, marks)
            if running.is_over():
                running.end()
                await next_turn(self._side.io)
                running.begin()
        running.end()
        waiting.drop_through(state.mark_delete)
        return waiting

    async def forget(self) -> None:
        """Removes the cursor's property and deletes the ledgers of the index, because the index is no longer
        valid.
        """
        runs, self.runs = self.runs, []
        self.near = []
        self._find_next()
        unnamed = {run.ledger_id for run in runs} - set(self._side.all)
        try:
            if PROPERTY in self._side.properties:
                await self._side.name(PROPERTY, None)
        except (MetadataError, ManagedLedgerError) as error:
            log.warning(
                "cannot remove the index of delayed messages from the cursor", extra={"error": str(error)}
            )
        await self._side.delete(unnamed)


async def _one_by_one(entries: Iterable[bytes]) -> AsyncIterator[bytes]:
    for entry in entries:
        yield entry


class WaitingPositions:
    """The set of positions of a topic's entries that wait for their delivery time; takes a byte per entry."""

    __slots__ = ("_counts", "_marks", "count")

    def __init__(self) -> None:
        self._marks: dict[int, bytearray] = {}
        self._counts: dict[int, int] = {}
        """The number of marked entries by ledger; never 0."""
        self.count = 0

    def __contains__(self, position: Position) -> bool:
        marks = self._marks.get(position[0])
        return marks is not None and position[1] < len(marks) and marks[position[1]] == 1

    def add(self, ledger_id: int, entry_id: int) -> bool:
        """Adds a position; returns whether it is new."""
        marks = self._marks.get(ledger_id)
        if marks is None:
            marks = self._marks[ledger_id] = bytearray()
            self._counts[ledger_id] = 0
        if entry_id >= len(marks):
            marks.extend(bytes(entry_id + _ROOM - len(marks)))
        elif marks[entry_id]:
            return False
        marks[entry_id] = 1
        self._counts[ledger_id] += 1
        self.count += 1
        return True

    def discard(self, ledger_id: int, entry_id: int) -> bool:
        """Removes a position; returns whether it was in the set."""
        if (ledger_id, entry_id) not in self:
            return False
        self._marks[ledger_id][entry_id] = 0
        self._gone(ledger_id, 1)
        return True

    def _gone(self, ledger_id: int, count: int) -> None:
        self.count -= count
        left = self._counts[ledger_id] - count
        if left:
            self._counts[ledger_id] = left
        else:
            del self._counts[ledger_id], self._marks[ledger_id]

    def has_any_of(self, run: EntryRun, first: int, end: int) -> bool:
        """Whether any of entries [first, end) of a run is in the set."""
        marks = self._marks.get(run.ledger_id)
        base = run.first_entry_id
        return marks is not None and marks.find(1, base + first, base + end) >= 0

    def marks_of(self, ledger_id: int, first: int, end: int) -> bytes | bytearray:
        """Returns a byte for each of entries [first, end) of a ledger: 1 if the entry is in the set,
        otherwise 0. The result may be shorter; entries after its end are not in the set."""
        marks = self._marks.get(ledger_id)
        return b"" if marks is None else marks[first:end]

    def drop_through(self, last: Position) -> None:
        """Removes all positions at or below ``last``."""
        for ledger_id in [each for each in self._marks if each <= last[0]]:
            marks = self._marks[ledger_id]
            end = len(marks) if ledger_id < last[0] else min(last[1] + 1, len(marks))
            dropped = marks.count(1, 0, max(end, 0))
            if dropped:
                marks[:end] = bytes(end)
                self._gone(ledger_id, dropped)

    @property
    def ledgers(self) -> list[int]:
        """Returns the ledgers that have positions in the set."""
        return list(self._marks)

    def marks_without(self, ledger_id: int, others: WaitingPositions) -> bytes:
        """Returns a byte for each entry of a ledger: 1 if the entry is in this set and not in ``others``,
        else 0."""
        marks = self._marks.get(ledger_id, bytearray())
        other = others._marks.get(ledger_id)
        if other is None:
            return bytes(marks)
        mine, theirs = int.from_bytes(marks, "little"), int.from_bytes(other, "little")
        return (mine & ~theirs).to_bytes(len(marks), "little")

    def take_marks(self, ledger_id: int, marks: bytearray) -> None:
        """Adds the marks of a ledger of which no entry is in the set yet."""
        count = marks.count(1)
        if count:
            self._marks[ledger_id] = marks
            self._counts[ledger_id] = count
            self.count += count

    def add_all(self, other: WaitingPositions) -> None:
        """Adds the positions of another set."""
        for ledger_id, marks in other._marks.items():
            mine = self._marks.pop(ledger_id, bytearray())
            self.count -= self._counts.pop(ledger_id, 0)
            size = max(len(mine), len(marks))
            both = int.from_bytes(mine, "little") | int.from_bytes(marks, "little")
            self.take_marks(ledger_id, bytearray(both.to_bytes(size, "little")))

    def clear(self) -> None:
        self._marks.clear()
        self._counts.clear()
        self.count = 0

    def size(self) -> int:
        """Returns the bytes of all marks."""
        return sum(map(len, self._marks.values()))
