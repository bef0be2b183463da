"""Statistics of producers and consumers, with the Java client's names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from math import ceil, exp2, log2
from typing import Generic, TypeVar

from magnetar.io.interfaces import Loop

log = logging.getLogger(__name__)
_STEPS = 8
"""Number of histogram buckets for each doubling of the latency; quantiles are at most 9 % too high."""
_LEAST_MS = 0.01
_MEGABIT = 8 / 1_000_000


class Latencies:
    """A histogram of latencies: the number of messages in each bucket."""

    __slots__ = ("_counts", "highest")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.highest = 0.0
        """The highest latency, in milliseconds."""

    def note(self, milliseconds: float, count: int) -> None:
        """Counts ``count`` messages with the same latency."""
        bucket = ceil(log2(milliseconds / _LEAST_MS) * _STEPS) if milliseconds > _LEAST_MS else 0
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        if milliseconds > self.highest:
            self.highest = milliseconds

    def add(self, others: Latencies) -> None:
        """Adds the counts of another histogram."""
        for bucket, count in others._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.highest = max(self.highest, others.highest)

    def quantile(self, part: float) -> float:
        """Returns the latency in milliseconds that a fraction of the messages does not exceed; 0 if there are
        no messages.

        :param part: the fraction, such as 0.99
        """
        left = part * sum(self._counts.values())
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return min(_LEAST_MS * exp2(bucket / _STEPS), self.highest)
        return self.highest


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Statistics of a producer. Fields with ``num_`` cover the present interval; fields with ``total_`` cover
    the time since the producer was opened. Rates and latencies cover the last complete interval; until an
    interval is complete, the time since the producer was opened.

    The option ``stats_interval_seconds`` of the client sets the interval.
    """

    num_msgs_sent: int
    """Number of sent messages."""
    num_bytes_sent: int
    """Size of the sent payloads before compression, in bytes; for messages in batches, including the metadata
    of each message.
    """
    num_send_failed: int
    """Number of messages that could not be sent, or got no receipt in time."""
    num_acks_received: int
    """Number of messages with a receipt."""
    send_msgs_rate: float
    """Messages sent per second."""
    send_bytes_rate: float
    """Bytes sent per second, counted like ``num_bytes_sent``."""
    send_latency_millis50pct: float
    """The latency in milliseconds that half of the messages did not exceed. Latency is the time from sending
    an entry to the broker until its receipt, without the time that messages wait in a batch.
    """
    send_latency_millis75pct: float
    """The latency in milliseconds that 75 % of the messages did not exceed."""
    send_latency_millis95pct: float
    """The latency in milliseconds that 95 % of the messages did not exceed."""
    send_latency_millis99pct: float
    """The latency in milliseconds that 99 % of the messages did not exceed."""
    send_latency_millis999pct: float
    """The latency in milliseconds that 99.9 % of the messages did not exceed."""
    send_latency_millis_max: float
    """The highest latency, in milliseconds."""
    total_msgs_sent: int
    """Number of sent messages."""
    total_bytes_sent: int
    """Size of the sent payloads before compression, in bytes; for messages in batches, including the metadata
    of each message.
    """
    total_send_failed: int
    """Number of messages that could not be sent, or got no receipt in time."""
    total_acks_received: int
    """Number of messages with a receipt."""
    pending_queue_size: int
    """Number of messages that have no receipt yet."""
    partition_stats: Mapping[str, ProducerStats]
    """The statistics of each partition, by its name; empty if the topic is not partitioned."""


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Statistics of a consumer. Fields with ``num_`` cover the present interval; fields with ``total_`` cover
    the time since the consumer was opened. Rates cover the last complete interval; until an interval is
    complete, the time since the consumer was opened.
    """

    num_msgs_received: int
    """Number of messages that the program received."""
    num_bytes_received: int
    """Size of the entries whose messages the program received, as stored, in bytes."""
    num_acks_sent: int
    """Number of acknowledged messages; the messages of a batch are counted when all of them are acknowledged;
    a cumulative acknowledgement counts as one.
    """
    num_acks_failed: int
    """Number of failed acknowledgements."""
    num_receive_failed: int
    """Number of calls of ``receive`` that raised an error other than a time-out."""
    rate_msgs_received: float
    """Messages received per second."""
    rate_bytes_received: float
    """Bytes received per second, counted like ``num_bytes_received``."""
    total_msgs_received: int
    """Number of messages that the program received."""
    total_bytes_received: int
    """Size of the entries whose messages the program received, as stored, in bytes."""
    total_received_failed: int
    """Number of calls of ``receive`` that raised an error other than a time-out."""
    total_acks_sent: int
    """Number of acknowledged messages, counted like ``num_acks_sent``."""
    total_acks_failed: int
    """Number of failed acknowledgements."""
    msg_num_in_receiver_queue: int
    """Number of messages that have arrived, but that the program has not received yet."""
    partition_stats: Mapping[str, ConsumerStats]
    """The statistics of each partition or topic, by its name; empty for a consumer of one topic without
    partitions.
    """


@dataclass(slots=True)
class SentTotals:
    """Totals of a producer since it was opened."""

    messages: int = 0
    bytes: int = 0
    failed: int = 0
    acks: int = 0
    pending: int = 0


@dataclass(slots=True)
class ReceivedTotals:
    """Totals of a consumer since it was opened."""

    messages: int = 0
    bytes: int = 0
    acks: int = 0
    acks_failed: int = 0
    failed: int = 0
    waiting: int = 0
    refused: int = 0
    """Number of negatively acknowledged messages."""
    late: int = 0
    """Number of entries that were not acknowledged in time."""
    dead: int = 0
    """Number of messages that were published to the dead letter topic."""


Totals = TypeVar("Totals", SentTotals, ReceivedTotals)


def minus(totals: Totals, before: Totals) -> Totals:
    """Returns the difference of each field: ``totals`` minus ``before``."""
    return type(totals)(*(getattr(totals, each.name) - getattr(before, each.name) for each in fields(totals)))


def plus(totals: Totals, others: Iterable[Totals]) -> Totals:
    """Returns the sum of each field."""
    all_of = [totals, *others]
    return type(totals)(*(sum(getattr(one, each.name) for one in all_of) for each in fields(totals)))


class Intervals(Generic[Totals]):
    """The statistics of a producer or a consumer in the present and in the last interval."""

    def __init__(self, loop: Loop, totals: Callable[[], Totals], nothing: Totals) -> None:
        """:param totals: returns the present totals

        :param nothing: the initial totals, all 0
        """
        self._loop = loop
        self.totals: Callable[[], Totals] = totals
        self.began = loop.time()
        """When the present interval began, in the loop's time."""
        self.before: Totals = nothing
        """Totals at the beginning of the present interval."""
        self.last: tuple[float, Totals] | None = None
        """The last complete interval: its duration in seconds, and the increase of the totals during it;
        None: no interval is complete.
        """
        self.latencies = Latencies()
        self.last_latencies = self.latencies

    def present(self) -> tuple[float, Totals]:
        """Returns the duration of the present interval in seconds, and the increase of the totals during
        it.
        """
        return self._loop.time() - self.began, minus(self.totals(), self.before)

    def end(self) -> None:
        """Ends the present interval, and begins the next."""
        self.last = self.present()
        self.began = self._loop.time()
        self.before = self.totals()
        self.last_latencies, self.latencies = self.latencies, Latencies()


