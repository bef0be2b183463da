"""The states of a managed ledger, which determine what may be done with it."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The values are Pulsar's, as statistics show them."""

    OPEN = "LedgerOpened"
    ROLLING = "CreatingLedger"
    NEEDS_LEDGER = "ClosedLedger"
    TERMINATING = "ClosingLedger"
    """Appends wait: they fail when the termination is durable, and are written if that fails."""
    TERMINATED = "Terminated"
    FENCED = "Fenced"
    CLOSED = "Closed"
