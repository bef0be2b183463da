"""What may be done with a managed ledger."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The values are Pulsar's, as statistics show them."""

    OPEN = "LedgerOpened"
    ROLLING = "CreatingLedger"
    NEEDS_LEDGER = "ClosedLedger"
    TERMINATING = "ClosingLedger"
    """Appends wait: they fail when the end is durable, and are written when it cannot be made so."""
    TERMINATED = "Terminated"
    FENCED = "Fenced"
    CLOSED = "Closed"
