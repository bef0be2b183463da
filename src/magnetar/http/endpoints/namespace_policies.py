"""Endpoints that read and write the policies of namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from magnetar.http.endpoints.policy_kinds import KINDS, NOT_THERE, reads, writes
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Endpoint, Handler
from magnetar.http.shapes.fields import always
from magnetar.http.shapes.names import namespace_of
from magnetar.http.shapes.namespace_policies import POLICIES, Policy


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


async def _set(application: Application, request: Request, policy: Policy, value: object) -> Response:
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
    unset = {204: "the policy is not set"} if policy.unset_status == 204 else {}
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
"""Their paths are relative to that of the namespace."""
