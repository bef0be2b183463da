"""The policies of namespaces: for each, the path, the field and the shape of its value; and the policies of a
new namespace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.http.engine.message import Request
from magnetar.http.shapes import policies as shapes
from magnetar.http.shapes.fields import (
    ACTIONS,
    Check,
    Field,
    Shape,
    always,
    an_object,
    at_least,
    body,
    by_name,
    cap,
    choice,
    choices,
    fields,
    text,
    texts,
    texts_given,
    truth,
    whole,
)
from magnetar.http.shapes.names import resource_group_of
from magnetar.http.shapes.policies import DISPATCH_RATE, QUOTA_TYPES, quota
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of namespaces, which has three endpoints: get, set and remove."""

    path: str
    field: str
    """The field of ``Policies`` in which the policy is stored."""
    shape: Shape
    method: str = "POST"
    per_cluster: bool = False
    """Whether the field is a map with a value for each cluster."""
    unset: object = None
    """The answer of the get endpoint if the policy is not set; None: an empty body."""
    unset_status: int = 200
    removable: bool = True
    local: bool = False
    """Whether the field is in ``LocalPolicies``, which are not shared with other clusters."""
    named: str = ""
    """The path variable with the value to set; empty: the value is in the body."""


def _object(path: str, field: str, check: Any, *, per_cluster: bool = False) -> Policy:
    return Policy(path, field, shapes.optional(check, path), per_cluster=per_cluster)


POLICIES: Sequence[Policy] = (
    _object("autoSubscriptionCreation", "autoSubscriptionCreationOverride", shapes.AUTO_SUBSCRIPTIONS),
    Policy("autoTopicCreation", "autoTopicCreationOverride", shapes.auto_topics),
    Policy(
        "compactionThreshold",
        "compaction_threshold",
        at_least(0, body(whole(64), "compactionThreshold"), "compactionThreshold must be 0 or more"),
        "PUT",
    ),
    Policy("deduplication", "deduplicationEnabled", body(truth, "deduplication")),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        at_least(
            0,
            shapes.optional(whole(), "deduplicationSnapshotInterval"),
            "interval must be greater than or equal to 0",
        ),
        removable=False,
    ),
    _object("delayedDelivery", "delayed_delivery_policies", shapes.DELAYED_DELIVERY),
    _object("dispatchRate", "topicDispatchRate", shapes.DISPATCH_RATE, per_cluster=True),
    _object("subscriptionDispatchRate", "subscriptionDispatchRate", shapes.DISPATCH_RATE, per_cluster=True),
    _object("replicatorDispatchRate", "replicatorDispatchRate", shapes.DISPATCH_RATE, per_cluster=True),
    _object("subscribeRate", "clusterSubscribeRate", shapes.SUBSCRIBE_RATE, per_cluster=True),
    _object("publishRate", "publishMaxMessageRate", shapes.PUBLISH_RATE, per_cluster=True),
    _object("inactiveTopicPolicies", "inactive_topic_policies", shapes.INACTIVE_TOPICS),
    Policy(
        "isAllowAutoUpdateSchema",
        "is_allow_auto_update_schema",
        body(truth, "isAllowAutoUpdateSchema"),
        removable=False,
    ),
    Policy(
        "maxConsumersPerSubscription", "max_consumers_per_subscription", cap("maxConsumersPerSubscription")
    ),
    Policy("maxConsumersPerTopic", "max_consumers_per_topic", cap("maxConsumersPerTopic")),
    Policy("maxProducersPerTopic", "max_producers_per_topic", cap("maxProducersPerTopic")),
    Policy("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", cap("maxSubscriptionsPerTopic")),
    Policy("maxTopicsPerNamespace", "max_topics_per_namespace", cap("maxTopicsPerNamespace"), unset=0),
    Policy(
        "maxUnackedMessagesPerConsumer",
        "max_unacked_messages_per_consumer",
        cap("maxUnackedMessagesPerConsumer"),
    ),
    Policy(
        "maxUnackedMessagesPerSubscription",
        "max_unacked_messages_per_subscription",
        cap("maxUnackedMessagesPerSubscription"),
    ),
    Policy(
        "messageTTL",
        "message_ttl_in_seconds",
        at_least(0, body(whole(), "messageTTL"), "Invalid value for message TTL, message TTL must >= 0"),
    ),
    Policy("persistence", "persistence", shapes.persistence),
    _object("retention", "retention_policies", shapes.RETENTION),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        body(choice(*shapes.STRATEGIES), "schemaCompatibilityStrategy", required=None),
        "PUT",
        unset="UNDEFINED",
        removable=False,
    ),
    Policy(
        "schemaAutoUpdateCompatibilityStrategy",
        "schema_auto_update_compatibility_strategy",
        body(choice(*shapes.AUTO_UPDATE_STRATEGIES), "schemaAutoUpdateCompatibilityStrategy"),
        "PUT",
        unset_status=204,
        removable=False,
    ),
    Policy(
        "schemaValidationEnforced",
        "schema_validation_enforced",
        body(truth, "schemaValidationEnforced"),
        removable=False,
    ),
    Policy(
        "subscriptionExpirationTime",
        "subscription_expiration_time_minutes",
        at_least(
            0, body(whole(), "subscriptionExpirationTime"), "Invalid value for subscription expiration time"
        ),
    ),
    Policy("subscriptionTypesEnabled", "subscription_types_enabled", shapes.SUBSCRIPTION_TYPE_SET, unset=[]),
    Policy(
        "encryptionRequired",
        "encryption_required",
        body(truth, "encryptionRequired"),
        unset=False,
        removable=False,
    ),
    Policy(
        "subscriptionAuthMode",
        "subscription_auth_mode",
        body(choice("None", "Prefix"), "subscriptionAuthMode"),
        unset="None",
        removable=False,
    ),
    Policy(
        "offloadThreshold",
        "offload_threshold",
        body(whole(64), "offloadThreshold"),
        "PUT",
        unset=-1,
        removable=False,
    ),
    Policy(
        "offloadThresholdInSeconds",
        "offload_threshold_in_seconds",
        body(whole(64), "offloadThresholdInSeconds"),
        "PUT",
        unset=-1,
        removable=False,
    ),
    Policy("offloadDeletionLagMs", "offload_deletion_lag_ms", body(whole(64), "offloadDeletionLagMs"), "PUT"),
    Policy("offloadPolicies", "offload_policies", body(shapes.OFFLOAD, "offloadPolicies"), removable=False),
    Policy(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistentEnabled",
        always(True),
        unset=False,
    ),
    Policy("entryFilters", "entryFilters", shapes.entry_filters),
    Policy(
        "resourcegroup",
        "resource_group_name",
        lambda request: resource_group_of(request.variables),
        named="resourcegroup",
    ),
    Policy(
        "antiAffinity",
        "namespaceAntiAffinityGroup",
        shapes.anti_affinity,
        unset_status=204,
        local=True,
    ),
    Policy(
        "persistence/bookieAffinity",
        "bookieAffinityGroup",
        shapes.optional(shapes.BOOKIE_GROUPS, "bookieAffinityGroup"),
        unset_status=204,
        local=True,
    ),
)


