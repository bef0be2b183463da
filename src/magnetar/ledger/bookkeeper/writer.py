"""Writes a ledger: sends entries to the bookies without delay, and confirms them in order, each entry once an
ack quorum has it.

A confirmed entry is still being added to the rest of its write quorum. A bookie that fails to store an entry
is replaced, for the entries that are not confirmed yet.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from magnetar.io.interfaces import Buffer, Future, Loop, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, outcome, settle
from magnetar.ledger.bookkeeper.adds import AddEncoder, AddRun, AddStream
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.bookkeeper.frames import Flag, Status, status_name
from magnetar.ledger.bookkeeper.hot_adds import Stripe, confirmed_through
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, MetadataFailed, merged
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.placement import Placement
from magnetar.ledger.interface import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerListener,
    LedgerState,
    NoSuchLedger,
)
from magnetar.metadata.interface import BadVersion

log = logging.getLogger(__name__)

_TRIES = 20
"""The number of changes of the metadata by other clients after which a change by a writer fails."""


class WriterCounts:
    """Counts over all writers of a store, since the store was opened."""

    def __init__(self) -> None:
        self.replaced = 0
        """The number of bookies that were replaced in ensembles."""
        self.fenced = 0
        """The number of writers that ended because their ledger was opened for recovery."""
        self.failed = 0
        """The number of writers that ended for other reasons; writers of deleted ledgers do not count."""


class WriterParts(NamedTuple):
    """The objects that all writers of a store share."""

    loop: Loop
    records: LedgerRecords
    bookies: Bookies
    placement: Placement
    max_pending_bytes: int
    """The maximum number of bytes of adds that one bookie has not answered, or that wait for a connection to
    it. While a bookie has more, no further entries are confirmed in the ledgers whose entries it must
    still store."""
    ended: Callable[[int], object]
    """Called with the id of a ledger after its writer has ended, or has closed the ledger."""
    counts: WriterCounts


class _Place:
    """A bookie of the ensemble, and the entries that it must store."""

    __slots__ = ("bookie", "first", "lost", "stream", "unsent")

    def __init__(self, bookie: Bookie, stream: AddStream, first: int) -> None:
        self.bookie = bookie
        self.stream = stream
        self.first = first
        """The id of the first entry that the bookie must store."""
        self.lost = ""
        """The reason why the bookie failed; empty: the bookie has not failed."""
        self.unsent: list[AddRun] = []


class BookKeeperWriter:
    """The only writer of a ledger, whose metadata was just created."""

    def __init__(self, ledger_id: int, found: Versioned, parts: WriterParts, flags: Flag = Flag.NONE) -> None:
        self.ledger_id = ledger_id
        self._found = found
        self._parts = parts
        self._loop = parts.loop
        record = found.record
        self._write = record.quorums.write
        self._ack = record.quorums.ack
        self._encoder = AddEncoder(
            ledger_id, record, flags, parts.bookies.wire, parts.bookies.max_frame_bytes
        )
        self._next = 0
        self._confirmed = -1
        self._pending: deque[AddRun] = deque()
        """Runs with entries that are not confirmed yet."""
        self._growing: AddRun | None = None
        """The last run, to which entries are added until it is sent to a bookie; None: the next append begins
        a run."""
        self._places = [
            self._place(index, bookie_id, 0) for index, bookie_id in enumerate(record.segments[-1].ensemble)
        ]
        self._stripes = [place.stream.stripe for place in self._places]
        self._telling = False
        self._tasks = TaskScope(parts.loop, f"the writer of ledger {ledger_id}", self._internal_error)
        self._change: Task[None] | None = None
        """The task that changes the ensemble; while it runs, no further entries are confirmed. None: the
        ensemble is not being changed."""
        self._tried: set[str] = set()
        """Bookies that failed since an entry was last confirmed."""
        self._listener: LedgerListener | None = None
        self._refused: LedgerError | None = None
        """The error that :meth:`append` raises; None: entries can be appended."""
        self._over = False
        """Whether the listener gets no more calls."""
        self._sealing = False
        self._closing: Task[tuple[int, int]] | None = None
        self._settled: Future[None] | None = None
        """A future that completes when all entries are confirmed, or the writer has ended; None: nobody waits
        for this."""

    @property
    def last_add_confirmed(self) -> int:
        """The id of the last entry up to which all entries are confirmed; -1: no entry is confirmed."""
        return self._confirmed

    @property
    def last_appended(self) -> int:
        """The id of the last appended entry; -1: no entry was appended."""
        return self._next - 1

    @property
    def record(self) -> LedgerRecord:
        """The ledger's metadata."""
        return self._found.record

    @property
    def confirmed_length(self) -> int:
        """The payload bytes of all entries up to :attr:`last_add_confirmed`."""
        after = self._confirmed + 1
        return self._encoder.length - sum(run.payload_bytes(after) for run in self._pending)

    def set_listener(self, listener: LedgerListener) -> None:
        self._listener = listener

    def append(self, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int) -> int:
        """Appends entries; see ``LedgerWriter.append``.

        :raises EntryTooLarge: an entry is larger than bookies accept; nothing was appended
        """
        if self._refused is not None:
            raise LedgerClosed(f"ledger {self.ledger_id} accepts no more entries: {self._refused}")
        entry_id = self._next
        run = self._growing
        if run is None:
            run = AddRun(entry_id, self._encoder.length)
            self._encoder.add(run, self._confirmed, buffer, starts, ends, first, count)
            self._growing = run
            self._pending.append(run)
            for place in self._places:
                place.unsent.append(run)
                place.bookie.add_soon(place.stream)
        else:
            self._encoder.add(run, self._confirmed, buffer, starts, ends, first, count)
        self._next = entry_id + count
        return entry_id

    async def close(self) -> tuple[int, int]:
        if self._closing is None:
            if self._refused is not None:
                raise self._refused
            self._refused = LedgerClosed(f"the writer of ledger {self.ledger_id} is closed")
            self._closing = self._tasks.answer(self._close())
        return await outcome(self._loop, self._closing)

    def forget_before(self, entry_id: int) -> None:
        """Does nothing, because bookies keep entries until the ledger is deleted."""

    def refuse(self, reason: LedgerError) -> None:
        """Accepts no more appends; earlier ones are still confirmed and reported."""
        if self._refused is None:
            self._refused = reason

    async def settled(self) -> None:
        """Waits until the writer has ended, or all entries are confirmed and no bookie is being replaced."""
        while not self._over and (self._confirmed + 1 < self._next or self._change is not None):
            if self._settled is None:
                self._settled = self._loop.create_future()
            await finished(self._loop, self._settled)

    def stop(self) -> None:
        """Stops because the store is closing; the ledger is not changed, and no callbacks follow."""
        if not self._over:
            self._leave()

    def fenced(self) -> None:
        """Ends the writer because this process recovers the ledger."""
        self.end(self._fenced("by a recovery in this process"))

    def end(self, reason: LedgerError) -> None:
        """Ends the writer: entries that are not confirmed yet never will be."""
        if self._over:
            return
        self._leave()
        self._refused = reason
        counts = self._parts.counts
        if isinstance(reason, LedgerFenced):
            counts.fenced += 1
        elif not isinstance(reason, NoSuchLedger):
            counts.failed += 1
        log.info("writer of a ledger ended", extra={"ledger": self.ledger_id, "reason": str(reason)})
        if self._listener is not None:
            on_failed = self._listener.on_failed
            self._loop.call_soon(on_failed, self.ledger_id, self._confirmed + 1, reason)
            # Breaks the reference cycle.
            self._listener = None

    def _internal_error(self, work: str, error: BaseException) -> None:
        """Ends the writer after an internal error, because the writer may be wrong about which bookies have
        which entries. The ledger is recovered before it is read.
        """
        self.end(LedgerError(f"ledger {self.ledger_id}: {work} failed because of an internal error: {error}"))

    async def look(self) -> None:
        """Reads the ledger's metadata after a change, which may be this writer's own."""
        if self._over or self._sealing or self._change is not None:
            # The write in progress will notice the change.
            return
        try:
            found = await self._parts.records.read(self.ledger_id)
        except MetadataFailed as error:
            log.info(
                "cannot read the changed metadata of a ledger",
                extra={"ledger": self.ledger_id, "reason": str(error)},
            )
            return
        except LedgerError as error:
            self.end(error)
            return
        if found.record.state is not LedgerState.OPEN and not self._sealing:
            self.end(self._fenced("its metadata is no longer in the state OPEN"))

    # Adds and answers

    def sending(self, stream: AddStream) -> tuple[Sequence[Buffer], int, int]:
        self._growing = None
        place = self._place_of(stream)
        runs, place.unsent = place.unsent, []
        if len(runs) == 1:
            return runs[0].part(stream.stripe, place.first)
        pieces: list[Buffer] = []
        last, size = -1, 0
        for run in runs:
            some, last_of_run, bytes_of_run = run.part(stream.stripe, place.first)
            pieces += some
            last = max(last, last_of_run)
            size += bytes_of_run
        if not size:
            # Entries that this bookie need not get are not held up by it any more.
            self.on_added(stream)
        return pieces, last, size

    def on_added(self, stream: AddStream) -> None:
        if not self._telling:
            self._telling = True
            self._loop.call_soon(self._tell)

    def on_not_added(self, stream: AddStream, status: int) -> None:
        place = self._place_of(stream)
        bookie_id = place.bookie.bookie_id
        if status == Status.FENCED:
            self.end(self._fenced(f"bookie {bookie_id} says so"))
            return
        place.lost = status_name(status)
        place.unsent.clear()
        if status != Status.READ_ONLY:
            self._parts.bookies.failed(bookie_id)
        if self._change is None and not self._sealing:
            # Bookies that fail in the same turn are replaced together.
            self._change = self._tasks.start(self._change_ensemble(), "the change of its bookies")

    def _tell(self) -> None:
        """Reports newly confirmed entries, once for all answers of a turn of the loop."""
        self._telling = False
        if self._over or self._change is not None:
            return
        confirmed = confirmed_through(self._stripes, self._write, self._ack, self._confirmed + 1, self._next)
        if confirmed <= self._confirmed or self._too_far_behind():
            return
        self._confirmed = confirmed
        self._tried.clear()
        pending = self._pending
        while pending and pending[0].last <= confirmed:
            pending.popleft()
        self._wake()
        if self._listener is not None:
            self._listener.on_durable(self.ledger_id, confirmed)

    def _too_far_behind(self) -> bool:
        """Whether the unanswered or unsent bytes of a bookie exceed the limit above which no further entries
        may be confirmed."""
        most = self._parts.max_pending_bytes
        # Entries that wait for a connection are not pending yet, but take memory as well.
        from_here = self._encoder.length - most
        return any(
            (place.bookie.pending_bytes > most and place.stream.pending)
            or (place.unsent and place.unsent[0].before < from_here)
            for place in self._places
        )

    # Failed bookies

    async def _change_ensemble(self) -> None:
        try:
            while not self._over and any(place.lost for place in self._places):
                await self._replace_lost()
        except LedgerError as error:
            self.end(error)
        finally:
            self._change = None
        self._tell()
        self._wake()

    async def _replace_lost(self) -> None:
        first = self._confirmed + 1
        record = self._found.record
        ensemble = record.segments[-1].ensemble
        lost = {index: place.lost for index, place in enumerate(self._places) if place.lost}
        self._tried.update(ensemble[index] for index in lost)
        chosen = self._parts.placement.replaced(ensemble, lost, record.placed, self._tried)
        await self._write_record(lambda known: known.with_ensemble(first, chosen))
        if self._over:
            return
        log.warning(
            "bookies of a ledger replaced",
            extra={
                "ledger": self.ledger_id,
                "first_entry": first,
                "lost": ", ".join(f"{ensemble[index]}: {how}" for index, how in lost.items()),
                "instead": ", ".join(chosen[index] for index in lost),
            },
        )
        self._parts.counts.replaced += len(lost)
        for index in lost:
            place = self._places[index] = self._place(index, chosen[index], first)
            self._stripes[index] = place.stream.stripe
            place.unsent += self._pending
            place.bookie.add_soon(place.stream)

    def _place(self, index: int, bookie_id: str, first: int) -> _Place:
        stripe = Stripe(index, self._found.record.quorums.ensemble, self._write, first)
        bookie = self._parts.bookies.bookie(bookie_id)
        return _Place(bookie, AddStream(self.ledger_id, stripe, self), first)

    def _place_of(self, stream: AddStream) -> _Place:
        place = self._places[stream.stripe.index]
        # A failed bookie gets no requests and its answers are ignored once another one has its place.
        assert place.stream is stream
        return place

    async def _write_record(self, change: Callable[[LedgerRecord], LedgerRecord]) -> None:
        """Writes the metadata, merged with AutoRecovery's changes.

        :raises LedgerFenced: the ledger is being recovered, or was closed, by another client
        :raises LedgerError: the metadata was changed in another way, or deleted
        """
        records = self._parts.records
        for _ in range(_TRIES):
            known = self._found
            try:
                self._found = await records.write(self.ledger_id, change(known.record), known.version)
            except BadVersion:
                theirs = await records.read(self.ledger_id)
                if theirs.record.state is not LedgerState.OPEN:
                    raise self._fenced("its metadata is no longer in the state OPEN") from None
                self._found = Versioned(merged(self.ledger_id, known.record, theirs.record), theirs.version)
            else:
                return
        raise LedgerError(f"the metadata of ledger {self.ledger_id} keeps changing")

    # Closing

    async def _close(self) -> tuple[int, int]:
        await self.settled()
        if not self._over:
            self._sealing = True
            last, length = self._confirmed, self._encoder.length
            try:
                await self._write_record(lambda known: known.closed(last, length))
            except LedgerError as error:
                self.end(error)
            else:
                self._leave()
                return last, length
        assert self._refused is not None
        raise self._refused

    def _leave(self) -> None:
        self._over = True
        for place in self._places:
            place.stream.leave()
            place.unsent.clear()
        self._pending.clear()
        self._parts.ended(self.ledger_id)
        self._wake()

    def _wake(self) -> None:
        if self._settled is not None:
            settle(self._settled)
            self._settled = None

    def _fenced(self, how: str) -> LedgerFenced:
        return LedgerFenced(f"ledger {self.ledger_id} was opened for recovery: {how}")
