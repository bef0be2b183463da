"""What policies say of a topic: its own, else its namespace's, else the broker's."""

from __future__ import annotations

from typing import Any

import pytest
from test_service import NAME, Brokers

from magnetar.broker.policies import effective
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.namespaces import divided, new_policies
from magnetar.broker.policies.values import (
    AutoTopics,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    PublishRate,
    Retention,
)
from magnetar.errors import AlreadyExists, MetadataFailure, NamespaceNotFound, TenantNotFound
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

NAMESPACE = NAME.namespace_name


def of_namespace(**changes: Any) -> EffectivePolicies:
    policies = {**new_policies(["standalone"], divided(4)), **changes}
    return effective.of_namespace(EffectivePolicies(max_producers=7), policies, "standalone")


def test_a_new_namespace_says_nothing() -> None:
    assert of_namespace() == EffectivePolicies(max_producers=7, replication_clusters=("standalone",))


def test_the_namespace_wins_over_the_broker_and_the_topic_over_both() -> None:
    namespace = of_namespace(
        max_producers_per_topic=5,
        max_consumers_per_topic=4,
        retention_policies={"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
        publishMaxMessageRate={"standalone": {"publishThrottlingRateInMsg": 3}},
        topicDispatchRate={"elsewhere": {"dispatchThrottlingRateInMsg": 3}},
        backlog_quota_map={"message_age": {"limit": -1, "limitTime": 9, "policy": "producer_exception"}},
        autoTopicCreationOverride={
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 3,
        },
        inactive_topic_policies={
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 12,
            "deleteWhileInactive": True,
        },
        schema_auto_update_compatibility_strategy="Backward",
    )
    assert (namespace.max_producers, namespace.max_consumers) == (5, 4)
    assert namespace.retention == Retention(10, -1)
    assert namespace.publish_rate == PublishRate(3, -1)
    assert namespace.dispatch_rate == DispatchRate()
    assert namespace.age_quota == BacklogQuota(-1, 9, "producer_exception")
    assert namespace.storage_quota == BacklogQuota()
    assert namespace.auto_topics == AutoTopics(allowed=True, partitions=3)
    assert namespace.inactive_topics == InactiveTopics(True, 12, "delete_when_subscriptions_caught_up")
    assert namespace.schema_compatibility == "BACKWARD"
    topic = effective.of_topic(
        namespace,
        {
            "maxProducerPerTopic": 0,
            "delayedDeliveryTickTimeMillis": 500,
            "subscriptionTypesEnabled": ["Shared"],
            "subscriptionPolicies": {"s": {"dispatchRate": {"dispatchThrottlingRateInMsg": 2}}},
            "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 9},
        },
    )
    assert (topic.max_producers, topic.max_consumers) == (0, 4)
    assert topic.delayed_delivery == DelayedDelivery(tick_ms=500)
    assert topic.subscription_types == ("Shared",)
    assert {name: rate.messages for name, rate in topic.subscription_dispatch_rates.items()} == {"s": 2}
    assert topic.subscription_dispatch_rate.messages == 9


def test_what_is_below_0_says_nothing() -> None:
    # Namespaces that Pulsar 2.7 made have -1 for what may be unacknowledged.
    namespace = of_namespace(
        message_ttl_in_seconds=-1,
        max_producers_per_topic=-1,
        max_consumers_per_topic=-3,
        max_consumers_per_subscription=-1,
        max_subscriptions_per_topic=-1,
        max_unacked_messages_per_consumer=-1,
        max_unacked_messages_per_subscription=-1,
        max_topics_per_namespace=-1,
    )
    assert namespace == of_namespace()
    own = {"maxProducerPerTopic": -1, "maxUnackedMessagesOnConsumer": -1, "messageTTLInSeconds": -1}
    assert effective.of_topic(of_namespace(max_producers_per_topic=5), own).max_producers == 5


def test_a_rate_that_bounds_nothing_leaves_the_rates_above_it() -> None:
    namespace = of_namespace(
        topicDispatchRate={"standalone": {"dispatchThrottlingRateInMsg": 4}},
        subscriptionDispatchRate={"standalone": {"dispatchThrottlingRateInByte": 5}},
        publishMaxMessageRate={"standalone": {"publishThrottlingRateInMsg": 6}},
        clusterSubscribeRate={"standalone": {"subscribeThrottlingRatePerConsumer": 7}},
    )
    nothing = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 0, "ratePeriodInSecond": 9}
    own = {
        "dispatchRate": nothing,
        "subscriptionDispatchRate": nothing,
        "publishRate": {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": -1},
        "subscribeRate": {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 0},
    }
    assert effective.of_topic(namespace, own) == namespace
    bounded = of_namespace(topicDispatchRate={"standalone": nothing})
    assert bounded.dispatch_rate == EffectivePolicies().dispatch_rate


def test_rates_of_dispatch_are_read_where_older_versions_wrote_them() -> None:
    older = {"standalone": {"dispatchThrottlingRateInMsg": 4}}
    newer = {"standalone": {"dispatchThrottlingRateInMsg": 5}}
    assert of_namespace(clusterDispatchRate=older).dispatch_rate.messages == 4
    assert of_namespace(clusterDispatchRate=older, topicDispatchRate=newer).dispatch_rate.messages == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_producers_per_topic", "many"),
        ("max_producers_per_topic", True),
        ("retention_policies", [1]),
        ("deduplicationEnabled", 1),
        ("backlog_quota_map", {"message_age": {"limitTime": "x"}}),
        ("topicDispatchRate", 3),
        ("subscription_types_enabled", "Shared"),
    ],
)
def test_what_is_no_policy_is_named(field: str, value: Any) -> None:
    with pytest.raises(MetadataFailure):
        of_namespace(**{field: value})


