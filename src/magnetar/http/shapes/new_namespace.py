"""The policies of a new namespace: ``Policies``, each with the shape of its own endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from magnetar.http.engine.message import Request
from magnetar.http.shapes.fields import (
    ACTIONS,
    Check,
    Field,
    Shape,
    an_object,
    body,
    by_name,
    choice,
    choices,
    fields,
    text,
    texts,
    texts_given,
    truth,
    whole,
)
from magnetar.http.shapes.namespace_policies import POLICIES
from magnetar.http.shapes.policies import DISPATCH_RATE, QUOTA_TYPES, quota


def new_namespace(request: Request) -> Mapping[str, Any]:
    """Returns the policies in a body, which may be empty. Ignores fields that Pulsar does not know, and -1,
    which older clients send for numbers that are not set.

    :raises InvalidRequest: a policy has another shape
    :raises PreconditionFailed: a value is out of range
    :raises NotSupported: a policy belongs to a feature that is left out
    """
    given = body(an_object, "policies", required=None)(request) or {}
    found: dict[str, Any] = {}
    for name, check in _CHECKS.items():
        value = given.get(name)
        if value is not None and not (type(value) is int and value == -1):
            found[name] = check(name, value)
    return {name: value for name, value in found.items() if value is not None}


def _alone(shape: Shape) -> Check:
    """Checks a value with the shape of a request body."""
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
"""Checks by field of ``Policies``; without a :class:`Shape`, the field's own endpoint has no such body."""
