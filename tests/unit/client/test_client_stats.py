"""The statistics of a client: quantiles of latencies, rates of intervals, and sums of partitions."""

from __future__ import annotations

import pytest

from magnetar.client.stats import (
    Intervals,
    Latencies,
    ReceivedTotals,
    SentTotals,
    consumer_stats,
    producer_stats,
)


class Clock:
    """A loop of which only the time is used."""

    now = 0.0

    def time(self) -> float:
        return self.now


def test_quantiles_are_at_most_nine_percent_too_high() -> None:
    latencies = Latencies()
    assert latencies.quantile(0.5) == 0
    for milliseconds in range(1, 1001):
        latencies.note(milliseconds, 1)
    for part in (0.5, 0.75, 0.95, 0.99, 0.999):
        assert part * 1000 <= latencies.quantile(part) <= part * 1000 * 1.091
    assert latencies.quantile(1) == latencies.highest == 1000
    others = Latencies()
    others.note(0, 3000)
    others.add(latencies)
    assert others.quantile(0.5) == 0.01
    assert others.highest == 1000


def test_rates_are_those_of_the_last_complete_interval() -> None:
    clock, sent = Clock(), SentTotals()
    intervals = Intervals(
        clock, lambda: SentTotals(*(getattr(sent, n) for n in SentTotals.__slots__)), SentTotals()
    )
    sent.messages, sent.bytes, sent.acks, clock.now = 10, 1000, 8, 2.0
    intervals.latencies.note(5, 8)
    stats = producer_stats({"t": intervals})
    assert (stats.num_msgs_sent, stats.send_msgs_rate, stats.send_bytes_rate) == (10, 5, 500)
    assert stats.send_latency_millis_max == 5
    intervals.end()
    sent.messages, sent.failed, clock.now = 13, 1, 3.0
    stats = producer_stats({"t": intervals})
    assert (stats.num_msgs_sent, stats.num_acks_received, stats.num_send_failed) == (3, 0, 1)
    assert (stats.total_msgs_sent, stats.total_acks_received, stats.send_msgs_rate) == (13, 8, 5)
    assert stats.send_latency_millis50pct == pytest.approx(5, rel=0.1)
    assert stats.partition_stats == {}


def test_partitions_are_added() -> None:
    clock = Clock()
    parts = {
        name: Intervals(
            clock, lambda count=count: ReceivedTotals(messages=count, waiting=1), ReceivedTotals()
        )
        for name, count in (("a", 4), ("b", 2))
    }
    clock.now = 2.0
    stats = consumer_stats(parts)
    assert (stats.num_msgs_received, stats.rate_msgs_received, stats.msg_num_in_receiver_queue) == (6, 3, 2)
    assert {name: part.num_msgs_received for name, part in stats.partition_stats.items()} == {"a": 4, "b": 2}
