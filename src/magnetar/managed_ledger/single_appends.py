"""Appends of single entries to a private managed ledger, waiting until each is durable."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import fail, settle
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position


class SingleAppends:
    """The listener of a managed ledger that has no other one.

    :param fenced: called once when another broker owns it
    """

    def __init__(self, loop: Loop, ledger: ManagedLedger, fenced: Callable[[], None]) -> None:
        self._loop = loop
        self.ledger = ledger
        self._fenced = fenced
        ledger.listener = self

    async def append_durably(self, entry: bytes) -> Position:
        """Appends an entry; returns its position when it is durable.

        :raises ManagedLedgerError: it accepts no more entries
        :raises LedgerError: the entry cannot be stored
        """
        durable = self._loop.create_future()
        size = len(entry)
        self.ledger.append(entry, array("q", (0,)), array("q", (size,)), 1, size, durable)
        position: Position = await durable
        return position

    def on_durable(self, appends: Sequence[Append]) -> None:
        for append in appends:
            settle(append.context, (append.ledger_id, append.first_entry_id))

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        for append in appends:
            fail(append.context, error)

    def on_fenced(self) -> None:
        self._fenced()
