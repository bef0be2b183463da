"""Rings of rates: what they tell, and that they are bounded."""

from __future__ import annotations

import sys

import pytest

from magnetar.broker.flow import rates as measured
from magnetar.broker.flow.rates import (
    LATENCY_BOUNDS_MS,
    MOST_KEPT,
    MOST_LATENCIES,
    WINDOWS,
    Distribution,
    LatencyHistory,
    RateHistory,
    latency_quantiles,
)


def test_windows_come_oldest_first_and_idle_ones_are_zero() -> None:
    rates = RateHistory()
    assert rates.of("t") == ((), ())
    for window in range(5):
        rates.new_window()
        if window != 2:
            rates.add("t", window + 1.0, 10.0)
    told_in, told_out = rates.of("t")
    assert list(told_in) == [1.0, 2.0, 0.0, 4.0, 5.0]
    assert list(told_out)[-3:] == [0.0, 10.0, 10.0]
    for _ in range(3):
        rates.new_window()
    assert list(rates.of("t")[0])[-5:] == [4.0, 5.0, 0.0, 0.0, 0.0]


def test_what_is_older_than_the_ring_is_forgotten() -> None:
    rates = RateHistory()
    rates.new_window()
    rates.add("t", 7.0, 7.0)
    for _ in range(WINDOWS - 1):
        rates.new_window()
    assert list(rates.of("t")[0]) == [7.0] + [0.0] * (WINDOWS - 1)
    for _ in range(WINDOWS * 3 + 1):
        rates.new_window()
    assert rates.of("t")[0] == ()


def test_several_of_a_window_add_up() -> None:
    rates = RateHistory()
    rates.new_window()
    rates.add("", 1.0, 2.0)
    rates.add("", 3.0, 4.0)
    assert (rates.of("")[0][-1], rates.of("")[1][-1]) == (4.0, 6.0)


def test_rings_are_so_many_and_so_small_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = measured._Ring(0)
    name = "persistent://public/default/" + "n" * 40
    assert sys.getsizeof(ring) + sys.getsizeof(ring.values) + sys.getsizeof(name) + 100 < 1024
    assert MOST_KEPT * 1024 <= 8 << 20
    monkeypatch.setattr(measured, "MOST_KEPT", 2)
    rates = RateHistory()
    for name in "abc":
        rates.add(name, 1.0, 1.0)
    assert len(rates) == 2
    assert rates.of("c") == ((), ())
    for _ in range(WINDOWS * 2):
        rates.new_window()
        rates.add("a", 1.0, 1.0)
    # Those that were idle all the time make room.
    rates.add("c", 1.0, 1.0)
    assert rates.of("c")[0][-1] == 1.0


def counts(*values: float) -> list[int]:
    found = Distribution(LATENCY_BOUNDS_MS)
    for value in values:
        found.add(value)
    return found.counts


def test_quantiles_are_estimated_between_the_bounds() -> None:
    assert latency_quantiles(counts()) == ()
    assert latency_quantiles(counts(0.3)) == [0.25, 0.495]
    # Half of them are in the first bucket; the rest is spread over the second one, from 0.5 to 1.
    assert latency_quantiles(counts(*[0.1] * 50, *[0.7] * 50)) == pytest.approx([0.5, 0.99])
    assert latency_quantiles(counts(*[0.1] * 90, *[150] * 10)) == pytest.approx([0.5 * 5 / 9, 190.0])
    assert latency_quantiles(counts(5000, 9000)) == [1000, 1000]


def test_a_distribution_tells_what_was_added_since_the_last_time() -> None:
    found = Distribution((1, 2))
    assert found.tick() == ()
    found.add(0.5, 2)
    assert list(found.tick()) == [2, 0, 0]
    assert found.tick() == ()
    found.add(3)
    found.add(1.5)
    assert list(found.tick()) == [0, 1, 1]
    assert found.counts == [2, 1, 1]


def test_latencies_of_a_topic_and_of_all_topics_by_window() -> None:
    history = LatencyHistory()
    assert history.of("") == ()
    history.new_window()
    history.add("a", counts(0.3))
    history.add("b", counts(*[150] * 99))
    history.add("c", ())
    assert history.of("a") == [pytest.approx([0.25]), pytest.approx([0.495])]
    assert history.of("c") == ()
    [middle], [high] = history.of("")
    assert (middle, high) == (pytest.approx(149.49, abs=0.1), pytest.approx(198.99, abs=0.1))
    history.new_window()
    history.new_window()
    history.add("a", counts(0.3))
    assert history.of("a")[0] == [0.25, None, 0.25]
    assert history.of("")[0] == [pytest.approx(149.49, abs=0.1), None, 0.25]
    for _ in range(WINDOWS - 1):
        history.new_window()
    assert history.of("a")[0] == [0.25] + [None] * (WINDOWS - 1)
    for _ in range(WINDOWS * 2):
        history.new_window()
    assert (len(history), history.of("a"), history.of("")) == (0, (), ())


def test_latencies_are_kept_of_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    history = LatencyHistory()
    history.new_window()
    history.add("a", counts(0.3))
    size = sum(map(sys.getsizeof, history._rings["a"])) + sys.getsizeof(history._rings["a"])
    name = "persistent://public/default/" + "n" * 40
    assert size + sys.getsizeof(name) + 100 < 1536
    assert MOST_LATENCIES * 1536 <= 6 << 20
    monkeypatch.setattr(measured, "MOST_LATENCIES", 2)
    history.add("b", counts(0.3))
    assert (len(history), history.of("b")) == (2, ())
    # The sum has room in any case.
    assert len(history.of("")) == 2
