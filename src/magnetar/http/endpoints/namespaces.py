"""Endpoints for namespaces, and for operations on all topics of a namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.admin.clusters import NamespaceClusterAdmin
from magnetar.broker.admin.namespaces import NamespaceAdmin
from magnetar.errors import InvalidRequest, InvalidTopicName, TenantNotFound
from magnetar.http.calls import as_json, calls, done
from magnetar.http.endpoints.namespace_policies import (
    NAMESPACE_POLICIES,
    NOT_THERE,
    QUOTA_TYPE,
    reads,
    writes,
)
from magnetar.http.engine.message import Request, Response, error_response, json_response, nothing
from magnetar.http.routing import Application, Endpoint, Handler, Parameter
from magnetar.http.shapes.fields import (
    ACTIONS,
    Shape,
    always,
    body,
    choice,
    choices,
    flag,
    query,
    shown,
    string_list,
    text,
    text_changes,
    truth,
)
from magnetar.http.shapes.names import (
    NAMESPACE,
    TENANT,
    namespace_of,
    new_namespace_of,
    optional_variable,
    tenant_of,
    variable,
)
from magnetar.http.shapes.namespace_policies import new_namespace
from magnetar.http.shapes.policies import quota, quota_type
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authorization import NamespaceOperation as N
from magnetar.security.authorization import Operation, Target, TenantOperation, TopicOperation
from magnetar.security.authorization import PolicyName as P

_BUNDLE = variable("bundle")
_ANY_BUNDLE = optional_variable("bundle")
_SUBSCRIPTION = variable("subscription")
_ROLE = variable("role")
_KEY = variable("key")
_ROLES = string_list("roles")
_check_actions = choices(*ACTIONS)
_ACTIONS = body(_check_actions, "actions")
_MOST_PERMISSIONS = 1000
"""Maximum number of topics in one request; it is limited because each topic is authorized separately, and one
metadata node stores all permissions.
"""
_FORCE = Parameter("force", "truth", "false")
_AUTHORITATIVE = Parameter("authoritative", "truth", "false")
_NO_TOPIC = {404: "no such topic or namespace"}
_NEW = "/admin/v2/namespaces/{tenant}/{namespace}"
_LEGACY = "/admin/namespaces/{tenant}/{cluster}/{namespace}"


def _policy(field: str, unset: object, part: str = "") -> Handler:
    """Returns a handler that returns a policy, or one field of it.

    :param field: the field of ``Policies``
    :param unset: the answer if the policy is not set
    :param part: the field within the policy; empty: the whole policy
    """

    def answer(policies: Mapping[str, Any]) -> Response:
        found = policies.get(field)
        if part:
            found = (found or {}).get(part)
        return json_response(found or unset)

    return calls(NamespaceAdmin.policies, NAMESPACE, answer=answer)


def _sets(field: str, value: Shape, key: Shape = always(None)) -> Handler:  # noqa: B008
    """Returns a handler that sets or removes a policy.

    :param field: the field of ``Policies``
    :param value: the shape of the new value; None removes the policy
    :param key: the shape of the key whose value is set, if the policy is a map
    """
    return calls(
        NamespaceAdmin.set_policy, NAMESPACE, always(field), value, per_cluster=always(False), key=key
    )


def _changes(field: str, changes: Shape, part: str = "") -> Handler:
    """Returns a handler that changes entries of a policy that is a map. If ``part`` is given, the map is not
    the policy itself, but its field ``part``.
    """
    return calls(NamespaceAdmin.change_map, NAMESPACE, always(field), changes, always(part))


def _mode(request: Request) -> str:
    known = choice("PERSISTENT", "NON_PERSISTENT", "ALL")
    return str(known("mode", request.query.get("mode", "PERSISTENT")))


def _boundaries(request: Request) -> list[int]:
    """Returns the hash boundaries of bundles that the body gives; empty if the body is empty.

    :raises InvalidRequest: the body is not an array of whole numbers
    """
    positions = request.json() if request.has_value else []
    if not isinstance(positions, list) or not all(type(at) is int for at in positions):
        raise InvalidRequest(f"splitBoundaries must be an array of whole numbers, not {positions!r}")
    return positions


def _topics_asked_for(request: Request) -> list[str]:
    return [name for name in request.query.get("topics", "").split(",") if name]


async def _field(application: Application, request: Request, field: str) -> Any:
    return (await application.admin.namespaces.policies(namespace_of(request.variables))).get(field)


async def _change(
    application: Application, request: Request, field: str, changes: dict[str, Any], path: str = ""
) -> None:
    namespace = namespace_of(request.variables)
    await application.admin.namespaces.change_map(namespace, field, changes, path)


def _value(value: Any) -> Response:
    if value is None:
        return Response(200)
    return Response(200, str(value).encode(), "application/json")


async def _change_permissions(application: Application, request: Request, operation: Operation) -> Response:
    changes = _permission_changes(request.json(), grants=operation is TopicOperation.GRANT_PERMISSION)
    refused = await _permission_refusal(application, request, operation, [topic for topic, _, _ in changes])
    if refused is not None:
        return error_response(HTTPStatus.UNAUTHORIZED, refused)
    await application.admin.topics.set_all_permissions(changes)
    return nothing()


def _permission_changes(given: object, *, grants: bool) -> list[tuple[TopicName, str, Sequence[str] | None]]:
    """Parses changes of permissions; returns topic, role and actions of each (None: all actions).

    :param grants: whether the changes grant permissions; otherwise, they revoke permissions
    :raises InvalidRequest: the body is not a list of permissions
    """
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_PERMISSIONS:
        raise InvalidRequest(
            f"The body must be a list of 1 to {_MOST_PERMISSIONS} objects with topic and role"
        )
    return [_permission_change(f"options[{index}]", item, grants=grants) for index, item in enumerate(given)]


def _permission_change(name: str, given: Any, *, grants: bool) -> tuple[TopicName, str, Sequence[str] | None]:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{name} must be an object, not {shown(given)}")
    role = text(f"{name}.role", given.get("role"))
    actions = _check_actions(f"{name}.actions", given.get("actions")) if grants else None
    try:
        return TopicName.parse(text(f"{name}.topic", given.get("topic"))), role, actions
    except InvalidName as error:
        raise InvalidTopicName(str(error)) from error


async def _permission_refusal(
    application: Application, request: Request, operation: Operation, topics: Sequence[TopicName]
) -> str | None:
    """Returns why the client has no permission for one of the topics; None: no permission is missing."""
    authorizer = application.access.authorizer
    if not authorizer.asks:
        return None
    for topic in topics:
        reason = await authorizer.refusal(request.principal, operation, Target.of_topic(topic))
        if reason is not None:
            return reason
    return None


async def _list_namespaces(application: Application, request: Request) -> Response:
    try:
        return json_response(list(await application.admin.namespaces.of_tenant(tenant_of(request.variables))))
    except TenantNotFound as error:
        raise TenantNotFound("Tenant not found") from error


async def _create(application: Application, request: Request) -> Response:
    namespace = new_namespace_of(request.variables)
    given = new_namespace(request)
    group = given.get("resource_group_name")
    if group is not None:
        await application.admin.resource_groups.check(group)
    await application.admin.namespaces.create(namespace, given)
    return nothing()


async def _replication(application: Application, request: Request) -> Response:
    found = json_response(await _field(application, request, "replication_clusters") or [])
    # The command line asks for confirmation before it removes this cluster from the list.
    return replace(found, headers=[*found.headers, ("Magnetar-Cluster", application.cluster)])


async def _clear_properties(application: Application, request: Request) -> Response:
    known = await _field(application, request, "properties") or {}
    await _change(application, request, "properties", dict.fromkeys(known))
    return nothing()


async def _get_property(application: Application, request: Request) -> Response:
    known = await _field(application, request, "properties") or {}
    return _value(known.get(request.variables["key"]))


async def _remove_property(application: Application, request: Request) -> Response:
    known = await _field(application, request, "properties") or {}
    key = request.variables["key"]
    await _change(application, request, "properties", {key: None})
    return _value(known.get(key))


async def _revoke_subscription(application: Application, request: Request) -> Response:
    grants = (await _field(application, request, "auth_policies") or {}).get("subscription_auth_roles") or {}
    subscription, role = request.variables["subscription"], request.variables["role"]
    left = [other for other in grants.get(subscription, ()) if other != role]
    change = {subscription: left or None}
    await _change(application, request, "auth_policies", change, "subscription_auth_roles")
    return nothing()


async def _grant_all(application: Application, request: Request) -> Response:
    return await _change_permissions(application, request, TopicOperation.GRANT_PERMISSION)


async def _revoke_all(application: Application, request: Request) -> Response:
    return await _change_permissions(application, request, TopicOperation.REVOKE_PERMISSION)


def _placed(row: Endpoint) -> Endpoint:
    return replace(row, path=_NEW + row.path, aliases=(_LEGACY + row.path, *row.aliases))


_CLEAR_BACKLOG = calls(
    NamespaceAdmin.clear_backlog,
    NAMESPACE,
    _ANY_BUNDLE,
    optional_variable("subscription"),
    authoritative=flag("authoritative"),
)
_UNSUBSCRIBE = calls(
    NamespaceAdmin.unsubscribe,
    NAMESPACE,
    _ANY_BUNDLE,
    _SUBSCRIPTION,
    authoritative=flag("authoritative"),
)
_OTHERS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "",
        calls(NamespaceAdmin.policies, NAMESPACE, answer=as_json),
        "policies of a namespace",
        reads(P.ALL),
    ),
    Endpoint(
        "PUT",
        "",
        _create,
        "create a namespace",
        N.CREATE_NAMESPACE,
        (f"{_LEGACY}/policy",),
        body="Policies",
        refusals={409: "the namespace already exists", **NOT_THERE},
    ),
    Endpoint(
        "DELETE",
        "",
        calls(NamespaceAdmin.delete, NAMESPACE, force=flag("force")),
        "delete a namespace",
        N.DELETE_NAMESPACE,
        parameters=(_FORCE,),
        refusals={405: "forced deletion is disabled", 409: "the namespace has topics"},
    ),
    Endpoint(
        "GET",
        "/bundles",
        calls(BundleAdmin.of, NAMESPACE, answer=as_json),
        "bundles of a namespace",
        N.GET_BUNDLE,
    ),
    Endpoint(
        "GET",
        "/backlogQuotaMap",
        _policy("backlog_quota_map", {}),
        "backlog quotas of a namespace",
        reads(P.BACKLOG),
    ),
    Endpoint(
        "POST",
        "/backlogQuota",
        _sets("backlog_quota_map", quota, key=quota_type),
        "set a backlog quota",
        writes(P.BACKLOG),
        sets="backlog_quota_map",
        parameters=(QUOTA_TYPE,),
        body="BacklogQuota",
    ),
    Endpoint(
        "DELETE",
        "/backlogQuota",
        _sets("backlog_quota_map", always(None), key=quota_type),
        "remove a backlog quota",
        writes(P.BACKLOG),
        parameters=(QUOTA_TYPE,),
    ),
    Endpoint(
        "DELETE",
        "/removeOffloadPolicies",
        _sets("offload_policies", always(None)),
        "remove offload policies",
        writes(P.OFFLOAD),
    ),
    Endpoint("GET", "/replication", _replication, "clusters of a namespace", reads(P.REPLICATION)),
    Endpoint(
        "POST",
        "/replication",
        calls(NamespaceClusterAdmin.set_replicated, NAMESPACE, string_list("clusters"), answer=done),
        "set the clusters of a namespace",
        writes(P.REPLICATION),
        sets="replication_clusters",
        body="array<string>",
        success=200,
    ),
    Endpoint(
        "GET",
        "/allowedClusters",
        _policy("allowed_clusters", []),
        "clusters that a namespace may use",
        reads(P.ALLOWED_CLUSTERS),
    ),
    Endpoint(
        "POST",
        "/allowedClusters",
        calls(NamespaceClusterAdmin.set_allowed, NAMESPACE, string_list("clusters"), answer=done),
        "set the clusters that a namespace may use",
        writes(P.ALLOWED_CLUSTERS),
        sets="allowed_clusters",
        body="array<string>",
        success=200,
    ),
    Endpoint(
        "POST",
        "/migration",
        calls(NamespaceAdmin.set_migrated, NAMESPACE, body(truth, "migrated")),
        "set whether the namespace is migrated to another cluster",
        N.UPDATE_MIGRATION,
        body="bool",
    ),
    Endpoint("GET", "/properties", _policy("properties", {}), "properties of a namespace", N.GET_METADATA),
    Endpoint(
        "PUT",
        "/properties",
        _changes("properties", lambda request: text_changes("properties", request.json())),
        "add properties",
        N.UPDATE_METADATA,
        body="map<string,string>",
        sets="properties",
    ),
    Endpoint("DELETE", "/properties", _clear_properties, "remove all properties", N.DELETE_METADATA),
    Endpoint("GET", "/property/{key}", _get_property, "a property", N.GET_METADATA),
    Endpoint(
        "PUT",
        "/property/{key}/{value}",
        _changes("properties", lambda request: {_KEY(request): request.variables["value"]}),
        "set a property",
        N.UPDATE_METADATA,
        sets="properties",
    ),
    Endpoint(
        "DELETE",
        "/property/{key}",
        _remove_property,
        "remove a property and return its value",
        N.DELETE_METADATA,
        success=200,
    ),
    Endpoint(
        "GET",
        "/permissions",
        _policy("auth_policies", {}, "namespace_auth"),
        "permissions of a namespace",
        N.GET_PERMISSION,
    ),
    Endpoint(
        "POST",
        "/permissions/{role}",
        _changes("auth_policies", lambda request: {_ROLE(request): _ACTIONS(request)}, "namespace_auth"),
        "grant permissions to a role",
        N.GRANT_PERMISSION,
        body="array<AuthAction>",
        sets="auth_policies",
    ),
    Endpoint(
        "DELETE",
        "/permissions/{role}",
        _changes("auth_policies", lambda request: {_ROLE(request): None}, "namespace_auth"),
        "revoke the permissions of a role",
        N.REVOKE_PERMISSION,
    ),
    Endpoint(
        "GET",
        "/permissions/subscription",
        _policy("auth_policies", {}, "subscription_auth_roles"),
        "permissions of subscriptions",
        N.GET_PERMISSION,
    ),
    Endpoint(
        "POST",
        "/permissions/subscription/{subscription}",
        _changes(
            "auth_policies",
            lambda request: {_SUBSCRIPTION(request): _ROLES(request)},
            "subscription_auth_roles",
        ),
        "grant a subscription to roles",
        N.GRANT_PERMISSION,
        body="array<string>",
        sets="auth_policies",
    ),
    Endpoint(
        "DELETE",
        "/permissions/{subscription}/{role}",
        _revoke_subscription,
        "revoke a subscription from a role",
        N.REVOKE_PERMISSION,
    ),
    Endpoint(
        "PUT",
        "/unload",
        calls(BundleAdmin.unload_all, NAMESPACE),
        "unload all topics; clients reconnect",
        N.UNLOAD,
    ),
    Endpoint(
        "PUT",
        "/{bundle}/unload",
        calls(BundleAdmin.unload, NAMESPACE, _BUNDLE, query("destinationBroker")),
        "unload a bundle",
        N.UNLOAD,
        parameters=(Parameter("destinationBroker", "text"),),
    ),
    Endpoint(
        "PUT",
        "/{bundle}/split",
        calls(
            BundleAdmin.split,
            NAMESPACE,
            _BUNDLE,
            query("splitAlgorithmName"),
            _boundaries,
            unload=flag("unload"),
            authoritative=flag("authoritative"),
        ),
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
        calls(BundleAdmin.positions, NAMESPACE, _BUNDLE, _topics_asked_for, answer=as_json),
        "positions of topics among the hashes of a bundle",
        reads(P.PERSISTENCE),
        parameters=(Parameter("topics", "text"),),
    ),
    Endpoint(
        "DELETE",
        "/{bundle}",
        calls(BundleAdmin.delete, NAMESPACE, _BUNDLE, force=flag("force")),
        "delete an empty bundle; force: also one with topics, which stay and are served again on "
        "the next lookup",
        N.DELETE_BUNDLE,
        parameters=(_FORCE,),
        refusals={409: "the bundle has topics"},
    ),
    Endpoint(
        "POST",
        "/clearBacklog",
        _CLEAR_BACKLOG,
        "clear the backlog of a namespace",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/clearBacklog/{subscription}",
        _CLEAR_BACKLOG,
        "clear the backlog of a subscription",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/{bundle}/clearBacklog",
        _CLEAR_BACKLOG,
        "clear the backlog of a bundle",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/{bundle}/clearBacklog/{subscription}",
        _CLEAR_BACKLOG,
        "clear the backlog of a subscription in a bundle",
        N.CLEAR_BACKLOG,
    ),
    Endpoint(
        "POST",
        "/unsubscribe/{subscription}",
        _UNSUBSCRIBE,
        "delete a subscription from all topics",
        N.UNSUBSCRIBE,
    ),
    Endpoint(
        "POST",
        "/{bundle}/unsubscribe/{subscription}",
        _UNSUBSCRIBE,
        "delete a subscription from the topics of a bundle",
        N.UNSUBSCRIBE,
    ),
)
"""Endpoints below a namespace for policies whose endpoints differ from the common form."""
NAMESPACES: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/admin/v2/namespaces/{tenant}",
        _list_namespaces,
        "list namespaces of a tenant",
        TenantOperation.LIST_NAMESPACES,
        ("/admin/namespaces/{tenant}",),
    ),
    Endpoint(
        "GET",
        "/admin/namespaces/{tenant}/{cluster}",
        calls(NamespaceAdmin.of_tenant_and_cluster, TENANT, variable("cluster"), answer=as_json),
        "list legacy namespaces of a tenant",
        TenantOperation.LIST_NAMESPACES,
    ),
    Endpoint(
        "GET",
        _NEW + "/topics",
        calls(
            NamespaceAdmin.topics, NAMESPACE, mode=_mode, system=flag("includeSystemTopic"), answer=as_json
        ),
        "list topics",
        N.GET_TOPICS,
        (_LEGACY + "/destinations",),
        (Parameter("mode", "text", "PERSISTENT"), Parameter("includeSystemTopic", "truth", "false")),
    ),
    Endpoint(
        "POST",
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        _grant_all,
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
        _revoke_all,
        "revoke permissions on several topics",
        TopicOperation.REVOKE_PERMISSION,
        body="array<RevokeTopicPermissionOptions>",
        refusals=_NO_TOPIC,
        lets_in=True,
    ),
    *map(_placed, _OTHERS),
    *map(_placed, NAMESPACE_POLICIES),
)
