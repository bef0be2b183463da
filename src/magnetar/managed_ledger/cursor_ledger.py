"""The ledger that a cursor writes its states to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerError, LedgerWriter
from magnetar.managed_ledger.single_entry import append_one


class CursorLedger:
    """One ledger of a cursor; its newest entry is the cursor's state.

    :param failed: called once when the ledger takes no more entries
    """

    def __init__(
        self, loop: Loop, writer: LedgerWriter, made_ms: int, failed: Callable[[CursorLedger], None]
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._failed = failed
        self.ledger_id = writer.ledger_id
        self.made_ms = made_ms
        self.entries = 0
        self._waiting: deque[tuple[int, Any]] = deque()
        writer.set_listener(self)

    def append(self, state: bytes) -> int:
        """Appends a state; returns its entry id at once.

        :raises LedgerClosed: the ledger has failed
        """
        entry_id = append_one(self._writer, state)
        self.entries = entry_id + 1
        return entry_id

    async def append_durably(self, state: bytes) -> None:
        """:raises LedgerError: the ledger failed before the state was durable"""
        future = self._loop.create_future()
        self._waiting.append((self.append(state), future))
        await future

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        # Only the newest state is ever read: what lies before it need not take room on a full disk.
        self._writer.forget_before(last_entry_id)
        while self._waiting and self._waiting[0][0] <= last_entry_id:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def on_failed(self, _ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _entry_id, future in waiting:
            if not future.done():
                future.set_exception(reason)
        self._failed(self)

    async def close(self) -> None:
        """:raises LedgerError: it had failed"""
        await self._writer.close()
