"""The broker's topics in a simulated world."""

from __future__ import annotations

import pytest
from world import World

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import AutoTopics
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import InvalidName, NamespaceNotFound, TopicNotFound
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.position import EARLIEST
from magnetar.metadata.interface import MetadataUnavailable
from magnetar.naming.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/t")


class Brokers:
    """One broker over the stores of a world."""

    def __init__(self, policies: EffectivePolicies = EffectivePolicies()) -> None:  # noqa: B008 - frozen
        self.world = World()
        io = self.world.simulation.io
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        topic = TopicSettings(DispatchSettings())
        known = BrokerSettings("standalone", urls[1], urls[0], topic, policies=policies)
        wheel = TimerWheel(io.loop)
        self.broker = BrokerService(io, wheel, self.world.metadata, self.world.managed, known)

    def topic(self, name: TopicName = NAME, *, create: bool = True) -> Topic:
        return self.world.run(self.broker.topics.load(name, create=create))


def test_a_topic_is_loaded_once() -> None:
    brokers = Brokers()
    loop = brokers.world.simulation.loop
    loads = [loop.create_task(brokers.broker.topics.load(NAME, create=True)) for _ in range(5)]
    assert len({id(brokers.world.run(load)) for load in loads}) == 1


def test_who_wants_a_topic_made_does_not_fail_with_who_does_not() -> None:
    brokers = Brokers()
    loop = brokers.world.simulation.loop
    looking = loop.create_task(brokers.broker.topics.load(NAME, create=False))
    making = loop.create_task(brokers.broker.topics.load(NAME, create=True))
    assert brokers.world.run(making) is brokers.topic()
    with pytest.raises(TopicNotFound):
        brokers.world.run(looking)


def test_an_operator_makes_what_clients_may_not() -> None:
    brokers = Brokers(EffectivePolicies(auto_topics=AutoTopics(allowed=False)))
    with pytest.raises(TopicNotFound):
        brokers.topic()
    made = brokers.world.run(brokers.broker.topics.create_topic(NAME))
    assert brokers.topic(create=False) is made


def test_without_a_namespace_there_is_no_topic() -> None:
    with pytest.raises(NamespaceNotFound):
        Brokers().topic(TopicName.parse("persistent://public/nowhere/t"))


def test_a_topic_lost_to_somebody_else_is_loaded_anew() -> None:
    brokers = Brokers()
    lost = brokers.topic()
    brokers.world.run(brokers.world.managed.open(NAME.path, create=False))
    brokers.world.wait(1)
    assert lost.fenced
    again = brokers.topic()
    assert again is not lost
    assert not again.fenced


def test_stopping_closes_everything() -> None:
    brokers = Brokers()
    topics = [brokers.topic(TopicName.parse(f"persistent://public/default/t{n}")) for n in range(100)]
    brokers.world.run(brokers.broker.stop())
    assert all(topic.closing for topic in topics)
    assert not brokers.broker.topics.loaded
    assert not brokers.world.managed.opened


@pytest.mark.parametrize("name", ["x" * 1001, "..", ""])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_subscriptions_have_names_that_metadata_can_hold(domain: str, name: str) -> None:
    brokers = Brokers()
    topic = brokers.world.run(
        brokers.broker.topics.load(TopicName.parse(f"{domain}://public/default/t"), create=True)
    )
    with pytest.raises(InvalidName, match="invalid subscription name"):
        brokers.world.run(topic.subscriptions.subscribe(name, EARLIEST, {}, durable=True, create=True))
    assert not topic.subscriptions


def test_topics_whose_end_is_not_recorded_are_counted_when_the_broker_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers()
    topic = brokers.topic(NAME)
    broker = brokers.broker

    async def silent() -> None:
        raise MetadataUnavailable("no answer")

    monkeypatch.setattr(topic, "close", silent)
    brokers.world.run(broker.topics.unload_topics([topic]))
    # What is unloaded while it serves can be closed later.
    assert broker.topics.unloads.unrecorded == 0
    again = brokers.topic(NAME)
    monkeypatch.setattr(again, "close", silent)
    brokers.world.run(broker.stop())
    assert broker.topics.unloads.unrecorded == 1
