"""What is gone for good, as ledgers are that somebody deleted, and what cursors do that come there."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.ledger.interface import EntryLost, NoSuchLedger

GONE = (NoSuchLedger, EntryLost)
"""What is said of it. Whatever is said else may be otherwise later: servers come back."""


class LostData:
    """Of all managed ledgers of a process."""

    def __init__(self, *, skip: bool) -> None:
        self.skip = skip
        """Whether cursors go on behind it; else they stay, and say so (autoSkipNonRecoverableData)."""
        self.ledgers = 0
        """Last ones of managed ledgers that were left out."""
        self.entries = 0
        """That cursors have gone over, each counted for each cursor."""

    def metrics(self) -> Mapping[str, float]:
        return {
            "magnetar_lost_ledgers_skipped": self.ledgers,
            "magnetar_lost_entries_skipped": self.entries,
        }
