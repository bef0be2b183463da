"""A topic with thousands of subscriptions is loaded, and others do not notice."""

from __future__ import annotations

from typing import Any

import pytest
from peers import TOPIC, Brokers, Peer, subscribe_frame

from magnetar.broker.topics import subscribing
from magnetar.managed_ledger.cursors import Cursors
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MANY = 100
IN_A_SLICE = 4


@pytest.mark.parametrize("part", ["subscriptions", "cursors"])
def test_subscriptions_of_a_topic_are_made_in_slices(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    peer = Peer(brokers)
    for number in range(MANY):
        peer.connection.data_received(subscribe_frame(number, f"s{number}", 0))
    brokers.until(lambda: peer.count(BaseCommand.SUCCESS) == MANY)
    brokers.world.run(brokers.broker.topics.unload_topic(brokers.broker.topics.loaded[TOPIC]))
    made = 0

    def costs(*_arguments: Any) -> None:
        """Work takes no time in the simulated world."""
        nonlocal made
        made += 1
        brokers.loop.timeline.now += 0.001 / IN_A_SLICE + 1e-6

    if part == "subscriptions":

        class Costly(subscribing.Subscription):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                costs()

        monkeypatch.setattr(subscribing, "Subscription", Costly)
    else:
        add = Cursors.add
        monkeypatch.setattr(Cursors, "add", lambda self, cursor: (add(self, cursor), costs()))
    loading = brokers.loop.create_task(brokers.broker.topics.load(TopicName.parse(TOPIC), create=False))
    most = before = 0

    def loaded() -> bool:
        nonlocal most, before
        most, before = max(most, made - before), made
        return bool(loading.done())

    brokers.until(loaded)
    assert made == MANY
    assert most <= IN_A_SLICE
    assert set(loading.result().subscriptions) == {f"s{number}" for number in range(MANY)}
