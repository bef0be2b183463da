"""Statistics of transactions, as in Apache Pulsar's metrics: the batches written to the logs of transactions,
and the time until topics and subscriptions were notified of the ends of transactions.
"""

from __future__ import annotations

from enum import Enum

from magnetar.broker.flow.rates import Distribution
from magnetar.managed_ledger.measures import Timings

RECORDS_BOUNDS = (10.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
BYTES_BOUNDS = (128.0, 512.0, 1024.0, 2048.0, 4096.0, 16384.0, 102400.0, 1232896.0)
DELAY_BOUNDS = (1.0, 5.0, 10.0)
"""Upper bounds of the histogram of delays, in seconds. The settings limit the delay of a record, by default
to one millisecond."""
_MOST_TOPICS = 1000
"""The maximum number of topics with statistics of their own; if there are more, the oldest topics lose their
statistics.
"""
KEPT = 64
"""The number of latest durations of a topic, or a subscription, from which quantiles are computed."""


class Flush(Enum):
    """The reason why waiting records were written; each value is the suffix of a metric's name."""

    RECORDS = "max_records"
    SIZE = "max_size"
    DELAY = "max_delay"
    LARGE = "large_data"
    """The record is as large as a batch may be, so it is written alone."""


class BatchFigures:
    """The batches of all logs of one kind."""

    def __init__(self) -> None:
        self.records = Distribution(RECORDS_BOUNDS)
        self.size = Distribution(BYTES_BOUNDS)
        self.delay = Distribution(DELAY_BOUNDS)
        self.flushes = dict.fromkeys(Flush, 0)

    def wrote(self, why: Flush, records: int, size: int, seconds: float) -> None:
        """Counts a batch.

        :param size: bytes of its records
        :param seconds: the time in seconds for which its first record waited
        """
        self.flushes[why] += 1
        self.records.add(records)
        self.size.add(size)
        self.delay.add(seconds)


class TopicEnds:
    """The commits, or the aborts, that reached one topic and its subscriptions."""

    __slots__ = ("failed", "took")

    def __init__(self) -> None:
        self.took = Timings(KEPT)
        self.failed = 0


class EndFigures:
    """The requests that tell topics and subscriptions that a transaction of this broker's coordinators
    ended."""

    def __init__(self) -> None:
        self.pending = 0
        self.topics: dict[str, tuple[TopicEnds, TopicEnds]] = {}
        """The aborts and the commits of each topic, by the topic's name."""

    def of(self, topic: str, *, commit: bool) -> TopicEnds:
        """Returns the commits or the aborts of a topic."""
        found = self.topics.get(topic)
        if found is None:
            if len(self.topics) >= _MOST_TOPICS:
                del self.topics[next(iter(self.topics))]
            found = self.topics[topic] = (TopicEnds(), TopicEnds())
        return found[commit]
