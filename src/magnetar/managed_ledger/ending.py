"""The state of a managed ledger, its rolls to the next ledger, and its end: termination, closing, or
deletion."""

from __future__ import annotations

import logging
import weakref
from enum import Enum
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Cancellable, Io, Loop, Task
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, report
from magnetar.ledger.interface import LedgerError, LedgerStore
from magnetar.managed_ledger.current_ledger import CurrentLedger, LedgerCreation
from magnetar.managed_ledger.errors import ManagedLedgerClosed, ManagedLedgerFenced, ManagedLedgerTerminated
from magnetar.managed_ledger.ledgers_record import LedgersRecord
from magnetar.managed_ledger.position import Position
from magnetar.metadata.interface import MetadataError

if TYPE_CHECKING:
    from magnetar.managed_ledger.managed_ledger import ManagedLedger


log = logging.getLogger(__name__)


class Rolling:
    """The rolls of one managed ledger to its next ledger: one roll at a time, with pauses after failures."""

    __slots__ = (
        "_io",
        "_next",
        "_owner",
        "_record",
        "_task",
        "_tasks",
        "creation",
        "last_failed_ms",
        "writer_fenced",
    )

    def __init__(
        self, managed_ledger: ManagedLedger, record: LedgersRecord, io: Io, store: LedgerStore
    ) -> None:
        # So that reference counting alone frees the managed ledger; a roll holds a reference.
        self._owner: weakref.ref[ManagedLedger] = weakref.ref(managed_ledger)
        own: ManagedLedger = weakref.proxy(managed_ledger)
        self._record = record
        self._io = io
        last = record.ledgers.last()
        last_id = -1 if last is None else last.ledger_id
        self.creation = LedgerCreation(io.loop, store, own.name, last_id, record.delete_unlisted)
        self._tasks = TaskScope(io.loop, own.name, lambda _work, error: own.fail(error))
        self._task: Task[None] | None = None
        self._next: Cancellable | None = None
        """The timer of the pause after a failed roll, while appends wait; None: there is no pause."""
        self.writer_fenced = False
        """Whether the writer was fenced, so that the ownership must be checked in the record before the next
        roll."""
        self.last_failed_ms = 0
        """The time of the last failed roll, in ms since 1970; 0: no roll has failed."""

    @property
    def expected(self) -> bool:
        """Whether a roll is in progress, or waits for the end of the pause after a failure."""
        return self._task is not None or self._next is not None

    def start(self) -> None:
        """Starts a new ledger, at once or after the pause that follows a failure."""
        owner = self._owner()
        if owner is None or self._task is not None or owner.state not in (State.OPEN, State.NEEDS_LEDGER):
            return
        pause = self.creation.seconds_left
        if pause > 0:
            if self._next is None:
                self._next = self._io.loop.call_later(pause, self._end_pause, owner)
            return
        owner.enter(State.ROLLING)
        self._task = self._tasks.start(self._run(owner), "the roll to a new ledger")

    def _end_pause(self, owner: ManagedLedger) -> None:
        self._next = None
        if owner.appends.waiting or self.writer_fenced:
            self.start()

    def stop(self) -> None:
        """Cancels a roll that waits for the end of the pause after a failure."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    async def _run(self, owner: ManagedLedger) -> None:
        try:
            if self.writer_fenced and not await self._record.still_owned():
                raise ManagedLedgerFenced(f"{owner.name} is owned by another broker")
            await owner.roll()
        except ManagedLedgerFenced:
            owner.fenced()
        except (LedgerError, MetadataError) as error:
            self._failed(owner, error)
        except Exception as error:  # noqa: BLE001 - reported, and passed to the waiting appends
            report(self._io.loop, owner.roll, error)
            self._failed(owner, error)
        finally:
            self._task = None
        owner.drain()
        if self.writer_fenced:
            # The stop of appends does not depend on it, but the roll finds out which broker is the owner.
            self.start()

    def _failed(self, owner: ManagedLedger, error: Exception) -> None:
        log.error("cannot create a ledger", extra={"managed_ledger": owner.name, "error": str(error)})
        self.last_failed_ms = self._io.clock.wall_ms()
        self.creation.failed()
        if owner.state is State.ROLLING:
            owner.enter(State.NEEDS_LEDGER)
        owner.fail_waiting(error)

    def listed(self, ledger_id: int) -> None:
        """Called when the metadata record of the managed ledger lists a new ledger."""
        self.creation.listed(ledger_id)
        self.writer_fenced = False

    async def ended(self) -> None:
        """Waits until no roll is in progress."""
        while self._task is not None:
            await finished(self._io.loop, self._task)


class Ending:
    """The end of one managed ledger: termination, closing or deletion, one operation at a time."""

    def __init__(
        self, managed_ledger: ManagedLedger, record: LedgersRecord, current: CurrentLedger, loop: Loop
    ) -> None:
        # Callers hold a reference.
        self._owner: ManagedLedger = weakref.proxy(managed_ledger)
        self._record = record
        self._current = current
        self._mutex = Mutex(loop)

    async def terminate(self) -> Position:
        """Terminates the managed ledger; see
        :meth:`magnetar.managed_ledger.managed_ledger.ManagedLedger.terminate`."""
        owner = self._owner
        async with self._mutex:
            if self._record.terminated is not None:
                return self._record.terminated
            await owner.rolling.ended()
            if owner.lost:
                raise ManagedLedgerClosed(f"{owner.name} is closed")
            owner.enter(State.TERMINATING)
            try:
                await self._current.close()
                end = owner.last_confirmed
                await self._record.terminate(end)
            except ManagedLedgerFenced:
                owner.fenced()
                raise
            except BaseException:
                self._go_on()
                raise
            if not owner.lost:
                owner.enter(State.TERMINATED)
            owner.write_again()
            owner.fail_waiting(ManagedLedgerTerminated(f"{owner.name} is terminated"))
            return end

    def _go_on(self) -> None:
        """Reopens the managed ledger for appends, because its termination could not be made durable."""
        owner = self._owner
        if owner.state is State.TERMINATING:
            owner.enter(State.NEEDS_LEDGER)
            if owner.appends.waiting:
                owner.start_roll()

    async def close(self) -> None:
        """Closes the managed ledger; see
        :meth:`magnetar.managed_ledger.managed_ledger.ManagedLedger.close`."""
        owner = self._owner
        async with self._mutex:
            if owner.state is State.CLOSED:
                return
            try:
                await self._end()
                await owner.cursors.close()
            finally:
                # A write that failed now must not happen later, when another broker owns it.
                await self._record.stored.tenure.over()
                self._let_go()
            owner.reader.close()

    def _let_go(self) -> None:
        """Drops references to the managed ledger, so that reference counting frees it.

        A fenced managed ledger may have appends whose outcome its last writer has not reported. Their
        publishers wait for the outcome, so the references are kept, and the garbage collector frees the
        managed ledger later.
        """
        owner = self._owner
        if owner.appends.written:
            return
        self._current.let_go()
        owner.cursors.forget_all()
        owner.listener = None

    async def _end(self) -> None:
        """Ends appending. When this returns, no append is in progress, and no new append is accepted."""
        owner = self._owner
        if owner.offloader is not None:
            await owner.offloader.stop()
        await self._settle()
        owned = not owner.lost
        owner.enter(State.CLOSED)
        if owned:
            await self._current.release()
        owner.fail_waiting(ManagedLedgerClosed(f"{owner.name} is closed"))
        owner.rolling.stop()
        await self._settle()

    async def _settle(self) -> None:
        await self._owner.rolling.ended()
        await self._owner.trimmer.settle()

    async def delete(self) -> None:
        """Deletes the managed ledger; see
        :meth:`magnetar.managed_ledger.managed_ledger.ManagedLedger.delete`."""
        owner = self._owner
        async with self._mutex:
            was_lost = owner.lost
            await self._end()
            try:
                if not await self._record.delete(owner.name, owner.cursors.storages()):
                    log.info("managed ledger record already deleted", extra={"managed_ledger": owner.name})
            except ManagedLedgerFenced:
                if not was_lost:
                    owner.end_ownership()
                raise
            self._let_go()
            owner.reader.close()


class State(Enum):
    """The state of a managed ledger, which determines the permitted operations; the values are Pulsar's."""

    OPEN = "LedgerOpened"
    ROLLING = "CreatingLedger"
    NEEDS_LEDGER = "ClosedLedger"
    TERMINATING = "ClosingLedger"
    """Appends wait: they fail when the termination is durable, and are written if the termination fails."""
    TERMINATED = "Terminated"
    FENCED = "Fenced"
    CLOSED = "Closed"


_ENDS = frozenset((State.FENCED, State.CLOSED))
FOLLOWING = {
    State.OPEN: _ENDS | {State.NEEDS_LEDGER, State.ROLLING, State.TERMINATING},
    State.ROLLING: _ENDS | {State.OPEN, State.NEEDS_LEDGER},
    # A shadow has no ledger of its own, and is terminated with its source.
    State.NEEDS_LEDGER: _ENDS | {State.OPEN, State.ROLLING, State.TERMINATING, State.TERMINATED},
    State.TERMINATING: _ENDS | {State.NEEDS_LEDGER, State.TERMINATED},
    # The source of a shadow may be deleted and created again.
    State.TERMINATED: _ENDS | {State.NEEDS_LEDGER},
    State.FENCED: _ENDS,
    # A deletion finds out last that another broker is the owner.
    State.CLOSED: _ENDS,
}
"""The states that may follow each state."""
