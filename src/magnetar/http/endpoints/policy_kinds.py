"""What policies of namespaces and topics share: the name that allows them, and what their body holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from magnetar.http.routing import Parameter
from magnetar.security.operations import PolicyName as P
from magnetar.security.operations import PolicyOperation


class Kind(NamedTuple):
    policy: P
    body: str
    """Pulsar's name of what the body holds when it is set."""


KINDS: Mapping[str, Kind] = {
    "antiAffinity": Kind(P.ANTI_AFFINITY, "string"),
    "autoSubscriptionCreation": Kind(P.AUTO_SUBSCRIPTION_CREATION, "AutoSubscriptionCreationOverride"),
    "autoTopicCreation": Kind(P.AUTO_TOPIC_CREATION, "AutoTopicCreationOverride"),
    "compactionThreshold": Kind(P.COMPACTION, "long"),
    "deduplication": Kind(P.DEDUPLICATION, "bool"),
    "deduplicationEnabled": Kind(P.DEDUPLICATION, "bool"),
    "deduplicationSnapshotInterval": Kind(P.DEDUPLICATION_SNAPSHOT, "int"),
    "delayedDelivery": Kind(P.DELAYED_DELIVERY, "DelayedDeliveryPolicies"),
    "dispatchRate": Kind(P.RATE, "DispatchRate"),
    "dispatcherPauseOnAckStatePersistent": Kind(P.DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT, ""),
    "encryptionRequired": Kind(P.ENCRYPTION, "bool"),
    "entryFilters": Kind(P.ENTRY_FILTERS, "EntryFilters"),
    "inactiveTopicPolicies": Kind(P.INACTIVE_TOPIC, "InactiveTopicPolicies"),
    "isAllowAutoUpdateSchema": Kind(P.SCHEMA_COMPATIBILITY_STRATEGY, "bool"),
    "maxConsumers": Kind(P.MAX_CONSUMERS, "int"),
    "maxConsumersPerSubscription": Kind(P.MAX_CONSUMERS, "int"),
    "maxConsumersPerTopic": Kind(P.MAX_CONSUMERS, "int"),
    "maxMessageSize": Kind(P.MAX_MESSAGE_SIZE, "int"),
    "maxProducers": Kind(P.MAX_PRODUCERS, "int"),
    "maxProducersPerTopic": Kind(P.MAX_PRODUCERS, "int"),
    "maxSubscriptionsPerTopic": Kind(P.MAX_SUBSCRIPTIONS, "int"),
    "maxTopicsPerNamespace": Kind(P.MAX_TOPICS, "int"),
    "maxUnackedMessagesOnConsumer": Kind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesOnSubscription": Kind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesPerConsumer": Kind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesPerSubscription": Kind(P.MAX_UNACKED, "int"),
    "messageTTL": Kind(P.TTL, "int"),
    "offloadDeletionLagMs": Kind(P.OFFLOAD, "long"),
    "offloadPolicies": Kind(P.OFFLOAD, "OffloadPolicies"),
    "offloadThreshold": Kind(P.OFFLOAD, "long"),
    "offloadThresholdInSeconds": Kind(P.OFFLOAD, "long"),
    "persistence": Kind(P.PERSISTENCE, "PersistencePolicies"),
    "persistence/bookieAffinity": Kind(P.BOOKIE_AFFINITY, "BookieAffinityGroupData"),
    "publishRate": Kind(P.RATE, "PublishRate"),
    "replication": Kind(P.REPLICATION, "array<string>"),
    "replicatorDispatchRate": Kind(P.REPLICATION_RATE, "DispatchRate"),
    "resourcegroup": Kind(P.RESOURCEGROUP, ""),
    "retention": Kind(P.RETENTION, "RetentionPolicies"),
    "schemaAutoUpdateCompatibilityStrategy": Kind(
        P.SCHEMA_COMPATIBILITY_STRATEGY, "SchemaAutoUpdateCompatibilityStrategy"
    ),
    "schemaCompatibilityStrategy": Kind(P.SCHEMA_COMPATIBILITY_STRATEGY, "SchemaCompatibilityStrategy"),
    "schemaValidationEnforced": Kind(P.SCHEMA_COMPATIBILITY_STRATEGY, "bool"),
    "shadowTopics": Kind(P.SHADOW_TOPIC, "array<string>"),
    "subscribeRate": Kind(P.RATE, "SubscribeRate"),
    "subscriptionAuthMode": Kind(P.SUBSCRIPTION_AUTH_MODE, "SubscriptionAuthMode"),
    "subscriptionDispatchRate": Kind(P.RATE, "DispatchRate"),
    "subscriptionExpirationTime": Kind(P.SUBSCRIPTION_EXPIRATION_TIME, "int"),
    "subscriptionTypesEnabled": Kind(P.SUBSCRIPTION_TYPES, "array<SubscriptionType>"),
}

NOT_THERE = {501: "this release cannot honour it"}
"""What setting a policy may be refused with, too."""

QUOTA_TYPE = Parameter("backlogQuotaType", "text", "destination_storage")


def reads(policy: P) -> PolicyOperation:
    return PolicyOperation(policy, write=False)


def writes(policy: P) -> PolicyOperation:
    return PolicyOperation(policy, write=True)
