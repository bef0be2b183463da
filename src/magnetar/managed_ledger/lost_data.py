"""Lost data, such as ledgers that were deleted by mistake, and whether cursors skip them."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.ledger.interface import EntryLost, NoSuchLedger

GONE = (NoSuchLedger, EntryLost)
"""Errors that mean lost data. Any other error may be temporary, as servers come back."""


class LostData:
    """Lost data of all managed ledgers of a process."""

    def __init__(self, *, skip: bool) -> None:
        self.skip = skip
        """Whether cursors skip lost data; otherwise they stop there and report it
        (autoSkipNonRecoverableData)."""
        self.ledgers = 0
        """The number of lost last ledgers of managed ledgers that were left out."""
        self.entries = 0
        """The number of lost entries that were skipped, counted for each cursor."""

    def metrics(self) -> Mapping[str, float]:
        return {
            "magnetar_lost_ledgers_skipped": self.ledgers,
            "magnetar_lost_entries_skipped": self.entries,
        }
