"""Appending one entry that stands alone, and waiting until it is durable: cursor states, schemas."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import fail, settle
from magnetar.ledger.interface import LedgerError, LedgerWriter


class SingleEntries:
    """Entries of one ledger, appended one at a time; it is the listener of the ledger's writer.

    :param failed: called once when the ledger takes no more entries
    :param newest_only: nobody reads what lies before the newest: it need not take room on a full disk
    """

    def __init__(
        self,
        loop: Loop,
        writer: LedgerWriter,
        failed: Callable[[], None] | None = None,
        *,
        newest_only: bool = False,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._failed = failed
        self._newest_only = newest_only
        self.count = 0
        """Entries appended, durable or not."""
        self._waiting: deque[tuple[int, Any]] = deque()
        writer.set_listener(self)

    def append(self, entry: bytes) -> int:
        """Appends an entry; returns its id at once.

        :raises LedgerClosed: the ledger has failed
        """
        entry_id = self._writer.append(entry, array("q", (0,)), array("q", (len(entry),)), 0, 1)
        self.count = entry_id + 1
        return entry_id

    async def append_durably(self, entry: bytes) -> int:
        """Appends an entry; returns its id when it is durable.

        :raises LedgerError: the ledger failed before
        """
        durable = self._loop.create_future()
        entry_id = self.append(entry)
        self._waiting.append((entry_id, durable))
        await durable
        return entry_id

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        if self._newest_only:
            self._writer.forget_before(last_entry_id)
        while self._waiting and self._waiting[0][0] <= last_entry_id:
            settle(self._waiting.popleft()[1])

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _entry_id, durable in waiting:
            fail(durable, reason)
        if self._failed is not None:
            self._failed()
