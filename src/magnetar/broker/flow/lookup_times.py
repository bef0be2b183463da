"""How lookups ended, and how long they took."""

from __future__ import annotations

from enum import Enum

from magnetar.broker.flow.rates import SECONDS_BOUNDS, Distribution, Timings


class LookupEnd(Enum):
    """The value is its name in telemetry, as Pulsar has it."""

    BROKER = "broker"
    """The broker that serves the topic was told."""
    REDIRECT = "redirect"
    """Another broker is to be asked."""
    FAILURE = "failure"


class LookupTimes:
    """Since the start."""

    def __init__(self) -> None:
        self.answered = Timings()
        """Of those that did not fail."""
        self.by_end = {end: Distribution(SECONDS_BOUNDS) for end in LookupEnd}

    def add(self, end: LookupEnd, seconds: float) -> None:
        self.by_end[end].add(seconds)
        if end is not LookupEnd.FAILURE:
            self.answered.add(seconds * 1000)

    def count(self, end: LookupEnd) -> int:
        return sum(self.by_end[end].counts)
