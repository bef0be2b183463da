"""Outcomes and durations of lookups."""

from __future__ import annotations

from enum import Enum

from magnetar.broker.flow.rates import SECONDS_BOUNDS, Distribution, Timings


class LookupEnd(Enum):
    """The value is the name in telemetry, as in Pulsar."""

    BROKER = "broker"
    """The client was told the broker that serves the topic."""
    REDIRECT = "redirect"
    """The client was told to ask another broker."""
    FAILURE = "failure"


class LookupTimes:
    """Counted since the start."""

    def __init__(self) -> None:
        self.answered = Timings()
        """Durations of those that did not fail."""
        self.by_end = {end: Distribution(SECONDS_BOUNDS) for end in LookupEnd}

    def add(self, end: LookupEnd, seconds: float) -> None:
        self.by_end[end].add(seconds)
        if end is not LookupEnd.FAILURE:
            self.answered.add(seconds * 1000)

    def count(self, end: LookupEnd) -> int:
        return sum(self.by_end[end].counts)
