"""What a writer does about changes to its ledger's metadata that it has not made."""

from __future__ import annotations

from dataclasses import replace

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.interface import LedgerError


def merged(ledger_id: int, ours: LedgerRecord, theirs: LedgerRecord) -> LedgerRecord:
    """Merges a change by AutoRecovery, which copies entries of lost bookies to others and records that in
    segments to which nothing is added any more.

    :param ours: as this writer knows the record
    :param theirs: of an open ledger
    :raises LedgerError: the records differ in other ways
    """
    starts = [segment.first_entry_id for segment in ours.segments]
    elsewhere = (
        [segment.first_entry_id for segment in theirs.segments] != starts
        or theirs.segments[-1] != ours.segments[-1]
        or replace(theirs, segments=ours.segments, token=ours.token) != ours
    )
    if elsewhere:
        raise LedgerError(f"the metadata of ledger {ledger_id} was changed by another process: {theirs}")
    return theirs
