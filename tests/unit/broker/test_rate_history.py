"""Rings of rates: what they tell, and that they are bounded."""

from __future__ import annotations

import sys

import pytest

from magnetar.broker.flow import rates as measured
from magnetar.broker.flow.rates import MOST_KEPT, WINDOWS, RateHistory


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