def new_namespace(request: Request) -> Mapping[str, Any]:
    """Returns the policies that a request to create a namespace gives in its body; the body can be empty.
    Ignores fields that Pulsar does not have, and -1, which older clients send for unset numbers.

    :raises InvalidRequest: a policy has the wrong type
    :raises PreconditionFailed: a value is out of range
    :raises NotSupported: a policy belongs to a feature that is not supported
    """
    given = body(an_object, "policies", required=None)(request) or {}
    found: dict[str, object] = {}
    for name, check in _CHECKS.items():
        value = given.get(name)
        if value is not None and not (type(value) is int and value == -1):
            found[name] = check(name, value)
    return {name: value for name, value in found.items() if value is not None}


def _alone(shape: Shape) -> Check:
    """Returns a check that treats a value like the body of a request that sets only this policy."""
    return lambda _name, value: shape(Request("PUT", "/", body=json.dumps(value).encode()))


_ROLES = by_name(choices(*ACTIONS))
_CHECKS: Mapping[str, Check] = {
    **{
        policy.field: by_name(_alone(policy.shape)) if policy.per_cluster else _alone(policy.shape)
        for policy in POLICIES
        if not policy.local
    },
    "allowed_clusters": texts,
    "auth_policies": fields(
        {
            "namespace_auth": Field(_ROLES, {}),
            "destination_auth": Field(by_name(_ROLES), {}),
            "subscription_auth_roles": Field(by_name(texts), {}),
        }
    ),
    "backlog_quota_map": by_name(_alone(quota), choice(*QUOTA_TYPES)),
    "bundles": fields({"boundaries": Field(texts), "numBundles": Field(whole(), 0)}),
    "clusterDispatchRate": by_name(DISPATCH_RATE),
    "dispatcherPauseOnAckStatePersistentEnabled": truth,
    "migrated": truth,
    "properties": texts_given,
    "replication_clusters": texts,
    "resource_group_name": text,
}
"""The check of each field of ``Policies``."""
