"""What the logs of transactions have written together, and how long topics and subscriptions took to learn
how transactions ended. Apache Pulsar has metrics of both."""

from __future__ import annotations

from enum import Enum

from magnetar.broker.flow.rates import Distribution
from magnetar.managed_ledger.measures import Timings

RECORDS_BOUNDS = (10.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
BYTES_BOUNDS = (128.0, 512.0, 1024.0, 2048.0, 4096.0, 16384.0, 102400.0, 1232896.0)
DELAY_BOUNDS = (1.0, 5.0, 10.0)
"""In seconds. The delay is at most that of the setting, a millisecond by default."""
_MOST_TOPICS = 1000
"""Topics with figures of their own; the oldest ones lose theirs."""
KEPT = 64
"""The newest durations of a topic, or a subscription, that quantiles are taken of."""


class Flush(Enum):
    """Why records that waited were written, by the ends of the names of metrics."""

    RECORDS = "max_records"
    SIZE = "max_size"
    DELAY = "max_delay"
    LARGE = "large_data"
    """A record came that is written by itself, because it is as large as a batch may be."""


class BatchFigures:
    """The batches of all logs of one kind."""

    def __init__(self) -> None:
        self.records = Distribution(RECORDS_BOUNDS)
        self.size = Distribution(BYTES_BOUNDS)
        self.delay = Distribution(DELAY_BOUNDS)
        self.flushes = dict.fromkeys(Flush, 0)

    def wrote(self, why: Flush, records: int, size: int, seconds: float) -> None:
        """Notes a batch.

        :param size: bytes of its records
        :param seconds: how long its first record has waited
        """
        self.flushes[why] += 1
        self.records.add(records)
        self.size.add(size)
        self.delay.add(seconds)


class TopicEnds:
    """The commits, or the aborts, that one topic and its subscriptions were told."""

    __slots__ = ("failed", "took")

    def __init__(self) -> None:
        self.took = Timings(KEPT)
        self.failed = 0


class EndFigures:
    """The requests by which the coordinators of this broker end transactions."""

    def __init__(self) -> None:
        self.pending = 0
        self.topics: dict[str, tuple[TopicEnds, TopicEnds]] = {}
        """By the topic's name: its aborts and its commits."""

    def of(self, topic: str, *, commit: bool) -> TopicEnds:
        """Returns the figures of a topic."""
        found = self.topics.get(topic)
        if found is None:
            if len(self.topics) >= _MOST_TOPICS:
                del self.topics[next(iter(self.topics))]
            found = self.topics[topic] = (TopicEnds(), TopicEnds())
        return found[commit]