def test_system_topics_are_not_bound() -> None:
    brokers = Brokers(EffectivePolicies(max_producers=1, message_ttl_seconds=5))
    system = brokers.world.run(
        brokers.broker.policies.of_topic(TopicName.parse("persistent://public/default/__change_events"))
    )
    assert (system.max_producers, system.message_ttl_seconds) == (0, 0)
    assert system.schema_compatibility == "ALWAYS_COMPATIBLE"


def test_a_change_reaches_live_topics() -> None:
    brokers = Brokers()
    topic = brokers.topic()
    other = brokers.topic(TopicName.parse("persistent://sample/standalone/ns1/t"))
    policies = brokers.broker.policies

    def work(record: dict[str, Any]) -> None:
        record["max_unacked_messages_per_consumer"] = 3
        record["of_a_later_release"] = "kept"

    brokers.world.run(policies.change_namespace(NAMESPACE, work))
    assert topic.dispatch_settings.max_unacked_per_consumer == 3
    assert other.dispatch_settings.max_unacked_per_consumer == 50_000
    stored = brokers.world.run(policies.namespaces.get(NAMESPACE))
    assert stored["of_a_later_release"] == "kept"


def test_what_would_not_be_read_again_is_not_stored() -> None:
    brokers = Brokers()
    policies = brokers.broker.policies
    with pytest.raises(MetadataFailure):
        brokers.world.run(
            policies.change_namespace(NAMESPACE, lambda record: record.update(retention_policies=5))
        )
    assert "retention_policies" not in brokers.world.run(policies.namespaces.get(NAMESPACE))


def test_a_change_by_somebody_else_counts_too() -> None:
    brokers = Brokers()
    topic = brokers.topic()
    records = brokers.broker.policies.namespaces
    brokers.world.run(records.change(NAMESPACE, lambda record: record.update(max_producers_per_topic=2)))
    brokers.world.wait(1)
    assert topic.policies.max_producers == 2


def test_changes_at_the_same_time_all_count() -> None:
    brokers = Brokers()
    loop = brokers.world.simulation.loop
    fields = ["max_producers_per_topic", "max_consumers_per_topic", "max_subscriptions_per_topic"]

    def setting(field: str) -> Any:
        return lambda record: record.update({field: 5})

    changes = [
        loop.create_task(brokers.broker.policies.change_namespace(NAMESPACE, setting(field)))
        for field in fields
    ]
    for change in changes:
        brokers.world.run(change)
    stored = brokers.world.run(brokers.broker.policies.namespaces.get(NAMESPACE))
    assert [stored[field] for field in fields] == [5, 5, 5]


def test_namespaces_come_and_go() -> None:
    brokers = Brokers()
    run, policies = brokers.world.run, brokers.broker.policies
    name = NamespaceName("mine", None, "n")
    run(policies.tenants.create("mine", {"allowedClusters": ["standalone"]}))
    with pytest.raises(AlreadyExists):
        run(policies.tenants.create("mine", {}))
    run(policies.namespaces.create(name, new_policies(["standalone"], divided(2))))
    with pytest.raises(AlreadyExists):
        run(policies.namespaces.create(name, new_policies([], divided(2))))
    assert run(policies.namespaces.of_tenant("mine")) == ["mine/n"]
    run(policies.of_namespace(name))
    run(policies.namespaces.delete(name))
    with pytest.raises(NamespaceNotFound):
        run(policies.of_namespace(name))
    run(policies.tenants.delete("mine"))
    with pytest.raises(TenantNotFound):
        run(policies.namespaces.of_tenant("mine"))


@pytest.mark.parametrize("rate", [10**400, float("nan"), float("inf")])
def test_numbers_that_no_broker_writes_are_told_as_such(rate: float) -> None:
    with pytest.raises(MetadataFailure, match="persistence: must be a number"):
        of_namespace(persistence={"managedLedgerMaxMarkDeleteRate": rate})


def test_an_old_strategy_that_is_no_text_says_nothing() -> None:
    assert of_namespace(schema_auto_update_compatibility_strategy=["Full"]) == of_namespace()


def test_a_namespace_that_nobody_can_read_hides_no_other() -> None:
    brokers = Brokers()
    brokers.world.run(brokers.world.metadata.put("/admin/policies/public/broken", b"{", None))
    found = brokers.world.run(brokers.broker.policies.namespaces.of_tenant("public"))
    assert str(NAMESPACE) in found
    assert "public/broken" not in found
