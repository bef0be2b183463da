import pytest

from magnetar.broker.flow.rates import Distribution, Rate, Timings


def test_a_rate_is_of_the_last_window() -> None:
    rate = Rate()
    rate.messages, rate.bytes = 100, 5000
    rate.tick(10.0)
    assert (rate.per_second, rate.bytes_per_second, rate.average_size()) == (10.0, 500.0, 50.0)
    rate.messages, rate.bytes = 110, 5100
    rate.tick(10.0)
    assert (rate.per_second, rate.average_size()) == (1.0, 10.0)
    rate.tick(10.0)
    assert (rate.per_second, rate.bytes_per_second, rate.average_size()) == (0.0, 0.0, 0.0)
    assert (rate.messages, rate.bytes) == (110, 5100)


def test_a_distribution_counts_up_to_each_bound() -> None:
    found = Distribution((1, 10))
    for value in (0.5, 1, 1.5, 10, 11):
        found.add(value)
    found.add(100, times=3)
    assert found.counts == [2, 2, 4]
    assert found.total == pytest.approx(324)


def test_timings_keep_totals_of_all_and_quantiles_of_the_newest() -> None:
    timings = Timings()
    assert timings.quantiles((0.5,)) == {}
    for _ in range(5000):
        timings.add(1000.0)
    for value in range(1024):
        timings.add(float(value))
    assert timings.count == 6024
    assert timings.total_ms == pytest.approx(5_000_000 + 1023 * 512)
    assert timings.quantiles((0.0, 0.5, 1.0)) == {0.0: 0.0, 0.5: 512.0, 1.0: 1023.0}
