"""Whether enough bookies of an ensemble have answered to know of every acknowledged entry."""

from __future__ import annotations

from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.interface import Quorums

KNOWN = (Status.OK, Status.NO_ENTRY, Status.NO_LEDGER)
"""Conclusive answers to a fencing read. After any other, it is open what the bookie has, and whether it
accepts more."""
MISSING = (Status.NO_ENTRY, Status.NO_LEDGER)


class Coverage:
    """The answers of one ensemble. A write set is covered when fewer than an ack quorum of its bookies are
    unanswered: then nothing can be acknowledged without a bookie that answered."""

    def __init__(self, quorums: Quorums) -> None:
        self._quorums = quorums
        self._unanswered = set(range(quorums.ensemble))

    def answered(self, index: int) -> None:
        self._unanswered.discard(index)

    @property
    def complete(self) -> bool:
        """Whether every write set is covered."""
        size = self._quorums.ensemble
        return all(self._unanswered_of(first) < self._quorums.ack for first in range(size))

    def _unanswered_of(self, first: int) -> int:
        quorums = self._quorums
        write_set = ((first + step) % quorums.ensemble for step in range(quorums.write))
        return sum(index in self._unanswered for index in write_set)
