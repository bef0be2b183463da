"""Endpoints of namespaces, of operations on all topics of one, and of resource groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magnetar.http.endpoints.namespace_policies import (
    NAMESPACE_POLICIES,
    NOT_THERE,
    QUOTA_TYPE,
    reads,
    writes,
)
from magnetar.http.handlers import namespaces, tenants
from magnetar.http.routing import Endpoint, Parameter
from magnetar.security.authorization import ClusterOperation as C
from magnetar.security.authorization import NamespaceOperation as N
from magnetar.security.authorization import PolicyName as P
from magnetar.security.authorization import TenantOperation, TopicOperation

_FORCE = Parameter("force", "truth", "false")
_AUTHORITATIVE = Parameter("authoritative", "truth", "false")
_NO_TOPIC = {404: "no such topic or namespace"}
_NEW = "/admin/v2/namespaces/{tenant}/{namespace}"
_LEGACY = "/admin/namespaces/{tenant}/{cluster}/{namespace}"
_GROUPS = "/admin/v2/resourcegroups"
_GROUP = _GROUPS + "/{resourcegroup}"
_MISSING = {404: "no such resource group"}


def _placed(row: Endpoint) -> Endpoint:
    return replace(row, path=_NEW + row.path, aliases=(_LEGACY + row.path, *row.aliases))


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
        refusals={409: "the namespace already exists", **NOT_THERE},
    ),
    Endpoint(
        "DELETE",
        "",
        namespaces.delete,
        "delete a namespace",
        N.DELETE_NAMESPACE,
        parameters=(_FORCE,),
        refusals={405: "forced deletion is disabled", 409: "the namespace has topics"},
    ),
    Endpoint("GET", "/bundles", namespaces.bundles, "bundles of a namespace", N.GET_BUNDLE),
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
        "clusters that a namespace may use",
        reads(P.ALLOWED_CLUSTERS),
    ),
    Endpoint(
        "POST",
        "/allowedClusters",
        namespaces.set_allowed_clusters,
        "set the clusters that a namespace may use",
        writes(P.ALLOWED_CLUSTERS),
        sets="allowed_clusters",
        body="array<string>",
        success=200,
    ),
    Endpoint(
        "POST",
        "/migration",
        namespaces.set_migrated,
        "set whether the namespace is migrated to another cluster",
        N.UPDATE_MIGRATION,
        body="bool",
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
        "remove a property and return its value",
        N.DELETE_METADATA,
        success=200,
    ),
    Endpoint("GET", "/permissions", namespaces.permissions, "permissions of a namespace", N.GET_PERMISSION),
    Endpoint(
        "POST",
        "/permissions/{role}",
        namespaces.grant,
        "grant permissions to a role",
        N.GRANT_PERMISSION,
        body="array<AuthAction>",
        sets="auth_policies",
    ),
    Endpoint(
        "DELETE",
        "/permissions/{role}",
        namespaces.revoke,
        "revoke the permissions of a role",
        N.REVOKE_PERMISSION,
    ),
    Endpoint(
        "GET",
        "/permissions/subscription",
        namespaces.subscription_permissions,
        "permissions of subscriptions",
        N.GET_PERMISSION,
    ),
    Endpoint(
        "POST",
        "/permissions/subscription/{subscription}",
        namespaces.grant_subscription,
        "grant a subscription to roles",
        N.GRANT_PERMISSION,
        body="array<string>",
        sets="auth_policies",
    ),
    Endpoint(
        "DELETE",
        "/permissions/{subscription}/{role}",
        namespaces.revoke_subscription,
        "revoke a subscription from a role",
        N.REVOKE_PERMISSION,
    ),
    Endpoint("PUT", "/unload", namespaces.unload, "unload all topics; clients reconnect", N.UNLOAD),
    Endpoint(
        "PUT",
        "/{bundle}/unload",
        namespaces.unload_bundle,
        "unload a bundle",
        N.UNLOAD,
        parameters=(Parameter("destinationBroker", "text"),),
    ),
    Endpoint(
        "PUT",
        "/{bundle}/split",
        namespaces.split,
        "split a bundle",
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
        "positions of topics among the hashes of a bundle",
        reads(P.PERSISTENCE),
        parameters=(Parameter("topics", "text"),),
    ),
    Endpoint(
        "DELETE",
        "/{bundle}",
        namespaces.delete_bundle,
        "delete an empty bundle; force: also one with topics, which stay and are served again on "
        "the next lookup",
        N.DELETE_BUNDLE,
        parameters=(_FORCE,),
        refusals={409: "the bundle has topics"},
    ),
    Endpoint(
        "POST", "/clearBacklog", namespaces.clear_backlog, "clear the backlog of a namespace", N.CLEAR_BACKLOG
    ),
    Endpoint(
        "POST",
        "/clearBacklog/{subscription}",
        namespaces.clear_backlog,
        "clear the backlog of a subscription",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/{bundle}/clearBacklog",
        namespaces.clear_backlog,
        "clear the backlog of a bundle",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/{bundle}/clearBacklog/{subscription}",
        namespaces.clear_backlog,
        "clear the backlog of a subscription in a bundle",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/unsubscribe/{subscription}",
        namespaces.unsubscribe,
        "delete a subscription from all topics",
        N.UNSUBSCRIBE,
    ),
    Endpoint(
        "POST",
        "/{bundle}/unsubscribe/{subscription}",
        namespaces.unsubscribe,
        "delete a subscription from the topics of a bundle",
        N.UNSUBSCRIBE,
    ),
)
"""Below a namespace: policies that differ from the common kind."""
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
        namespaces.grant_all,
        "grant permissions on several topics",
        TopicOperation.GRANT_PERMISSION,
        body="array<GrantTopicPermissionOptions>",
        refusals=_NO_TOPIC,
        sets="permissions",
        lets_in=True,
    ),
    Endpoint(
        "POST",
        "/admin/v2/namespaces/revokePermissionsOnTopics",
        namespaces.revoke_all,
        "revoke permissions on several topics",
        TopicOperation.REVOKE_PERMISSION,
        body="array<RevokeTopicPermissionOptions>",
        refusals=_NO_TOPIC,
        lets_in=True,
    ),
    *map(_placed, _OTHERS),
    *map(_placed, NAMESPACE_POLICIES),
)
RESOURCE_GROUPS: Sequence[Endpoint] = (
    Endpoint("GET", _GROUPS, tenants.list_groups, "list resource groups", C.LIST_RESOURCE_GROUPS),
    Endpoint(
        "GET",
        _GROUP,
        tenants.get_group,
        "rates of a resource group",
        C.GET_RESOURCE_GROUP,
        refusals=_MISSING,
    ),
    Endpoint(
        "PUT",
        _GROUP,
        tenants.put_group,
        "create or change a resource group",
        C.UPDATE_RESOURCE_GROUP,
        body="ResourceGroup",
    ),
    Endpoint(
        "DELETE",
        _GROUP,
        tenants.delete_group,
        "delete a resource group",
        C.DELETE_RESOURCE_GROUP,
        refusals=_MISSING,
    ),
)
