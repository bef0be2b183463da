"""Granted permissions, from the metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import field
from typing import Protocol

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

Actions = Set[str]
"""A set of ``produce``, ``consume``, ``functions``, ``packages``, ``sources``, ``sinks``."""


@dataclass(frozen=True, slots=True)
class NamespaceGrants:
    """The permissions of one namespace: ``auth_policies`` and ``subscription_auth_mode`` of its policies."""

    of_namespace: Mapping[str, Actions] = field(default_factory=dict)
    """By role."""
    of_topics: Mapping[str, Mapping[str, Actions]] = field(default_factory=dict)
    """By the full name of the topic, then by role."""
    of_subscriptions: Mapping[str, Set[str]] = field(default_factory=dict)
    """The only roles that may use a subscription; empty: all that may consume."""
    prefixed: bool = False
    """Names of subscriptions must begin with the role."""


class Grants(Protocol):
    """Source of the granted permissions."""

    async def tenant_admins(self, tenant: str) -> Set[str]:
        """Returns the roles that administer a tenant; empty if the tenant does not exist."""
        ...

    async def of_namespace(self, namespace: NamespaceName) -> NamespaceGrants:
        """Returns the permissions of a namespace; empty if it does not exist."""
        ...

    def listen(self, changed: Callable[[NamespaceName | str | None], None]) -> None:
        """Registers ``changed``, to be called with the changed namespace or tenant; None: possibly all."""
        ...


def actions_of(grants: NamespaceGrants, role: str, *, wildcards: bool) -> Actions:
    """Returns the actions of a role for every topic of a namespace."""
    return _of_role(grants.of_namespace, role, wildcards)


def actions_on(grants: NamespaceGrants, topic: TopicName, role: str, *, wildcards: bool) -> Actions:
    """Returns the actions of a role for a topic; permissions of a topic apply to its partitions."""
    found = set(_of_role(grants.of_namespace, role, wildcards))
    for name in {str(topic), str(topic.base)}:
        by_role = grants.of_topics.get(name)
        if by_role:
            found |= _of_role(by_role, role, wildcards)
    return found


def _of_role(by_role: Mapping[str, Actions], role: str, wildcards: bool) -> Actions:
    found = set(by_role.get(role, ()))
    if wildcards:
        for pattern, actions in by_role.items():
            if fits(pattern, role):
                found |= actions
    return found


def fits(pattern: str, role: str) -> bool:
    """Whether a pattern with ``*`` at its end or its beginning matches a role (``*`` alone matches all)."""
    if pattern.endswith("*"):
        return role.startswith(pattern[:-1])
    return pattern.startswith("*") and role.endswith(pattern[1:])
