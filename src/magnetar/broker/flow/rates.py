"""Counters with rates per second, calculated once per statistics window for those that were busy."""

from __future__ import annotations


class Rate:
    """A counter of messages and bytes; ``tick`` turns the counts since the last tick into rates."""

    __slots__ = ("_last_bytes", "_last_messages", "bytes", "bytes_per_second", "messages", "per_second")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.per_second = 0.0
        self.bytes_per_second = 0.0
        self._last_messages = 0
        self._last_bytes = 0

    def tick(self, seconds: float) -> None:
        self.per_second = (self.messages - self._last_messages) / seconds
        self.bytes_per_second = (self.bytes - self._last_bytes) / seconds
        self._last_messages = self.messages
        self._last_bytes = self.bytes

    def average_size(self) -> float:
        """Average bytes per message in the last window; 0 if it was idle."""
        return self.bytes_per_second / self.per_second if self.per_second else 0.0


LATENCY_BOUNDS_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
ENTRY_SIZE_BOUNDS = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)


class Distribution:
    """A histogram: a count per bucket, one more for values above all bounds, and the sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        index = 0
        for bound in self.bounds:
            if value <= bound:
                break
            index += 1
        self.counts[index] += times
        self.total += value * times


_FINE_SECONDS = (0.0005, 0.001, 0.0025)
SECONDS_BOUNDS = (*_FINE_SECONDS, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds that OpenTelemetry recommends for durations of requests, with three smaller ones."""


class Timings:
    """Durations in ms: totals since the start, and the newest few for quantiles."""

    __slots__ = ("_newest", "_next", "count", "total_ms")

    _KEPT = 1024

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self._newest: list[float] = []
        self._next = 0

    def add(self, milliseconds: float) -> None:
        self.count += 1
        self.total_ms += milliseconds
        if len(self._newest) < self._KEPT:
            self._newest.append(milliseconds)
        else:
            self._newest[self._next] = milliseconds
            self._next = (self._next + 1) % self._KEPT

    def quantiles(self, wanted: tuple[float, ...]) -> dict[float, float]:
        ordered = sorted(self._newest)
        if not ordered:
            return {}
        return {q: ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in wanted}
