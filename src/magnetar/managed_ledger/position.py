"""Positions of entries in a managed ledger.

A position is the pair (ledger id, entry id), compared as a pair; (l, -1) is before the first entry of l.
Positions are plain tuples, because one is created for every batch of entries.
"""

from __future__ import annotations

Position = tuple[int, int]

EARLIEST: Position = (-1, -1)
LATEST_ID = 2**63 - 1
"""The ledger id by which clients mean the end of a topic."""
LATEST: Position = (LATEST_ID, LATEST_ID)


def format_position(position: Position) -> str:
    """Returns a position as ``ledger:entry``, as in statistics and command-line output."""
    return f"{position[0]}:{position[1]}"
