"""The ledger to which a cursor writes its states."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerWriter
from magnetar.managed_ledger.single_entry import SingleEntries


class CursorLedger:
    """One ledger of a cursor; its newest entry is the cursor's state.

    :param failed: called once when the ledger accepts no more entries
    """

    def __init__(
        self, loop: Loop, writer: LedgerWriter, made_ms: int, failed: Callable[[CursorLedger], None]
    ) -> None:
        self._writer = writer
        self.ledger_id = writer.ledger_id
        self.made_ms = made_ms
        self._states = SingleEntries(loop, writer, lambda: failed(self), newest_only=True)

    @property
    def entries(self) -> int:
        return self._states.count

    def append(self, *state: bytes) -> int:
        """Appends a state, in one or more parts; returns the entry id of the last one without waiting.

        :raises LedgerClosed: the ledger has failed
        """
        return self._states.append(*state)

    async def append_durably(self, *state: bytes) -> None:
        """:raises LedgerError: the ledger failed before the state was durable"""
        await self._states.append_durably(*state)

    async def close(self) -> None:
        """:raises LedgerError: the ledger had failed"""
        await self._writer.close()
