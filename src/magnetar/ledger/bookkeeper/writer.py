"""Writing a ledger: entries go out to bookies as they come, and count when an ack quorum has them, in order.

An entry that counts is on its way to the rest of its write quorum: a bookie that fails to store it is
replaced, for all entries from the first on that does not count yet.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from magnetar.io.interfaces import Buffer, Loop
from magnetar.io.waiting import finished, outcome, settle
from magnetar.ledger.bookkeeper.add_run import AddEncoder, AddRun
from magnetar.ledger.bookkeeper.adds import AddStream
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.bookkeeper.failures import MetadataFailed
from magnetar.ledger.bookkeeper.frames import Flag, Status, status_name
from magnetar.ledger.bookkeeper.hot_adds import Stripe, confirmed_through
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.merging import merged
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
"""How often somebody else may change the metadata meanwhile."""


class WriterCounts:
    """What writers of a store have been through since it was opened."""

    def __init__(self) -> None:
        self.replaced = 0
        """Bookies in ensembles that others took the place of."""
        self.fenced = 0
        """Writers that ended because somebody else recovers their ledger."""
        self.failed = 0
        """Writers that ended for other reasons, with entries or without."""


class WriterParts(NamedTuple):
    """What all writers of a store share."""

    loop: Loop
    records: LedgerRecords
    bookies: Bookies
    placement: Placement
    max_pending_bytes: int
    """Of adds that one bookie has not answered, or that wait for a connection with it: with more of them
    nothing counts that it still has to get."""
    ended: Callable[[int], object]
    """Told of a ledger whose writer has ended or closed it."""
    counts: WriterCounts


class _Place:
    """One bookie of the ensemble."""

    __slots__ = ("bookie", "first", "lost", "stream", "unsent")

    def __init__(self, bookie: Bookie, stream: AddStream, first: int) -> None:
        self.bookie = bookie
        self.stream = stream
        self.first = first
        """It gets no entries before this one."""
        self.lost = ""
        """How it failed."""
        self.unsent: list[AddRun] = []


class BookKeeperWriter:
    """The one writer of a ledger; its metadata was just made."""

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
        """Runs with entries that do not count yet."""
        self._growing: AddRun | None = None
        """The last one, as long as no bookie has got it."""
        self._places = [
            self._place(index, bookie_id, 0) for index, bookie_id in enumerate(record.segments[-1].ensemble)
        ]
        self._stripes = [place.stream.stripe for place in self._places]
        self._telling = False
        self._change: Any = None
        """While it goes on nothing counts that did not before."""
        self._tried: set[str] = set()
        """Bookies that failed since something counted last."""
        self._listener: LedgerListener | None = None
        self._refused: LedgerError | None = None
        """Why nothing can be appended."""
        self._over = False
        """Nothing is told any more."""
        self._sealing = False
        self._closing: Any = None
        self._settled: Any = None
        """Somebody waits until all entries count, or the writer has ended."""

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that counts, and all before it do; -1 for none."""
        return self._confirmed

    @property
    def last_appended(self) -> int:
        """The last entry there is; -1 for none."""
        return self._next - 1

    @property
    def record(self) -> LedgerRecord:
        """The ledger's metadata."""
        return self._found.record

    @property
    def confirmed_length(self) -> int:
        """Bytes of all entries up to that one."""
        after = self._confirmed + 1
        return self._encoder.length - sum(run.payload_bytes(after) for run in self._pending)

    def set_listener(self, listener: LedgerListener) -> None:
        self._listener = listener

    def append(self, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int) -> int:
        """See ``LedgerWriter.append``.

        :raises EntryTooLarge: no bookie takes such an entry; nothing was appended
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
            self._closing = self._loop.create_task(self._close())
        result: tuple[int, int] = await outcome(self._loop, self._closing)
        return result

    def forget_before(self, entry_id: int) -> None:
        """Bookies keep entries until the ledger is deleted."""

    def refuse(self, reason: LedgerError) -> None:
        """Takes no more appends; those that were made still count and are told."""
        if self._refused is None:
            self._refused = reason

    async def settled(self) -> None:
        """Returns when all entries count, or the writer has ended."""
        while not self._over and (self._confirmed + 1 < self._next or self._change is not None):
            if self._settled is None:
                self._settled = self._loop.create_future()
            await finished(self._loop, self._settled)

    def stop(self) -> None:
        """The store closes; the ledger stays as it is, and nobody is told."""
        if not self._over:
            self._leave()

    def fenced(self) -> None:
        """The ledger is recovered from here."""
        self.end(self._fenced("by a recovery in this process"))

    def end(self, reason: LedgerError) -> None:
        """What does not count by now never will."""
        if self._over:
            return
        self._leave()
        self._refused = reason
        counts = self._parts.counts
        if isinstance(reason, LedgerFenced):
            counts.fenced += 1
        elif not isinstance(reason, NoSuchLedger):
            counts.failed += 1
        log.info("a ledger's writer has ended", extra={"ledger": self.ledger_id, "reason": str(reason)})
        if self._listener is not None:
            on_failed = self._listener.on_failed
            self._loop.call_soon(on_failed, self.ledger_id, self._confirmed + 1, reason)
            # It refers to the writer in turn.
            self._listener = None

    async def look(self) -> None:
        """Somebody, perhaps this writer, has changed the ledger's metadata."""
        if self._over or self._sealing or self._change is not None:
            # What is being written finds out itself.
            return
        try:
            found = await self._parts.records.read(self.ledger_id)
        except MetadataFailed as error:
            log.info(
                "a ledger's metadata has changed and cannot be read",
                extra={"ledger": self.ledger_id, "reason": str(error)},
            )
            return
        except LedgerError as error:
            self.end(error)
            return
        if found.record.state is not LedgerState.OPEN and not self._sealing:
            self.end(self._fenced("its metadata says so"))

    # What bookies take and answer

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
            # What it need not get holds up nobody any more.
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
            # Those that fail in the same turn are replaced at once.
            self._change = self._loop.create_task(self._change_ensemble())

    def _tell(self) -> None:
        """What counts by now; once for all that bookies answered in a turn."""
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
        """Whether a bookie has so much to store that those who append must wait for it."""
        most = self._parts.max_pending_bytes
        # What waits for a connection is not pending yet, and is memory as well.
        from_here = self._encoder.length - most
        return any(
            (place.bookie.pending_bytes > most and place.stream.pending)
            or (place.unsent and place.unsent[0].before < from_here)
            for place in self._places
        )

    # Bookies that failed

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
        # Those that failed are neither asked nor heard once another bookie has their place.
        assert place.stream is stream
        return place

    async def _write_record(self, change: Callable[[LedgerRecord], LedgerRecord]) -> None:
        """Writes the metadata, with what AutoRecovery has done meanwhile.

        :raises LedgerFenced: somebody recovers the ledger, or has closed it
        :raises LedgerError: somebody changed it otherwise, or deleted it
        """
        records = self._parts.records
        for _ in range(_TRIES):
            known = self._found
            try:
                self._found = await records.write(self.ledger_id, change(known.record), known.version)
            except BadVersion:
                theirs = await records.read(self.ledger_id)
                if theirs.record.state is not LedgerState.OPEN:
                    raise self._fenced("its metadata says so") from None
                self._found = Versioned(merged(self.ledger_id, known.record, theirs.record), theirs.version)
            else:
                return
        raise LedgerError(f"the metadata of ledger {self.ledger_id} keeps changing")

    # The end

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
        return LedgerFenced(f"ledger {self.ledger_id} was opened for recovery by another process: {how}")
