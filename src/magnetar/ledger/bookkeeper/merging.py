"""What a writer makes of changes to its ledger's metadata that it has not made itself."""

from __future__ import annotations

from dataclasses import replace

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.interface import LedgerError


def merged(ledger_id: int, ours: LedgerRecord, theirs: LedgerRecord) -> LedgerRecord:
    """AutoRecovery copies entries of lost bookies to others and says so, in segments that nobody adds to.

    :param ours: as this writer knows it
    :param theirs: an open ledger's
    :raises LedgerError: there is more to it than that
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
