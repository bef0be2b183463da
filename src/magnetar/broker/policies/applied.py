"""The policies that apply to a topic, in the JSON of ``TopicPolicies``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import AGE_QUOTA, STORAGE_QUOTA

APPLIED: dict[str, Callable[[EffectivePolicies], Any]] = {
    "backLogQuotaMap": lambda p: {STORAGE_QUOTA: p.storage_quota.json(), AGE_QUOTA: p.age_quota.json()},
    "retentionPolicies": lambda p: p.retention.json(),
    "messageTTLInSeconds": lambda p: p.message_ttl_seconds,
    "deduplicationEnabled": lambda p: p.deduplication,
    "maxProducerPerTopic": lambda p: p.max_producers,
    "maxConsumerPerTopic": lambda p: p.max_consumers,
    "maxConsumersPerSubscription": lambda p: p.max_consumers_per_subscription,
    "maxSubscriptionsPerTopic": lambda p: p.max_subscriptions,
    "maxUnackedMessagesOnConsumer": lambda p: p.max_unacked_per_consumer,
    "maxUnackedMessagesOnSubscription": lambda p: p.max_unacked_per_subscription,
    "delayedDelivery": lambda p: p.delayed_delivery.json(),
    "inactiveTopicPolicies": lambda p: p.inactive_topics.json(),
    "dispatchRate": lambda p: p.dispatch_rate.json(),
    "subscriptionDispatchRate": lambda p: p.subscription_dispatch_rate.json(),
    "replicatorDispatchRate": lambda p: p.replicator_dispatch_rate.json(),
    "subscribeRate": lambda p: p.subscribe_rate.json(),
    "compactionThreshold": lambda p: p.compaction_threshold,
    "persistence": lambda p: p.persistence.json(),
    "schemaCompatibilityStrategy": lambda p: p.schema_compatibility,
    "schemaValidationEnforced": lambda p: p.schema_validation,
    "autoSubscriptionCreationOverride": lambda p: {"allowAutoSubscriptionCreation": p.auto_subscriptions},
    "entryFilters": lambda p: {"entryFilterNames": ",".join(p.entry_filters)},
    "replicationClusters": lambda p: list(p.replication_clusters),
    "dispatcherPauseOnAckStatePersistentEnabled": lambda p: p.pause_on_ack_state,
}
"""By field; a field without a row is answered as it was set for the topic."""

COUNTING: dict[str, Callable[[EffectivePolicies], Any]] = {
    **APPLIED,
    "publishRate": lambda p: p.publish_rate.json(),
    "maxMessageSize": lambda p: p.max_message_size,
    "subscriptionTypesEnabled": lambda p: list(p.subscription_types),
    "deduplicationSnapshotIntervalSeconds": lambda p: p.deduplication_snapshot_seconds,
    "subscription_expiration_time_minutes": lambda p: p.subscription_expiration_minutes,
    "max_topics_per_namespace": lambda p: p.max_topics,
    "encryption_required": lambda p: p.encryption_required,
    "is_allow_auto_update_schema": lambda p: p.auto_update_schema,
    "resource_group_name": lambda p: p.resource_group,
}
"""All rows: by field of ``TopicPolicies``, or of ``Policies`` for what only namespaces have."""


def counting(policies: EffectivePolicies) -> dict[str, Any]:
    """Returns the policies that apply, by the fields of :data:`COUNTING`."""
    return {field: render(policies) for field, render in COUNTING.items()}
