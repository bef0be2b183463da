"""Several wait for the same: that one of them gives up changes nothing for the others."""

from __future__ import annotations

from typing import Any

from lived import NAME, Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.managed_ledger.position import EARLIEST


def settled(lived: Lived, *tasks: Any) -> None:
    lived.world.wait(5)
    assert all(task.done() for task in tasks)


def test_who_gives_up_subscribing_leaves_the_subscription_to_the_others() -> None:
    lived = Lived(EffectivePolicies())
    topic, loop = lived.topic(), lived.world.simulation.loop
    first, second = (
        loop.create_task(topic.subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=True))
        for _ in range(2)
    )
    lived.world.wait(0)
    first.cancel()
    settled(lived, first, second)
    assert first.cancelled()
    assert second.result() is topic.subscriptions["s"]


def test_who_gives_up_unloading_leaves_the_topic_closed() -> None:
    lived = Lived(EffectivePolicies())
    topic, loop = lived.topic(), lived.world.simulation.loop
    lived.subscribe(topic)
    lived.publish(topic, 3)
    first, second = (loop.create_task(lived.broker.topics.unload_topic(topic)) for _ in range(2))
    lived.world.wait(0)
    first.cancel()
    settled(lived, first, second)
    assert first.cancelled()
    assert second.result() is None
    again = lived.topic()
    assert again is not topic
    assert again.subscriptions["s"].backlog() == 3


def test_who_gives_up_loading_leaves_the_topic_to_the_others() -> None:
    lived = Lived(EffectivePolicies())
    loop = lived.world.simulation.loop
    first, second = (loop.create_task(lived.broker.topics.load(NAME, create=True)) for _ in range(2))
    lived.world.wait(0)
    first.cancel()
    settled(lived, first, second)
    assert first.cancelled()
    assert second.result() is lived.topic()