def producer_stats(parts: Mapping[str, Intervals[SentTotals]]) -> ProducerStats:
    """Returns the statistics of a producer.

    :param parts: the producer's intervals, by the name of each partition; without partitions, by the name of
        the topic
    """
    present = [part.present()[1] for part in parts.values()]
    rated = [part.last or part.present() for part in parts.values()]
    total = plus(SentTotals(), (part.totals() for part in parts.values()))
    now = plus(SentTotals(), present)
    latencies = Latencies()
    for part in parts.values():
        latencies.add(part.last_latencies)
    return ProducerStats(
        now.messages,
        now.bytes,
        now.failed,
        now.acks,
        _rate((seconds, sent.messages) for seconds, sent in rated),
        _rate((seconds, sent.bytes) for seconds, sent in rated),
        latencies.quantile(0.5),
        latencies.quantile(0.75),
        latencies.quantile(0.95),
        latencies.quantile(0.99),
        latencies.quantile(0.999),
        latencies.highest,
        total.messages,
        total.bytes,
        total.failed,
        total.acks,
        total.pending,
        {name: producer_stats({name: part}) for name, part in parts.items()} if len(parts) > 1 else {},
    )


def consumer_stats(parts: Mapping[str, Intervals[ReceivedTotals]]) -> ConsumerStats:
    """Returns the statistics of a consumer.

    :param parts: the intervals by the name of each partition or topic
    """
    now = plus(ReceivedTotals(), (part.present()[1] for part in parts.values()))
    rated = [part.last or part.present() for part in parts.values()]
    total = plus(ReceivedTotals(), (part.totals() for part in parts.values()))
    return ConsumerStats(
        now.messages,
        now.bytes,
        now.acks,
        now.acks_failed,
        now.failed,
        _rate((seconds, received.messages) for seconds, received in rated),
        _rate((seconds, received.bytes) for seconds, received in rated),
        total.messages,
        total.bytes,
        total.failed,
        total.acks,
        total.acks_failed,
        total.waiting,
        {name: consumer_stats({name: part}) for name, part in parts.items()} if len(parts) > 1 else {},
    )


