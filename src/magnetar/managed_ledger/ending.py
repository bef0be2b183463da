"""The states of a managed ledger, and its ends: terminated, closed by its owner, or deleted."""

from __future__ import annotations

import logging
import weakref
from enum import Enum
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Loop
from magnetar.io.locks import Mutex
from magnetar.managed_ledger.current_ledger import CurrentLedger
from magnetar.managed_ledger.errors import ManagedLedgerClosed, ManagedLedgerFenced, ManagedLedgerTerminated
from magnetar.managed_ledger.ledgers_record import LedgersRecord
from magnetar.managed_ledger.position import Position

if TYPE_CHECKING:
    from magnetar.managed_ledger.managed_ledger import ManagedLedger


log = logging.getLogger(__name__)


class Ending:
    """Ends one managed ledger, in one way at a time."""

    def __init__(
        self, managed_ledger: ManagedLedger, record: LedgersRecord, current: CurrentLedger, loop: Loop
    ) -> None:
        # Callers hold a reference.
        self._owner: ManagedLedger = weakref.proxy(managed_ledger)
        self._record = record
        self._current = current
        self._mutex = Mutex(loop)

    async def terminate(self) -> Position:
        """See :meth:`magnetar.managed_ledger.managed_ledger.ManagedLedger.terminate`."""
        owner = self._owner
        async with self._mutex:
            if self._record.terminated is not None:
                return self._record.terminated
            await owner.rolled()
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
        """Continues after the end could not be made durable."""
        owner = self._owner
        if owner.state is State.TERMINATING:
            owner.enter(State.NEEDS_LEDGER)
            if owner.appends.waiting:
                owner.start_roll()

    async def close(self) -> None:
        """See :meth:`magnetar.managed_ledger.managed_ledger.ManagedLedger.close`."""
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
        """Drops what refers back to the managed ledger, so that reference counting frees it.

        A managed ledger that was fenced may have appends whose outcome its last writer has not reported.
        Their publishers wait for that, so the references are kept, and the garbage collector frees it later.
        """
        owner = self._owner
        if owner.appends.written:
            return
        self._current.let_go()
        owner.cursors.forget_all()
        owner.listener = None

    async def _end(self) -> None:
        """When this returns no append is in progress, and none can begin."""
        owner = self._owner
        await self._settle()
        owned = not owner.lost
        owner.enter(State.CLOSED)
        if owned:
            await self._current.release()
        owner.fail_waiting(ManagedLedgerClosed(f"{owner.name} is closed"))
        owner.stop_rolling()
        await self._settle()

    async def _settle(self) -> None:
        await self._owner.rolled()
        await self._owner.trimmer.settle()

    async def delete(self) -> None:
        """See :meth:`magnetar.managed_ledger.managed_ledger.ManagedLedger.delete`."""
        owner = self._owner
        async with self._mutex:
            was_lost = owner.lost
            await self._end()
            try:
                if not await self._record.delete(owner.cursors.storages()):
                    log.info("managed ledger record already deleted", extra={"managed_ledger": owner.name})
            except ManagedLedgerFenced:
                if not was_lost:
                    owner.end_ownership()
                raise
            self._let_go()
            owner.reader.close()


class State(Enum):
    """The state of a managed ledger, which determines what may be done with it; the values are those of
    Pulsar.
    """

    OPEN = "LedgerOpened"
    ROLLING = "CreatingLedger"
    NEEDS_LEDGER = "ClosedLedger"
    TERMINATING = "ClosingLedger"
    """Appends wait: they fail when the termination is durable, and are written if that fails."""
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
