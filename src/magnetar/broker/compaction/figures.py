"""Numbers of a topic's compactions, for statistics and metrics."""

from __future__ import annotations

from magnetar.broker.flow.rates import LATENCY_BOUNDS_MS, Distribution


class CompactionFigures:
    """Counted since the topic was loaded. Times are in ms since 1970, durations in ms."""

    def __init__(self) -> None:
        self.removed = 0
        """Messages that the last compaction left out."""
        self.removed_total = 0
        self.succeeded_ms = 0
        self.failed_ms = 0
        self.duration_ms = 0
        self.succeeded = 0
        self.failed = 0
        self.entries = 0
        """Entries of the ledger that the last compaction wrote; the next one is its bytes."""
        self.size = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.write_latency = Distribution(LATENCY_BOUNDS_MS)
        self.busy_seconds = 0.0
        """Duration of all compactions together."""