def _rate(parts: Iterable[tuple[float, int]]) -> float:
    return sum(number / seconds for seconds, number in parts if seconds > 0)


def log_sent(topic: str, name: str, intervals: Intervals[SentTotals]) -> None:
    """Ends an interval of a producer, and logs its statistics if the producer was active."""
    intervals.end()
    seconds, sent = intervals.last or (0.0, SentTotals())
    if seconds <= 0 or not (sent.messages or sent.failed or sent.acks):
        return
    latencies = intervals.last_latencies
    log.info(
        "[%s] [%s] Pending messages: %d --- Publish throughput: %.2f msg/s --- %.2f Mbit/s --- Latency: med: "
        "%.3f ms - 95pct: %.3f ms - 99pct: %.3f ms - 99.9pct: %.3f ms - max: %.3f ms --- "
        "Ack received rate: %.2f ack/s --- Failed messages: %d",
        topic,
        name,
        intervals.totals().pending,
        sent.messages / seconds,
        sent.bytes / seconds * _MEGABIT,
        *(latencies.quantile(part) for part in (0.5, 0.95, 0.99, 0.999)),
        latencies.highest,
        sent.acks / seconds,
        sent.failed,
    )


def log_received(topic: str, subscription: str, name: str, intervals: Intervals[ReceivedTotals]) -> None:
    """Ends an interval of a consumer, and logs its statistics if the consumer was active."""
    intervals.end()
    seconds, received = intervals.last or (0.0, ReceivedTotals())
    if seconds <= 0 or not (received.messages or received.failed or received.acks or received.acks_failed):
        return
    log.info(
        "[%s] [%s] [%s] Prefetched messages: %d --- Consume throughput received: %.2f msgs/s --- "
        "%.2f Mbit/s --- Ack sent rate: %.2f ack/s --- Failed messages: %d --- Failed acks: %d",
        topic,
        subscription,
        name,
        intervals.totals().waiting,
        received.messages / seconds,
        received.bytes / seconds * _MEGABIT,
        received.acks / seconds,
        received.failed,
        received.acks_failed,
    )
