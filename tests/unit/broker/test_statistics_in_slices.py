"""Statistics of a topic whose subscriptions, consumers or producers do not fit into a slice."""

from __future__ import annotations

import pytest
from peers import Brokers, Peer, subscribe_frame

from magnetar.broker.stats import assembled
from magnetar.broker.stats.topic_stats import internal_stats, topic_stats
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MANY = 20


def crowded(kind: str) -> Topic | NonPersistentTopic:
    """So many subscriptions, as many consumers of one more, and as many producers."""
    brokers = Brokers()
    peer = Peer(brokers)
    topic = f"{kind}://public/default/t"
    for number in range(1, MANY + 1):
        peer.send(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=number, request_id=number)
        peer.connection.data_received(subscribe_frame(number, f"s{number}", 1, topic))
        peer.connection.data_received(subscribe_frame(MANY + number, "all", 1, topic))
    brokers.until(
        lambda: peer.count(BaseCommand.SUCCESS) == 2 * peer.count(BaseCommand.PRODUCER_SUCCESS) == 2 * MANY
    )
    [found] = brokers.broker.topics.loaded.values()
    return found


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
def test_statistics_can_be_interrupted_everywhere_and_are_complete(kind: str) -> None:
    topic = crowded(kind)
    if isinstance(topic, Topic):
        work = topic_stats(topic, "here", backlog_size=True, publishers=True, consumers=True)
    else:
        work = assembled.stats_of_non_persistent(topic, "here", publishers=True, consumers=True)
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            stats = end.value
            break
        steps += 1
    assert steps >= 4 * MANY
    assert len(stats["publishers"]) == MANY
    assert len(stats["subscriptions"]) == MANY + 1
    assert len(stats["subscriptions"]["all"]["consumers"]) == MANY
    assert all(len(stats["subscriptions"][f"s{number}"]["consumers"]) == 1 for number in range(1, MANY + 1))


def test_what_is_deleted_meanwhile_ends_no_statistics() -> None:
    topic = crowded("persistent")
    assert isinstance(topic, Topic)
    works = [
        topic_stats(topic, "here", backlog_size=True, publishers=True, consumers=True),
        internal_stats(topic, metadata=True),
    ]
    for work in works:
        next(work)
    for name in [f"s{number}" for number in range(5, MANY)]:
        topic.managed_ledger.cursors.remove(topic.subscriptions[name].cursor)
        del topic.subscriptions[name]
    for producer in list(topic.producers.values())[3:]:
        topic.producers.remove(producer)
    for work in works:
        assert sum(1 for _ in work) >= MANY
