"""Failures of ledgers that only BookKeeper has."""

from __future__ import annotations

from magnetar.ledger.interface import LedgerError


class BookiesUnavailable(LedgerError):
    """Too few of the bookies with the requested entries answered; lists the outcome of each request."""


class WrongPassword(LedgerError):
    """The ledger was created with another password (``managedLedgerPassword``)."""


class MetadataFailed(LedgerError):
    """The metadata of ledgers cannot be read or written; the operation may have happened."""
