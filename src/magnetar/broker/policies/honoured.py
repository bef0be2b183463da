"""The one table of the fields that clients and operators may set, and whether each has an effect.

The documents, REST (``Warning``) and the command line are derived from this table. Fields that the broker
refuses are not in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class NotYet(NamedTuple):
    """A field that the broker accepts although it has no effect."""

    what: str
    instead: str


_PERMISSIONS = NotYet("a permission", "authorizationEnabled is false, so every client has all permissions")
_SUBSCRIPTION_MODE = NotYet("a subscription's authorization mode", _PERMISSIONS.instead)
BY_AUTHORIZATION = frozenset((_PERMISSIONS, _SUBSCRIPTION_MODE))
"""The policies that have no effect while authorization is off."""

_FILTERS = NotYet("an entry filter", "allowOverrideEntryFilters is false, so only the broker's filters apply")
BY_SETTINGS = BY_AUTHORIZATION | {_FILTERS}
"""The policies that may have no effect, depending on the broker's settings."""

NAMESPACE: Mapping[str, NotYet | None] = {
    "allowed_clusters": None,
    "auth_policies": _PERMISSIONS,
    "autoSubscriptionCreationOverride": None,
    "autoTopicCreationOverride": None,
    "backlog_quota_map": None,
    "bookieAffinityGroup": None,
    "bundles": None,
    "clusterSubscribeRate": None,
    "compaction_threshold": None,
    "deduplicationEnabled": None,
    "deduplicationSnapshotIntervalSeconds": None,
    "delayed_delivery_policies": None,
    "dispatcherPauseOnAckStatePersistentEnabled": None,
    "encryption_required": None,
    "entryFilters": None,
    "inactive_topic_policies": None,
    "is_allow_auto_update_schema": None,
    "max_consumers_per_subscription": None,
    "max_consumers_per_topic": None,
    "max_producers_per_topic": None,
    "max_subscriptions_per_topic": None,
    "max_topics_per_namespace": None,
    "max_unacked_messages_per_consumer": None,
    "max_unacked_messages_per_subscription": None,
    "message_ttl_in_seconds": None,
    "namespaceAntiAffinityGroup": None,
    "persistence": None,
    "properties": None,
    "publishMaxMessageRate": None,
    "replication_clusters": None,
    "replicatorDispatchRate": None,
    "resource_group_name": None,
    "retention_policies": None,
    "schema_auto_update_compatibility_strategy": None,
    "schema_compatibility_strategy": None,
    "schema_validation_enforced": None,
    "subscriptionDispatchRate": None,
    "subscription_auth_mode": _SUBSCRIPTION_MODE,
    "subscription_expiration_time_minutes": None,
    "subscription_types_enabled": None,
    "topicDispatchRate": None,
}
"""Fields of ``Policies`` and ``LocalPolicies``; None for a field that is honoured."""

TOPIC: Mapping[str, NotYet | None] = {
    "autoSubscriptionCreationOverride": None,
    "backLogQuotaMap": None,
    "compactionThreshold": None,
    "deduplicationEnabled": None,
    "deduplicationSnapshotIntervalSeconds": None,
    "delayedDeliveryEnabled": None,
    "dispatchRate": None,
    "dispatcherPauseOnAckStatePersistentEnabled": None,
    "entryFilters": None,
    "inactiveTopicPolicies": None,
    "maxConsumerPerTopic": None,
    "maxConsumersPerSubscription": None,
    "maxMessageSize": None,
    "maxProducerPerTopic": None,
    "maxSubscriptionsPerTopic": None,
    "maxUnackedMessagesOnConsumer": None,
    "maxUnackedMessagesOnSubscription": None,
    "messageTTLInSeconds": None,
    "permissions": _PERMISSIONS,
    "persistence": None,
    "publishRate": None,
    "replicatorDispatchRate": None,
    "replicationClusters": None,
    "replicated": None,
    "retentionPolicies": None,
    "schemaCompatibilityStrategy": None,
    "schemaValidationEnforced": None,
    "shadowTopics": None,
    "subscribeRate": None,
    "subscriptionDispatchRate": None,
    "subscriptionPolicies": None,
    "subscriptionTypesEnabled": None,
}
"""Fields of ``TopicPolicies``, and other fields that can be set for topics and subscriptions; None for a
field that is honoured."""

MESSAGE: Mapping[str, NotYet | None] = {
    **dict.fromkeys(
        (
            "chunk_id",
            "compression",
            "deliver_at_time",
            "encryption_algo",
            "encryption_keys",
            "encryption_param",
            "event_time",
            "highest_sequence_id",
            "marker_type",
            "null_partition_key",
            "null_value",
            "num_chunks_from_msg",
            "num_messages_in_batch",
            "ordering_key",
            "partition_key",
            "partition_key_b64_encoded",
            "producer_name",
            "properties",
            "publish_time",
            "replicated_from",
            "schema_version",
            "sequence_id",
            "total_chunk_msg_size",
            "txnid_least_bits",
            "txnid_most_bits",
            "uncompressed_size",
            "uuid",
        )
    ),
    "replicate_to": None,
}
"""Fields of ``MessageMetadata``; None for a field that is honoured, or meant for consumers, which get it
unchanged. Only replicators of other brokers may send entries with ``marker_type``.
"""

PRODUCER: Mapping[str, NotYet | None] = dict.fromkeys(
    (
        "encrypted",
        "epoch",
        "initial_subscription_name",
        "metadata",
        "producer_access_mode",
        "producer_id",
        "producer_name",
        "request_id",
        "schema",
        "topic",
        "topic_epoch",
        "txn_enabled",
        "user_provided_producer_name",
    )
)
"""Fields of the command PRODUCER; None for a field that is honoured. If transactions are disabled, a command
with ``txn_enabled`` is refused."""

CONSUMER: Mapping[str, NotYet | None] = {
    **dict.fromkeys(
        (
            "consumer_epoch",
            "consumer_id",
            "consumer_name",
            "durable",
            "force_topic_creation",
            "initialPosition",
            "keySharedMeta",
            "metadata",
            "priority_level",
            "read_compacted",
            "request_id",
            "schema",
            "start_message_id",
            "start_message_rollback_duration_sec",
            "subType",
            "subscription",
            "subscription_properties",
            "topic",
        )
    ),
    "replicate_subscription_state": None,
}
"""Fields of the command SUBSCRIBE; None for a field that is honoured."""


def warnings(
    table: Mapping[str, NotYet | None],
    fields: Iterable[str],
    *,
    authorization: bool = False,
    filters: bool = False,
) -> list[str]:
    """Returns a sentence for each field in ``fields`` that has no effect.

    :param authorization: whether the broker authorizes clients
    :param filters: whether the entry filters of namespaces and topics apply
    """
    given = {**table} if filters else {**table, "entryFilters": _FILTERS}
    found = dict.fromkeys(entry for field in fields if (entry := given.get(field)) is not None)
    if authorization:
        found = {entry: None for entry in found if entry not in BY_AUTHORIZATION}
    return [
        f"{entry.what} has no effect{'' if entry in BY_SETTINGS else ' yet'}: {entry.instead}"
        for entry in found
    ]
