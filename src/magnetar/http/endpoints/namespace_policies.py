"""Endpoints of the policies of namespaces: where each is, what it holds, and what reads and writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from magnetar.http.endpoints.policy_kinds import KINDS, NOT_THERE, reads, writes
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Endpoint, Handler
from magnetar.http.shapes import policies as shapes
from magnetar.http.shapes.fields import Shape, always, at_least, body, cap, choice, truth, whole
from magnetar.http.shapes.names import namespace_of, resource_group_of


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy of a namespace: three endpoints."""

    path: str
    field: str
    """Of ``Policies``."""
    shape: Shape
    method: str = "POST"
    per_cluster: bool = False
    """The field is a map by cluster."""
    unset: Any = None
    """What is answered where nothing is set; None: an empty body."""
    unset_status: int = 200
    removable: bool = True
    local: bool = False
    """The field is one of ``LocalPolicies``."""
    named: str = ""
    """What it is set to is a piece of the path by this name, and not in the body."""


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
        shapes.only(-1, whole(64), "offloadThreshold", "offload"),
        "PUT",
        unset=-1,
        removable=False,
    ),
    Policy(
        "offloadThresholdInSeconds",
        "offload_threshold_in_seconds",
        shapes.only(-1, whole(64), "offloadThresholdInSeconds", "offload"),
        "PUT",
        unset=-1,
        removable=False,
    ),
    Policy("offloadDeletionLagMs", "offload_deletion_lag_ms", shapes.refused("offload"), "PUT"),
    Policy("offloadPolicies", "offload_policies", shapes.refused("offload"), removable=False),
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


def _getter(policy: Policy) -> Handler:
    async def get_policy(application: Application, request: Request) -> Response:
        namespace = namespace_of(request.variables)
        admin = application.admin.namespaces
        found = await (admin.local_policies(namespace) if policy.local else admin.policies(namespace))
        value = found.get(policy.field)
        if policy.per_cluster and value is not None:
            value = value.get(application.cluster)
        if value is None:
            value = policy.unset
        return json_response(value) if value is not None else Response(policy.unset_status)

    return get_policy


async def _set(application: Application, request: Request, policy: Policy, value: Any) -> Response:
    namespace = namespace_of(request.variables)
    admin = application.admin.namespaces
    if policy.local:
        await admin.set_local_policy(namespace, policy.field, value)
    else:
        if value is None and policy.unset is not None:
            value = policy.unset if policy.field in _ALWAYS_THERE else None
        await admin.set_policy(namespace, policy.field, value, per_cluster=policy.per_cluster, key=None)
    return nothing()


_ALWAYS_THERE = frozenset(("subscription_types_enabled", "schema_compatibility_strategy"))
"""Fields that every namespace's record has."""


def _setter(policy: Policy) -> Handler:
    async def set_policy(application: Application, request: Request) -> Response:
        value = policy.shape(request)
        if policy.field == "resource_group_name":
            await application.admin.resource_groups.check(value)
        return await _set(application, request, policy, value)

    return set_policy


def _remover(policy: Policy) -> Handler:
    async def remove_policy(application: Application, request: Request) -> Response:
        return await _set(application, request, policy, always(None)(request))

    return remove_policy


def _of_policy(policy: Policy) -> Iterator[Endpoint]:
    rest, name = f"/{policy.path}", policy.path
    kind = KINDS[policy.path]
    reading, writing = reads(kind.policy), writes(kind.policy)
    unset = {204: "nothing is set"} if policy.unset_status == 204 else {}
    yield Endpoint("GET", rest, _getter(policy), f"{name} of a namespace", reading, refusals=unset)
    yield Endpoint(
        policy.method,
        f"{rest}/{{{policy.named}}}" if policy.named else rest,
        _setter(policy),
        f"set {name} of a namespace",
        writing,
        body=kind.body,
        refusals=NOT_THERE,
        sets=policy.field,
    )
    if policy.removable:
        yield Endpoint("DELETE", rest, _remover(policy), f"remove {name} of a namespace", writing)


NAMESPACE_POLICIES: Sequence[Endpoint] = (*chain.from_iterable(map(_of_policy, POLICIES)),)
"""Their paths are what stands behind that of the namespace."""
