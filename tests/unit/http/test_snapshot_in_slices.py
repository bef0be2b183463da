"""Figures of topics that do not fit into a slice."""

from __future__ import annotations

from served import TOPIC, Served

from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.managed_ledger.position import EARLIEST


def test_figures_of_a_topic_with_many_subscriptions_are_those_of_each() -> None:
    served = Served()
    topic = served.topic(TOPIC)
    for number in range(60):
        served.world.run(
            topic.subscriptions.subscribe(f"many-{number}", EARLIEST, {}, durable=True, create=True)
        )
    snapshot = served.world.run(take_snapshot(served.broker))
    [found] = [each for each in snapshot.topics if each.name == TOPIC]
    assert len(found.subscriptions) == 60
    assert {each.name for each in found.subscriptions} == set(topic.subscriptions)
