"""What compactions of a topic did, for statistics and metrics."""

from __future__ import annotations

from magnetar.broker.flow.rates import LATENCY_BOUNDS_MS, Distribution


class CompactionFigures:
    """Since the topic was loaded. Times in ms since 1970, durations in ms."""

    def __init__(self) -> None:
        self.removed = 0
        """Messages that the last one left out."""
        self.removed_total = 0
        self.succeeded_ms = 0
        self.failed_ms = 0
        self.duration_ms = 0
        self.succeeded = 0
        self.failed = 0
        self.entries = 0
        """In the ledger that the last one made; so are the bytes."""
        self.size = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.write_latency = Distribution(LATENCY_BOUNDS_MS)
        self.busy_seconds = 0.0
        """That all of them took together."""
