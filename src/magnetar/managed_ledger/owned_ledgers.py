"""Ledgers that a cursor's properties name: they belong to the cursor, and go with it."""

from __future__ import annotations

from collections.abc import Mapping

COMPACTION_CURSOR = "__compaction"
"""Its mark-delete position is the horizon: what lies before it is in the ledger that its property names."""

COMPACTED_LEDGER = "CompactedTopicLedger"
"""The ledger with the newest message of each key, up to the cursor's mark-delete position."""

_NAMING = (COMPACTED_LEDGER,)


def owned_ledgers(properties: Mapping[str, int]) -> set[int]:
    """The ids of the ledgers that a cursor with such properties owns."""
    return {properties[name] for name in _NAMING if name in properties}
