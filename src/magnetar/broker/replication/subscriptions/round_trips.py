"""A snapshot in progress: which clusters have responded, and with which positions."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.managed_ledger.position import Position


class PendingSnapshot:
    """One round with one other cluster, two rounds with more.

    A message that another cluster has from a third one may not have come here yet when the former answers.
    What the third cluster answers in the second round comes after it. So the positions are those of the
    first round, and the local one is that of the last answer of the second.
    """

    def __init__(self, snapshot_id: str, clusters: Iterable[str], started: float) -> None:
        """:param started: in seconds, on the loop's clock"""
        self.snapshot_id = snapshot_id
        self.asked_by = snapshot_id
        """The id of the request that is under way. Each round has its own: an answer that is delivered
        twice is never taken for one of the next round."""
        self.started = started
        self.positions: dict[str, Position] = {}
        """Those of the first round."""
        self.clusters = frozenset(clusters)
        self._missing = set(self.clusters)
        self._second = False

    @property
    def waits_for(self) -> frozenset[str]:
        """The clusters that have not answered in this round."""
        return frozenset(self._missing)

    def answered(self, request_id: str, cluster: str, position: Position) -> bool:
        """Takes an answer; whether it was the last one of its round."""
        if request_id != self.asked_by or cluster not in self._missing:
            return False
        self._missing.discard(cluster)
        if not self._second:
            self.positions[cluster] = position
        return not self._missing

    @property
    def needs_second_round(self) -> bool:
        return len(self.clusters) > 1 and not self._second

    def begin_second_round(self, request_id: str) -> None:
        self._second = True
        self.asked_by = request_id
        self._missing = set(self.clusters)
