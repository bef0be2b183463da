"""What goes wrong with ledgers on bookies only."""

from __future__ import annotations

from magnetar.ledger.interface import LedgerError


class BookiesUnavailable(LedgerError):
    """Too few of those bookies answered that have what was asked for; says what became of each question."""


class WrongPassword(LedgerError):
    """The ledger was made with another password (``managedLedgerPassword``)."""


class MetadataFailed(LedgerError):
    """The metadata of ledgers cannot be read or written; what was asked for may have happened."""
