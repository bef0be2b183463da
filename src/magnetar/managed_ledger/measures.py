"""Measurements of managed ledgers and of the broker: durations, and reads from tiered storage."""

from __future__ import annotations

from array import array
from collections import deque

_RATE_SECONDS = 60
TIERED_KEPT = 256
"""The number of durations that are kept for each topic and each kind of access to tiered storage; it is
small, because a broker may have thousands of topics.
"""


class RecentBytes:
    """The bytes of the last minute, from which a rate is computed without a timer."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()
        """The seconds in which bytes were added, in ascending order, each with the number of bytes."""

    def add(self, now: float, count: int) -> None:
        """Adds ``count`` bytes.

        :param now: in monotonic seconds
        """
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            count += self._seconds.pop()[1]
        self._seconds.append((second, count))
        self._forget(second)

    def per_second(self, now: float) -> float:
        """Returns the average number of bytes per second in the last minute."""
        self._forget(int(now))
        return sum(count for _second, count in self._seconds) / _RATE_SECONDS

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - _RATE_SECONDS:
            self._seconds.popleft()


class Timings:
    """Durations in ms: totals since the start, and the newest durations for quantiles."""

    __slots__ = ("_kept", "_newest", "_next", "count", "total_ms")

    def __init__(self, kept: int = 1024) -> None:
        """:param kept: the number of newest durations from which quantiles are computed, at least 1"""
        self.count = 0
        self.total_ms = 0.0
        self._kept = kept
        self._newest = array("d")
        self._next = 0

    def add(self, milliseconds: float) -> None:
        self.count += 1
        self.total_ms += milliseconds
        if len(self._newest) < self._kept:
            self._newest.append(milliseconds)
        else:
            self._newest[self._next] = milliseconds
            self._next = (self._next + 1) % self._kept

    def quantiles(self, wanted: tuple[float, ...]) -> dict[float, float]:
        """Returns the durations in ms by quantile; empty if nothing was added.

        :param wanted: the quantiles, each from 0 to 1
        """
        ordered = sorted(self._newest)
        if not ordered:
            return {}
        return {q: ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in wanted}


class TieredReads:
    """The reads of one managed ledger from tiered storage."""

    __slots__ = ("bytes", "data_times", "errors", "index_times", "recent")

    def __init__(self) -> None:
        self.bytes = 0
        """The bytes of the entries that were read."""
        self.errors = 0
        self.recent = RecentBytes()
        self.index_times = Timings(TIERED_KEPT)
        """Durations of opening ledgers in tiered storage."""
        self.data_times = Timings(TIERED_KEPT)
        """Durations of reads that the cache could not answer."""
