"""Appending one entry that stands alone: cursor states, schemas, snapshots."""

from __future__ import annotations

from array import array

from magnetar.ledger.interface import LedgerWriter


def append_one(writer: LedgerWriter, entry: bytes) -> int:
    """Appends ``entry``; returns its id at once, like :meth:`LedgerWriter.append`."""
    return writer.append(entry, array("q", (0,)), array("q", (len(entry),)), 0, 1)
