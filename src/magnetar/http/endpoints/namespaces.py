"""Endpoints of namespaces: what they are, and each of their policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from magnetar.http.endpoints.policy_kinds import KINDS, NOT_THERE, QUOTA_TYPE, reads, writes
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.handlers import namespaces, permissions
from magnetar.http.routing import Application, Endpoint, Handler, Parameter
from magnetar.http.shapes import policies as shapes
from magnetar.http.shapes.fields import Shape, always, at_least, body, cap, choice, truth, whole
from magnetar.http.shapes.names import namespace_of, resource_group_of
from magnetar.security.operations import NamespaceOperation as N
from magnetar.security.operations import PolicyName as P
from magnetar.security.operations import TenantOperation, TopicOperation

_FORCE = Parameter("force", "truth", "false")
_AUTHORITATIVE = Parameter("authoritative", "truth", "false")

_NO_TOPIC = {404: "no such topic or namespace"}

_NEW = "/admin/v2/namespaces/{tenant}/{namespace}"
_LEGACY = "/admin/namespaces/{tenant}/{cluster}/{namespace}"


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


def _placed(row: Endpoint) -> Endpoint:
    return replace(row, path=_NEW + row.path, aliases=(_LEGACY + row.path, *row.aliases))


def _policy_endpoints() -> Sequence[Endpoint]:
    rows: list[Endpoint] = []
    for policy in POLICIES:
        rest, name = f"/{policy.path}", policy.path
        kind = KINDS[policy.path]
        reading, writing = reads(kind.policy), writes(kind.policy)
        rows.append(
            Endpoint(
                "GET",
                rest,
                _getter(policy),
                f"{name} of a namespace",
                reading,
                refusals={204: "nothing is set"} if policy.unset_status == 204 else {},
            )
        )
        rows.append(
            Endpoint(
                policy.method,
                f"{rest}/{{{policy.named}}}" if policy.named else rest,
                _setter(policy),
                f"set {name} of a namespace",
                writing,
                body=kind.body,
                refusals=NOT_THERE,
                sets=policy.field,
            )
        )
        if policy.removable:
            rows.append(Endpoint("DELETE", rest, _remover(policy), f"remove {name} of a namespace", writing))
    return rows


_OTHERS: Sequence[Endpoint] = (
    Endpoint("GET", "", namespaces.get_namespace, "policies of a namespace", reads(P.ALL)),
    Endpoint(
        "PUT",
        "",
        namespaces.create,
        "create a namespace",
        N.CREATE_NAMESPACE,
        (f"{_LEGACY}/policy",),
        body="Policies",
        refusals={409: "it is there already"},
    ),
    Endpoint(
        "DELETE",
        "",
        namespaces.delete,
        "delete a namespace",
        N.DELETE_NAMESPACE,
        parameters=(_FORCE,),
        refusals={405: "forced deletion is switched off", 409: "it has topics"},
    ),
    Endpoint("GET", "/bundles", namespaces.bundles, "how a namespace is divided", N.GET_BUNDLE),
    Endpoint("GET", "/backlogQuotaMap", namespaces.quotas, "backlog quotas of a namespace", reads(P.BACKLOG)),
    Endpoint(
        "POST",
        "/backlogQuota",
        namespaces.set_quota,
        "set a backlog quota",
        writes(P.BACKLOG),
        sets="backlog_quota_map",
        parameters=(QUOTA_TYPE,),
        body="BacklogQuota",
    ),
    Endpoint(
        "DELETE",
        "/backlogQuota",
        namespaces.remove_quota,
        "remove a backlog quota",
        writes(P.BACKLOG),
        parameters=(QUOTA_TYPE,),
    ),
    Endpoint(
        "DELETE",
        "/removeOffloadPolicies",
        namespaces.remove_offload,
        "remove offload policies",
        writes(P.OFFLOAD),
    ),
    Endpoint("GET", "/replication", namespaces.replication, "clusters of a namespace", reads(P.REPLICATION)),
    Endpoint(
        "POST",
        "/replication",
        namespaces.set_replication,
        "set the clusters of a namespace",
        writes(P.REPLICATION),
        sets="replication_clusters",
        body="array<string>",
        success=200,
    ),
    Endpoint(
        "GET",
        "/allowedClusters",
        namespaces.allowed_clusters,
        "clusters a namespace may use",
        reads(P.ALLOWED_CLUSTERS),
    ),
    Endpoint(
        "POST",
        "/allowedClusters",
        namespaces.set_allowed_clusters,
        "set the clusters it may use",
        writes(P.ALLOWED_CLUSTERS),
        sets="allowed_clusters",
        body="array<string>",
        success=200,
    ),
    Endpoint("GET", "/properties", namespaces.properties, "properties of a namespace", N.GET_METADATA),
    Endpoint(
        "PUT",
        "/properties",
        namespaces.set_properties,
        "add properties",
        N.UPDATE_METADATA,
        body="map<string,string>",
        sets="properties",
    ),
    Endpoint(
        "DELETE", "/properties", namespaces.clear_properties, "remove all properties", N.DELETE_METADATA
    ),
    Endpoint("GET", "/property/{key}", namespaces.get_property, "a property", N.GET_METADATA),
    Endpoint(
        "PUT",
        "/property/{key}/{value}",
        namespaces.set_property,
        "set a property",
        N.UPDATE_METADATA,
        sets="properties",
    ),
    Endpoint(
        "DELETE",
        "/property/{key}",
        namespaces.remove_property,
        "remove a property; answers its value",
        N.DELETE_METADATA,
        success=200,
    ),
    Endpoint("GET", "/permissions", namespaces.permissions, "who may do what", N.GET_PERMISSION),
    Endpoint(
        "POST",
        "/permissions/{role}",
        namespaces.grant,
        "allow a role something",
        N.GRANT_PERMISSION,
        body="array<AuthAction>",
        sets="auth_policies",
    ),
    Endpoint("DELETE", "/permissions/{role}", namespaces.revoke, "allow a role nothing", N.REVOKE_PERMISSION),
    Endpoint(
        "GET",
        "/permissions/subscription",
        namespaces.subscription_permissions,
        "who may consume",
        N.GET_PERMISSION,
    ),
    Endpoint(
        "POST",
        "/permissions/subscription/{subscription}",
        namespaces.grant_subscription,
        "allow roles a subscription",
        N.GRANT_PERMISSION,
        body="array<string>",
        sets="auth_policies",
    ),
    Endpoint(
        "DELETE",
        "/permissions/{subscription}/{role}",
        namespaces.revoke_subscription,
        "take a subscription from a role",
        N.REVOKE_PERMISSION,
    ),
    Endpoint("PUT", "/unload", namespaces.unload, "close all topics; clients come back", N.UNLOAD),
    Endpoint(
        "PUT",
        "/{bundle}/unload",
        namespaces.unload_bundle,
        "close the topics of a bundle, and give it up",
        N.UNLOAD,
        parameters=(Parameter("destinationBroker", "text"),),
    ),
    Endpoint(
        "PUT",
        "/{bundle}/split",
        namespaces.split,
        "divide a bundle",
        N.UNLOAD,
        parameters=(
            _AUTHORITATIVE,
            Parameter("unload", "truth", "false"),
            Parameter("splitAlgorithmName", "text"),
        ),
        body="array<long>",
    ),
    Endpoint(
        "GET",
        "/{bundle}/topicHashPositions",
        namespaces.hash_positions,
        "where the topics of a bundle lie",
        reads(P.PERSISTENCE),
        parameters=(Parameter("topics", "text"),),
    ),
    Endpoint(
        "DELETE",
        "/{bundle}",
        namespaces.delete_bundle,
        "give up a bundle without topics; force: its topics stay, and are served where it is asked for next",
        N.DELETE_BUNDLE,
        parameters=(_FORCE,),
        refusals={409: "it has topics"},
    ),
    Endpoint("POST", "/clearBacklog", namespaces.clear_backlog, "acknowledge everything", N.CLEAR_BACKLOG),
    Endpoint(
        "POST",
        "/clearBacklog/{subscription}",
        namespaces.clear_backlog,
        "of one subscription",
        N.CLEAR_BACKLOG,
    ),
    Endpoint("POST", "/{bundle}/clearBacklog", namespaces.clear_backlog, "of a bundle", N.CLEAR_BACKLOG),
    Endpoint(
        "POST",
        "/{bundle}/clearBacklog/{subscription}",
        namespaces.clear_backlog,
        "of both",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/unsubscribe/{subscription}",
        namespaces.unsubscribe,
        "delete a subscription everywhere",
        N.UNSUBSCRIBE,
    ),
    Endpoint(
        "POST",
        "/{bundle}/unsubscribe/{subscription}",
        namespaces.unsubscribe,
        "in a bundle",
        N.UNSUBSCRIBE,
    ),
)
"""Below a namespace; what is no policy of the kind of the others."""

NAMESPACES: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/admin/v2/namespaces/{tenant}",
        namespaces.list_namespaces,
        "list namespaces of a tenant",
        TenantOperation.LIST_NAMESPACES,
        ("/admin/namespaces/{tenant}",),
    ),
    Endpoint(
        "GET",
        "/admin/namespaces/{tenant}/{cluster}",
        namespaces.list_legacy,
        "list legacy namespaces of a tenant",
        TenantOperation.LIST_NAMESPACES,
    ),
    Endpoint(
        "GET",
        _NEW + "/topics",
        namespaces.topics,
        "list topics",
        N.GET_TOPICS,
        (_LEGACY + "/destinations",),
        (Parameter("mode", "text", "PERSISTENT"), Parameter("includeSystemTopic", "truth", "false")),
    ),
    Endpoint(
        "POST",
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        permissions.grant_all,
        "allow roles something of several topics",
        TopicOperation.GRANT_PERMISSION,
        body="array<GrantTopicPermissionOptions>",
        refusals=_NO_TOPIC,
        sets="permissions",
        lets_in=True,
    ),
    Endpoint(
        "POST",
        "/admin/v2/namespaces/revokePermissionsOnTopics",
        permissions.revoke_all,
        "allow roles nothing of several topics",
        TopicOperation.REVOKE_PERMISSION,
        body="array<RevokeTopicPermissionOptions>",
        refusals=_NO_TOPIC,
        lets_in=True,
    ),
    *map(_placed, _OTHERS),
    *map(_placed, _policy_endpoints()),
)
