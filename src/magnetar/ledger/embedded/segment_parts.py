"""Collects what a segment has of each ledger, run by run."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from magnetar.ledger.embedded.index import PartIndex


class NewPart(NamedTuple):
    """The share of a ledger in a rewritten segment, without gaps."""

    ledger_id: int
    runs: PartIndex
    stored: int
    """Bytes of the bodies."""


class PartsBuilder:
    """Collects the index of a segment whose ledgers may have gaps."""

    def __init__(self) -> None:
        self.parts: list[NewPart] = []
        self.runs = 0

    def add(self, ledger_id: int, first: int, count: int, place: tuple[int, int, int]) -> None:
        offset, length, checksum = place
        last = first + count - 1
        self.runs += 1
        if self.parts:
            part = self.parts[-1]
            if part.ledger_id == ledger_id and part.runs.last_entry_id + 1 == first:
                part.runs.runs.extend((first - part.runs.first_entry_id, offset, length, checksum))
                index = part.runs._replace(last_entry_id=last)
                self.parts[-1] = NewPart(ledger_id, index, part.stored + length)
                return
        runs = array("I", (0, offset, length, checksum))
        self.parts.append(NewPart(ledger_id, PartIndex(first, last, runs), length))
