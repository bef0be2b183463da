"""Namespaces: lists, creation, deletion, and the policies that are maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from magnetar.errors import InvalidRequest, InvalidTopicName, TenantNotFound
from magnetar.http.engine.message import Request, Response, error_response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import (
    ACTIONS,
    body,
    choice,
    choices,
    shown,
    string_list,
    text,
    text_changes,
    truth,
)
from magnetar.http.shapes.names import namespace_of, new_namespace_of, tenant_of
from magnetar.http.shapes.namespace_policies import new_namespace
from magnetar.http.shapes.policies import quota, quota_type
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authorization import Operation, Target, TopicOperation

_MOST_PERMISSIONS = 1000
"""Topics of one request: each is authorized, and all are in one record."""
_actions = choices(*ACTIONS)


async def list_namespaces(application: Application, request: Request) -> Response:
    try:
        return json_response(list(await application.admin.namespaces.of_tenant(tenant_of(request.variables))))
    except TenantNotFound as error:
        raise TenantNotFound("Tenant not found") from error


async def list_legacy(application: Application, request: Request) -> Response:
    tenant, cluster = tenant_of(request.variables), request.variables["cluster"]
    return json_response(list(await application.admin.namespaces.of_tenant_and_cluster(tenant, cluster)))


async def get_namespace(application: Application, request: Request) -> Response:
    namespace = namespace_of(request.variables)
    return json_response(await application.admin.namespaces.policies(namespace))


async def create(application: Application, request: Request) -> Response:
    namespace = new_namespace_of(request.variables)
    given = new_namespace(request)
    group = given.get("resource_group_name")
    if group is not None:
        await application.admin.resource_groups.check(group)
    await application.admin.namespaces.create(namespace, given)
    return nothing()


async def delete(application: Application, request: Request) -> Response:
    namespace = namespace_of(request.variables)
    await application.admin.namespaces.delete(namespace, force=request.flag("force"))
    return nothing()


async def _field(application: Application, request: Request, field: str) -> Any:
    return (await application.admin.namespaces.policies(namespace_of(request.variables))).get(field)


async def bundles(application: Application, request: Request) -> Response:
    return json_response(await application.admin.bundles.of(namespace_of(request.variables)))


async def topics(application: Application, request: Request) -> Response:
    mode = choice("PERSISTENT", "NON_PERSISTENT", "ALL")("mode", request.query.get("mode", "PERSISTENT"))
    names = await application.admin.namespaces.topics(
        namespace_of(request.variables), mode=mode, system=request.flag("includeSystemTopic")
    )
    return json_response(list(names))


# Backlog quotas


async def quotas(application: Application, request: Request) -> Response:
    return json_response(await _field(application, request, "backlog_quota_map") or {})


async def set_quota(application: Application, request: Request) -> Response:
    await application.admin.namespaces.set_policy(
        namespace_of(request.variables),
        "backlog_quota_map",
        quota(request),
        per_cluster=False,
        key=quota_type(request),
    )
    return nothing()


async def remove_quota(application: Application, request: Request) -> Response:
    await application.admin.namespaces.set_policy(
        namespace_of(request.variables),
        "backlog_quota_map",
        None,
        per_cluster=False,
        key=quota_type(request),
    )
    return nothing()


async def remove_offload(application: Application, request: Request) -> Response:
    await application.admin.namespaces.set_policy(
        namespace_of(request.variables), "offload_policies", None, per_cluster=False, key=None
    )
    return nothing()


# Clusters


async def replication(application: Application, request: Request) -> Response:
    found = json_response(await _field(application, request, "replication_clusters") or [])
    # The command line asks for confirmation before it removes this cluster from the list.
    return replace(found, headers=[*found.headers, ("Magnetar-Cluster", application.cluster)])


async def set_replication(application: Application, request: Request) -> Response:
    clusters = string_list(request, "clusters")
    await application.admin.namespace_clusters.set_replicated(namespace_of(request.variables), clusters)
    return Response(200)


async def allowed_clusters(application: Application, request: Request) -> Response:
    return json_response(await _field(application, request, "allowed_clusters") or [])


async def set_allowed_clusters(application: Application, request: Request) -> Response:
    clusters = string_list(request, "clusters")
    await application.admin.namespace_clusters.set_allowed(namespace_of(request.variables), clusters)
    return Response(200)


# Properties


async def set_migrated(application: Application, request: Request) -> Response:
    migrated = body(truth, "migrated")(request)
    await application.admin.namespaces.set_migrated(namespace_of(request.variables), bool(migrated))
    return nothing()


async def properties(application: Application, request: Request) -> Response:
    return json_response(await _field(application, request, "properties") or {})


async def _change(
    application: Application, request: Request, field: str, changes: dict[str, Any], path: str = ""
) -> None:
    namespace = namespace_of(request.variables)
    await application.admin.namespaces.change_map(namespace, field, changes, path)


async def set_properties(application: Application, request: Request) -> Response:
    await _change(application, request, "properties", text_changes("properties", request.json()))
    return nothing()


async def clear_properties(application: Application, request: Request) -> Response:
    known = await _field(application, request, "properties") or {}
    await _change(application, request, "properties", dict.fromkeys(known))
    return nothing()


async def get_property(application: Application, request: Request) -> Response:
    known = await _field(application, request, "properties") or {}
    return _value(known.get(request.variables["key"]))


async def set_property(application: Application, request: Request) -> Response:
    change = {request.variables["key"]: request.variables["value"]}
    await _change(application, request, "properties", change)
    return nothing()


async def remove_property(application: Application, request: Request) -> Response:
    known = await _field(application, request, "properties") or {}
    key = request.variables["key"]
    await _change(application, request, "properties", {key: None})
    return _value(known.get(key))


def _value(value: Any) -> Response:
    if value is None:
        return Response(200)
    return Response(200, str(value).encode(), "application/json")


# Permissions


async def permissions(application: Application, request: Request) -> Response:
    grants = await _field(application, request, "auth_policies") or {}
    return json_response(grants.get("namespace_auth") or {})


async def grant(application: Application, request: Request) -> Response:
    actions = body(choices(*ACTIONS), "actions")(request)
    change = {request.variables["role"]: actions}
    await _change(application, request, "auth_policies", change, "namespace_auth")
    return nothing()


async def revoke(application: Application, request: Request) -> Response:
    change = {request.variables["role"]: None}
    await _change(application, request, "auth_policies", change, "namespace_auth")
    return nothing()


async def subscription_permissions(application: Application, request: Request) -> Response:
    grants = await _field(application, request, "auth_policies") or {}
    return json_response(grants.get("subscription_auth_roles") or {})


async def grant_subscription(application: Application, request: Request) -> Response:
    change = {request.variables["subscription"]: list(string_list(request, "roles"))}
    await _change(application, request, "auth_policies", change, "subscription_auth_roles")
    return nothing()


async def revoke_subscription(application: Application, request: Request) -> Response:
    grants = (await _field(application, request, "auth_policies") or {}).get("subscription_auth_roles") or {}
    subscription, role = request.variables["subscription"], request.variables["role"]
    left = [other for other in grants.get(subscription, ()) if other != role]
    change = {subscription: left or None}
    await _change(application, request, "auth_policies", change, "subscription_auth_roles")
    return nothing()


# All topics of a namespace


async def unload(application: Application, request: Request) -> Response:
    await application.admin.bundles.unload_all(namespace_of(request.variables))
    return nothing()


async def unload_bundle(application: Application, request: Request) -> Response:
    await application.admin.bundles.unload(
        namespace_of(request.variables),
        request.variables["bundle"],
        request.query.get("destinationBroker"),
    )
    return nothing()


async def delete_bundle(application: Application, request: Request) -> Response:
    await application.admin.bundles.delete(
        namespace_of(request.variables),
        request.variables["bundle"],
        force=request.flag("force"),
    )
    return nothing()


async def split(application: Application, request: Request) -> Response:
    positions = request.json() if request.has_value else []
    if not isinstance(positions, list) or not all(type(at) is int for at in positions):
        raise InvalidRequest("splitBoundaries must be an array of whole numbers")
    await application.admin.bundles.split(
        namespace_of(request.variables),
        request.variables["bundle"],
        request.query.get("splitAlgorithmName"),
        positions,
        unload=request.flag("unload"),
        authoritative=request.flag("authoritative"),
    )
    return nothing()


async def hash_positions(application: Application, request: Request) -> Response:
    topics = [name for name in request.query.get("topics", "").split(",") if name]
    found = await application.admin.bundles.positions(
        namespace_of(request.variables), request.variables["bundle"], topics
    )
    return json_response(found)


async def clear_backlog(application: Application, request: Request) -> Response:
    variables = request.variables
    await application.admin.namespaces.clear_backlog(
        namespace_of(variables),
        variables.get("bundle"),
        variables.get("subscription"),
        authoritative=request.flag("authoritative"),
    )
    return nothing()


async def unsubscribe(application: Application, request: Request) -> Response:
    variables = request.variables
    await application.admin.namespaces.unsubscribe(
        namespace_of(variables),
        variables.get("bundle"),
        variables["subscription"],
        authoritative=request.flag("authoritative"),
    )
    return nothing()


async def grant_all(application: Application, request: Request) -> Response:
    return await _change_permissions(application, request, TopicOperation.GRANT_PERMISSION)


async def revoke_all(application: Application, request: Request) -> Response:
    return await _change_permissions(application, request, TopicOperation.REVOKE_PERMISSION)


async def _change_permissions(application: Application, request: Request, operation: Operation) -> Response:
    changes = _permission_changes(request.json(), grants=operation is TopicOperation.GRANT_PERMISSION)
    refused = await _permission_refusal(application, request, operation, [topic for topic, _, _ in changes])
    if refused is not None:
        return error_response(HTTPStatus.UNAUTHORIZED, refused)
    await application.admin.topics.set_all_permissions(changes)
    return nothing()


def _permission_changes(given: object, *, grants: bool) -> list[tuple[TopicName, str, Sequence[str] | None]]:
    """:raises InvalidRequest: the body is not a list of permissions"""
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_PERMISSIONS:
        raise InvalidRequest(f"must be a list of 1 to {_MOST_PERMISSIONS} objects with topic and role")
    return [_permission_change(f"options[{index}]", item, grants=grants) for index, item in enumerate(given)]


def _permission_change(name: str, given: Any, *, grants: bool) -> tuple[TopicName, str, Sequence[str] | None]:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{name} must be an object, not {shown(given)}")
    role = text(f"{name}.role", given.get("role"))
    actions = _actions(f"{name}.actions", given.get("actions")) if grants else None
    try:
        return TopicName.parse(text(f"{name}.topic", given.get("topic"))), role, actions
    except InvalidName as error:
        raise InvalidTopicName(str(error)) from error


async def _permission_refusal(
    application: Application, request: Request, operation: Operation, topics: Sequence[TopicName]
) -> str | None:
    """Returns why the principal lacks permission for one of the topics; None: it has it for all."""
    authorizer = application.access.authorizer
    if not authorizer.asks:
        return None
    for topic in topics:
        reason = await authorizer.refusal(request.principal, operation, Target.of_topic(topic))
        if reason is not None:
            return reason
    return None
