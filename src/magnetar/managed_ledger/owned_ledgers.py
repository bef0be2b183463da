"""Ledgers that a cursor's properties name: they belong to the cursor, and are deleted with it."""

from __future__ import annotations

from collections.abc import Mapping

COMPACTION_CURSOR = "__compaction"
"""Its mark-delete position is the horizon: the ledger in its property replaces everything up to there."""

COMPACTED_LEDGER = "CompactedTopicLedger"
"""Property with the compacted ledger, which covers everything up to the mark-delete position."""

_NAMING = (COMPACTED_LEDGER,)


def owned_ledgers(properties: Mapping[str, int]) -> set[int]:
    """Returns the ids of the ledgers that a cursor with these properties owns."""
    return {properties[name] for name in _NAMING if name in properties}
