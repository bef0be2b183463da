"""The ledger of a managed ledger to which entries are appended."""

from __future__ import annotations

import logging

from magnetar.invariants import must
from magnetar.io.interfaces import Clock
from magnetar.ledger.interface import LedgerError, LedgerStore, LedgerWriter
from magnetar.managed_ledger.records import LedgerSummary
from magnetar.managed_ledger.settings import ManagedLedgerSettings

log = logging.getLogger(__name__)


class _Nobody:
    """The listener of a writer after its managed ledger was closed."""

    def on_durable(self, ledger_id: int, last_entry_id: int) -> None:
        """The result is no longer of interest."""

    def on_failed(self, ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        """The appends were reported as failed before."""


_NOBODY = _Nobody()


class CurrentLedger:
    """Holds one ledger after another; none before the first append."""

    __slots__ = ("_clock", "_name", "_store", "entries", "made_ms", "size", "summary", "writer")

    def __init__(self, clock: Clock, store: LedgerStore, name: str) -> None:
        """:param name: of the managed ledger"""
        self._clock = clock
        self._store = store
        self._name = name
        self.writer: LedgerWriter | None = None
        """None also after it has failed or was closed."""
        self.summary: LedgerSummary | None = None
        """The entry in the managed ledger's list: what is durable."""
        self.entries = 0
        """Entries appended, durable or not; updated by the caller, once per run."""
        self.size = 0
        """Bytes of these entries."""
        self.made_ms = 0

    def begin(self, writer: LedgerWriter, summary: LedgerSummary, made_ms: int) -> None:
        """Replaces the ledger."""
        self.writer, self.summary, self.made_ms = writer, summary, made_ms
        self.entries = self.size = 0

    def room(self, settings: ManagedLedgerSettings) -> int:
        """Returns how many more entries the ledger takes."""
        return settings.room(self.entries, self.size, self._clock.wall_ms() - self.made_ms)

    async def close(self) -> None:
        """Closes the ledger at its last acknowledged entry; without a ledger there is nothing to do.

        :raises LedgerError: the ledger can neither be closed nor recovered
        """
        writer, summary = self.writer, self.summary
        if summary is None or summary.closed_ms:
            return
        if writer is not None:
            try:
                last, length = await writer.close()
            except LedgerError as error:
                self._told_of(writer, error)
                writer = None
            else:
                summary.entries, summary.size = last + 1, length
        if writer is None:
            # Entries of the failed ledger after the last acknowledged one are never read, because of its
            # stored count.
            reader = await self._store.open(summary.ledger_id, recover=True)
            reader.close()
        summary.closed_ms = max(self._clock.wall_ms(), 1)
        self.writer = None

    async def release(self) -> None:
        """Ends the writer without closing the ledger, which is recovered by the next opening."""
        writer = self.writer
        if writer is not None:
            try:
                await writer.close()
            except LedgerError as error:
                self._told_of(writer, error)

    def let_go(self) -> None:
        """Drops the writer, which refers to the managed ledger and may still report results."""
        if self.writer is not None:
            self.writer.set_listener(_NOBODY)
            self.writer = None

    def _told_of(self, writer: LedgerWriter, error: LedgerError) -> None:
        log.warning(
            "cannot close the ledger",
            extra={"managed_ledger": self._name, "ledger": writer.ledger_id, "error": str(error)},
        )

    def check(self) -> None:
        """:raises BrokenInvariant: a count is negative"""
        must(self.entries >= 0 and self.size >= 0, self._name, "appended less than nothing")
