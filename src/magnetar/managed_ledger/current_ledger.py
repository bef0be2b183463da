"""The ledger of a managed ledger that entries are appended to."""

from __future__ import annotations

import logging

from magnetar.invariants import must
from magnetar.io.interfaces import Clock
from magnetar.ledger.interface import LedgerError, LedgerStore, LedgerWriter
from magnetar.managed_ledger.records import LedgerSummary
from magnetar.managed_ledger.settings import ManagedLedgerSettings

log = logging.getLogger(__name__)


class _Nobody:
    """Hears what a writer tells after the end of its managed ledger."""

    def on_durable(self, ledger_id: int, last_entry_id: int) -> None:
        """It is of no interest any more."""

    def on_failed(self, ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        """Whoever appended was told so."""


_NOBODY = _Nobody()


class CurrentLedger:
    """One after another has this place; before the first append there is none."""

    __slots__ = ("_clock", "_name", "_store", "entries", "made_ms", "size", "summary", "writer")

    def __init__(self, clock: Clock, store: LedgerStore, name: str) -> None:
        """:param name: of the managed ledger"""
        self._clock = clock
        self._store = store
        self._name = name
        self.writer: LedgerWriter | None = None
        """None, too, when it has failed, or is closed."""
        self.summary: LedgerSummary | None = None
        """As the managed ledger lists it: what is durable."""
        self.entries = 0
        """Appended, durable or not; counted by whoever appends, once for a run."""
        self.size = 0
        """Bytes of these."""
        self.made_ms = 0

    def begin(self, writer: LedgerWriter, summary: LedgerSummary, made_ms: int) -> None:
        """Another one takes the place."""
        self.writer, self.summary, self.made_ms = writer, summary, made_ms
        self.entries = self.size = 0

    def room(self, settings: ManagedLedgerSettings) -> int:
        """Entries that may still go to it."""
        return settings.room(self.entries, self.size, self._clock.wall_ms() - self.made_ms)

    async def close(self) -> None:
        """Closes it at its last acknowledged entry; without one there is nothing to do.

        :raises LedgerError: it cannot even be recovered
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
            # What the failed ledger holds behind the last acknowledged entry is never read: its count says
            # so.
            reader = await self._store.open(summary.ledger_id, recover=True)
            reader.close()
        summary.closed_ms = max(self._clock.wall_ms(), 1)
        self.writer = None

    async def release(self) -> None:
        """Its writer ends; it is not listed as closed, and recovered when the managed ledger is opened."""
        writer = self.writer
        if writer is not None:
            try:
                await writer.close()
            except LedgerError as error:
                self._told_of(writer, error)

    def let_go(self) -> None:
        """Of the writer, which refers to the managed ledger and may go on for a while, unheard."""
        if self.writer is not None:
            self.writer.set_listener(_NOBODY)
            self.writer = None

    def _told_of(self, writer: LedgerWriter, error: LedgerError) -> None:
        log.warning(
            "ledger did not close",
            extra={"managed_ledger": self._name, "ledger": writer.ledger_id, "error": str(error)},
        )

    def check(self) -> None:
        """:raises BrokenInvariant: less was appended to it than nothing"""
        must(self.entries >= 0 and self.size >= 0, self._name, "appended less than nothing")
