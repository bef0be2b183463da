"""A snapshot in progress: which clusters have responded, and with which positions."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.managed_ledger.position import Position


class PendingSnapshot:
    """One round with one other cluster, two rounds with more.

    When a cluster answers, a message that it has from a third cluster may not have arrived here yet. The
    third cluster's answer in the second round comes after that message. So the positions are those of the
    first round, and the local position is that of the last answer of the second round.
    """

    def __init__(self, snapshot_id: str, clusters: Iterable[str], started: float) -> None:
        """:param started: in seconds, on the loop's clock"""
        self.snapshot_id = snapshot_id
        self.asked_by = snapshot_id
        """The id of the pending request. Each round has its own id, so that an answer that is delivered twice
        is never taken for one of the next round."""
        self.started = started
        self.positions: dict[str, Position] = {}
        """The answers of the first round."""
        self.clusters = frozenset(clusters)
        self._missing = set(self.clusters)
        self._second = False

    @property
    def waits_for(self) -> frozenset[str]:
        """The clusters that have not answered in this round."""
        return frozenset(self._missing)

    def answered(self, request_id: str, cluster: str, position: Position) -> bool:
        """Adds an answer; returns whether it was the last one of its round."""
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
