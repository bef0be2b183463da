"""Kinds of policies of namespaces and topics: the permission name, and the type of the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from magnetar.http.routing import Parameter
from magnetar.security.operations import PolicyName as P
from magnetar.security.operations import PolicyOperation


class PolicyKind(NamedTuple):
    policy: P
    body: str
    """Pulsar's name of the type of the body."""


KINDS: Mapping[str, PolicyKind] = {
    "antiAffinity": PolicyKind(P.ANTI_AFFINITY, "string"),
    "autoSubscriptionCreation": PolicyKind(P.AUTO_SUBSCRIPTION_CREATION, "AutoSubscriptionCreationOverride"),
    "autoTopicCreation": PolicyKind(P.AUTO_TOPIC_CREATION, "AutoTopicCreationOverride"),
    "compactionThreshold": PolicyKind(P.COMPACTION, "long"),
    "deduplication": PolicyKind(P.DEDUPLICATION, "bool"),
    "deduplicationEnabled": PolicyKind(P.DEDUPLICATION, "bool"),
    "deduplicationSnapshotInterval": PolicyKind(P.DEDUPLICATION_SNAPSHOT, "int"),
    "delayedDelivery": PolicyKind(P.DELAYED_DELIVERY, "DelayedDeliveryPolicies"),
    "dispatchRate": PolicyKind(P.RATE, "DispatchRate"),
    "dispatcherPauseOnAckStatePersistent": PolicyKind(P.DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT, ""),
    "encryptionRequired": PolicyKind(P.ENCRYPTION, "bool"),
    "entryFilters": PolicyKind(P.ENTRY_FILTERS, "EntryFilters"),
    "inactiveTopicPolicies": PolicyKind(P.INACTIVE_TOPIC, "InactiveTopicPolicies"),
    "isAllowAutoUpdateSchema": PolicyKind(P.SCHEMA_COMPATIBILITY_STRATEGY, "bool"),
    "maxConsumers": PolicyKind(P.MAX_CONSUMERS, "int"),
    "maxConsumersPerSubscription": PolicyKind(P.MAX_CONSUMERS, "int"),
    "maxConsumersPerTopic": PolicyKind(P.MAX_CONSUMERS, "int"),
    "maxMessageSize": PolicyKind(P.MAX_MESSAGE_SIZE, "int"),
    "maxProducers": PolicyKind(P.MAX_PRODUCERS, "int"),
    "maxProducersPerTopic": PolicyKind(P.MAX_PRODUCERS, "int"),
    "maxSubscriptionsPerTopic": PolicyKind(P.MAX_SUBSCRIPTIONS, "int"),
    "maxTopicsPerNamespace": PolicyKind(P.MAX_TOPICS, "int"),
    "maxUnackedMessagesOnConsumer": PolicyKind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesOnSubscription": PolicyKind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesPerConsumer": PolicyKind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesPerSubscription": PolicyKind(P.MAX_UNACKED, "int"),
    "messageTTL": PolicyKind(P.TTL, "int"),
    "offloadDeletionLagMs": PolicyKind(P.OFFLOAD, "long"),
    "offloadPolicies": PolicyKind(P.OFFLOAD, "OffloadPolicies"),
    "offloadThreshold": PolicyKind(P.OFFLOAD, "long"),
    "offloadThresholdInSeconds": PolicyKind(P.OFFLOAD, "long"),
    "persistence": PolicyKind(P.PERSISTENCE, "PersistencePolicies"),
    "persistence/bookieAffinity": PolicyKind(P.BOOKIE_AFFINITY, "BookieAffinityGroupData"),
    "publishRate": PolicyKind(P.RATE, "PublishRate"),
    "replication": PolicyKind(P.REPLICATION, "array<string>"),
    "replicatorDispatchRate": PolicyKind(P.REPLICATION_RATE, "DispatchRate"),
    "resourcegroup": PolicyKind(P.RESOURCEGROUP, ""),
    "retention": PolicyKind(P.RETENTION, "RetentionPolicies"),
    "schemaAutoUpdateCompatibilityStrategy": PolicyKind(
        P.SCHEMA_COMPATIBILITY_STRATEGY, "SchemaAutoUpdateCompatibilityStrategy"
    ),
    "schemaCompatibilityStrategy": PolicyKind(P.SCHEMA_COMPATIBILITY_STRATEGY, "SchemaCompatibilityStrategy"),
    "schemaValidationEnforced": PolicyKind(P.SCHEMA_COMPATIBILITY_STRATEGY, "bool"),
    "shadowTopics": PolicyKind(P.SHADOW_TOPIC, "array<string>"),
    "subscribeRate": PolicyKind(P.RATE, "SubscribeRate"),
    "subscriptionAuthMode": PolicyKind(P.SUBSCRIPTION_AUTH_MODE, "SubscriptionAuthMode"),
    "subscriptionDispatchRate": PolicyKind(P.RATE, "DispatchRate"),
    "subscriptionExpirationTime": PolicyKind(P.SUBSCRIPTION_EXPIRATION_TIME, "int"),
    "subscriptionTypesEnabled": PolicyKind(P.SUBSCRIPTION_TYPES, "array<SubscriptionType>"),
}

NOT_THERE = {501: "this release does not support the value"}
"""A further refusal of requests that set a policy."""

QUOTA_TYPE = Parameter("backlogQuotaType", "text", "destination_storage")


def reads(policy: P) -> PolicyOperation:
    return PolicyOperation(policy, write=False)


def writes(policy: P) -> PolicyOperation:
    return PolicyOperation(policy, write=True)
