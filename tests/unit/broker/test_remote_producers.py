"""Producers of replicators: they are connected, and count neither for limits nor for statistics."""

from __future__ import annotations

from dataclasses import replace

from lived import Lived
from peers import TOPIC, Brokers, Peer
from replicating import NAME, Replicator, the_topic

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import InactiveTopics
from magnetar.broker.stats.assembled import StatsSelection, stats_of
from magnetar.broker.upkeep.inactivity import is_inactive, is_topic_due
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def refused(world: Brokers, name: str) -> str:
    peer = Peer(world)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1, producer_name=name)
    world.until(lambda: peer.count(BaseCommand.ERROR))
    return peer.received(BaseCommand.ERROR)[0].error.message


def test_limits_neither_count_nor_keep_out_replicators() -> None:
    world = Brokers()
    topic_settings = replace(world.broker.settings.topic, max_same_address_producers=1)
    world.broker.settings = replace(world.broker.settings, topic=topic_settings)
    Replicator(world)
    topic = the_topic(world)
    topic.apply_policies(replace(topic.policies, max_producers=1))
    world.publisher()
    assert "max producers" in refused(world, "another")
    assert Replicator(world, name="pulsar.repl.west-->standalone").count(BaseCommand.PRODUCER_SUCCESS) == 1


def test_the_name_of_a_connected_replicator_is_taken() -> None:
    world = Brokers()
    Replicator(world)
    peer = Peer(world)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1, producer_name=NAME)
    for _ in range(10):
        world.one_turn()
    assert not peer.count(BaseCommand.PRODUCER_SUCCESS)


def test_statistics_have_no_publisher_and_count_the_messages() -> None:
    world = Brokers()
    sender = Replicator(world, by_position=False)
    world.publish(sender, 3)
    topic = the_topic(world)
    known = world.world.run(stats_of(world.broker.io, topic, "here", StatsSelection()))
    assert known["publishers"] == []
    assert known["msgInCounter"] == 3
    world.publisher()
    known = world.world.run(stats_of(world.broker.io, topic, "here", StatsSelection()))
    assert len(known["publishers"]) == 1
    assert len(topic.producers) == 2


def test_replicators_do_not_make_a_topic_active_but_keep_it_while_they_are_connected() -> None:
    world = Brokers()
    sender = Replicator(world)
    topic = the_topic(world)
    topic.apply_policies(replace(topic.policies, inactive_topics=InactiveTopics(True, 10)))
    topic.last_active = world.broker.io.clock.monotonic()
    later = topic.last_active + 11
    assert is_inactive(topic, later)
    assert not is_topic_due(topic, later)
    sender.send(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=1, request_id=2)
    world.until(lambda: not topic.producers)
    assert is_topic_due(topic, later), "leaving is no use, either"


def test_a_topic_with_a_local_producer_is_active() -> None:
    lived = Lived(EffectivePolicies(inactive_topics=InactiveTopics(True, 10)))
    world = Brokers()
    Replicator(world)
    world.publisher()
    topic = the_topic(world)
    topic.apply_policies(replace(topic.policies, inactive_topics=InactiveTopics(True, 10)))
    assert not is_inactive(topic, world.broker.io.clock.monotonic() + 11)
    assert is_inactive(lived.topic(TopicName.parse(TOPIC)), lived.clock.monotonic() + 11)
