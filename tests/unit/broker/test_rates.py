import pytest
from lived import Lived

from magnetar.broker.flow.rates import Distribution, Rate
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.managed_ledger.measures import Timings


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


def test_no_rate_of_a_topic_stays_that_is_quiet() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 3)
    topic.dispatched(1, 10)
    window = lived.broker.settings.stats_seconds
    lived.world.wait(window + 1)
    assert topic.rate_out.per_second > 0
    # Nothing is published or sent in the next one, and not all is at rest.
    lived.publish(topic, 2)
    topic.writes.messages += 2
    first = subscription.cursor.first_unconsumed()
    lived.world.run(topic.managed_ledger.reader.read_one(first))
    subscription.cursor.mark_delete_to(first)
    lived.world.wait(window)
    moved = (topic.writes, topic.reads, topic.mark_deletes)
    assert all(rate.per_second > 0 for rate in moved)
    lived.world.wait(2 * window)
    assert [rate.per_second for rate in moved] == [0.0] * 3
    assert not topic.is_busy
