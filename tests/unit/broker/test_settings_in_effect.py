"""Settings that were changed while a broker runs: live topics and connections go by them at once."""

from __future__ import annotations

import pytest
from test_service import NAME, Brokers

from magnetar.broker.flow.dispatch_rates import LimitedBy
from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.service import BrokerService, Dynamic
from magnetar.config.settings import default_settings
from magnetar.io.slices import let_others
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.position import EARLIEST
from magnetar.naming.topic_name import TopicName
from magnetar.server.addresses import Advertised
from magnetar.server.changing_settings import BrokerOptions
from magnetar.server.security import Roles
from magnetar.server.settings import broker_settings

NOBODY = Advertised(Addresses(None), {})


class Changed:
    """A broker with a live topic whose settings are changed."""

    def __init__(self, *, deduplication: bool = False) -> None:
        self.brokers = Brokers(EffectivePolicies(deduplication=deduplication))
        of_file = default_settings(broker_deduplication_enabled=deduplication)
        self.options = BrokerOptions(of_file, cluster=False)
        self.topic = self.brokers.topic()

    def change(self, **texts: str | None) -> None:
        for name, text in texts.items():
            assert self.options.dynamic[name].apply(text)
        settings = broker_settings(self.options.now, NOBODY, "", {})
        self.brokers.world.run(self.brokers.broker.use(settings))


def test_a_broker_that_runs_goes_by_them_at_once() -> None:
    changed = Changed()
    brokers, topic, change = changed.brokers, changed.topic, changed.change
    broker = brokers.broker
    brokers.world.run(topic.subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=True))
    change(
        dispatchThrottlingRatePerTopicInMsg="5",
        maxPublishRatePerTopicInMessages="6",
        subscribeThrottlingRatePerConsumer="7",
        brokerPublisherThrottlingMaxMessageRate="8",
        dispatchThrottlingRateInByte="9",
        maxMessagePublishBufferSizeInMB="1",
        dispatcherMaxReadBatchSize="10",
        dispatchThrottlingOnBatchMessageEnabled="true",
        subscriptionKeySharedEnable="false",
        maxTenants="11",
    )
    assert topic.policies.dispatch_rate.messages == 5
    assert topic.publish_limiter is not None
    assert topic.publish_limiter.rates == (6, 0)
    assert topic.subscribe_limiter is not None
    assert broker.limits.publish_limiter is not None
    assert broker.limits.publish_limiter.rates == (8, 0)
    assert broker.topics.shared_limits.dispatch.rate.size == 9
    assert topic.dispatch_settings.max_read_entries == 10
    throttle = topic.subscriptions["s"].throttle
    assert throttle is not None
    assert [limiter.kind for limiter in throttle.limiters] == [LimitedBy.TOPIC, LimitedBy.BROKER]
    assert not throttle.count_messages
    assert (broker.settings.key_shared_enabled, broker.settings.max_tenants) == (False, 11)
    change(
        dispatchThrottlingRatePerTopicInMsg=None,
        maxPublishRatePerTopicInMessages=None,
        brokerPublisherThrottlingMaxMessageRate=None,
    )
    assert (topic.policies.dispatch_rate.limited, topic.publish_limiter, broker.limits.publish_limiter) == (
        False,
        None,
        None,
    )


def test_only_what_says_who_may_has_clients_asked_again() -> None:
    """With thousands of clients that is work for each of them."""
    brokers = Brokers()
    roles = Roles(default_settings())
    options = BrokerOptions(default_settings(), cluster=False)
    used: list[None] = []

    async def changed() -> None:
        used.append(None)

    service = BrokerService(
        brokers.world.simulation.io,
        TimerWheel(brokers.world.simulation.loop),
        brokers.world.metadata,
        brokers.world.managed,
        brokers.broker.settings,
        dynamic=Dynamic({**options.dynamic, **roles.dynamic}, {}, changed),
    )
    run, generation = brokers.world.run, service.revocation.generation
    run(service.dynamic.set("maxTenants", "7"))
    run(service.dynamic.set("dispatchThrottlingRatePerTopicInMsg", "5"))
    assert (len(used), service.revocation.generation) == (2, generation)
    run(service.dynamic.set("superUserRoles", "root"))
    run(service.dynamic.set("proxyRoles", "p"))
    assert (len(used), service.revocation.generation) == (4, generation + 2)


def test_topics_that_come_later_go_by_them_too() -> None:
    changed = Changed()
    changed.change(dispatchThrottlingRatePerTopicInMsg="5", isAllowAutoUpdateSchemaEnabled="false")
    later = changed.brokers.topic(TopicName.parse(f"{NAME}-later"))
    assert later.policies.dispatch_rate.messages == 5
    assert not later.policies.auto_update_schema


def test_unused_topics_are_looked_for_at_the_new_interval() -> None:
    changed = Changed()
    brokers = changed.brokers
    brokers.broker.upkeep.housekeeping.start()
    changed.change(brokerDeleteInactiveTopicsMaxInactiveDurationSeconds="4")
    brokers.world.wait(10)
    assert str(NAME) in brokers.broker.topics.loaded, "it is looked for once a minute"
    changed.change(brokerDeleteInactiveTopicsFrequencySeconds="2")
    brokers.world.wait(10)
    assert str(NAME) not in brokers.broker.topics.loaded


@pytest.mark.parametrize("steps", [0, 20, 30, 32, 34, 36, 38])
def test_a_topic_that_is_being_loaded_goes_by_them_too(steps: int) -> None:
    """At whatever step of it they change; most near the end, when it is made and nobody can find it yet."""
    changed = Changed(deduplication=True)
    brokers, loop = changed.brokers, changed.brokers.world.simulation.loop
    loading = loop.create_task(brokers.broker.topics.load(TopicName.parse(f"{NAME}-loading"), create=True))

    async def change() -> None:
        await let_others(loop, steps * 0.00025)
        assert changed.options.dynamic["dispatcherMaxReadBatchSize"].apply("7")
        await brokers.broker.use(broker_settings(changed.options.now, NOBODY, "", {}))

    brokers.world.run(loop.create_task(change()))
    assert brokers.world.run(loading).dispatch_settings.max_read_entries == 7
