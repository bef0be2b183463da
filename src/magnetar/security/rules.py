"""Pulsar's authorization rules: superusers, tenant admins, and permissions granted in the metadata.

The rules are those of ``PulsarAuthorizationProvider`` and its documentation; ``docs/security.md`` lists the
rules by which Pulsar permits more than it documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import field
from typing import Protocol

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import INTERNAL, Principal
from magnetar.security.authorization import (
    BrokerOperation,
    Changed,
    ClusterOperation,
    NamespaceOperation,
    Operation,
    PolicyName,
    PolicyOperation,
    Target,
    TenantOperation,
    TopicOperation,
)

PRODUCE, CONSUME = "produce", "consume"
_EITHER = frozenset((PRODUCE, CONSUME))
ANYBODY: frozenset[Operation] = frozenset(
    {
        ClusterOperation.LIST_CLUSTERS,
        BrokerOperation.READY_CHECK,
        BrokerOperation.GET_VERSION,
        BrokerOperation.LIST_COORDINATORS,
    }
)
"""Operations that every authenticated client may perform."""
OF_TENANT_ADMINS: frozenset[Operation] = frozenset(
    {TenantOperation.GET_TENANT, TenantOperation.LIST_NAMESPACES}
)
BY_PERMISSION: dict[Operation, frozenset[str]] = {
    NamespaceOperation.GET_TOPICS: _EITHER,
    NamespaceOperation.GET_BUNDLE: _EITHER,
    TopicOperation.GET_BUNDLE_RANGE: _EITHER,
    NamespaceOperation.UNSUBSCRIBE: frozenset((CONSUME,)),
    NamespaceOperation.CLEAR_BACKLOG: frozenset((CONSUME,)),
    NamespaceOperation.PACKAGES: frozenset(("packages",)),
    TopicOperation.LOOKUP: _EITHER,
    TopicOperation.GET_METADATA: _EITHER,
    TopicOperation.GET_STATS: _EITHER,
    TopicOperation.GET_SCHEMA: _EITHER,
    TopicOperation.PRODUCE: frozenset((PRODUCE,)),
    TopicOperation.CREATE_SCHEMA: frozenset((PRODUCE,)),
    **dict.fromkeys(
        (
            TopicOperation.CONSUME,
            TopicOperation.SUBSCRIBE,
            TopicOperation.UNSUBSCRIBE,
            TopicOperation.GET_SUBSCRIPTIONS,
            TopicOperation.SKIP,
            TopicOperation.EXPIRE_MESSAGES,
            TopicOperation.PEEK_MESSAGES,
            TopicOperation.RESET_CURSOR,
            TopicOperation.GET_BACKLOG_SIZE,
            TopicOperation.GET_REPLICATED_SUBSCRIPTION_STATUS,
            TopicOperation.SET_REPLICATED_SUBSCRIPTION_STATUS,
            TopicOperation.READ_FILES,
        ),
        frozenset((CONSUME,)),
    ),
}
"""For operations that need no admin role: the actions of which the role must have at least one."""
_OF_SUPERUSERS: frozenset[Operation] = frozenset(
    {
        NamespaceOperation.UNLOAD,
        NamespaceOperation.UPDATE_MIGRATION,
        NamespaceOperation.EXPLAIN_PLACEMENT,
        NamespaceOperation.GET_RESOURCE_AVAILABILITY,
        NamespaceOperation.GET_BUNDLE_QUOTA,
        NamespaceOperation.UPDATE_BUNDLE_QUOTA,
        PolicyOperation(PolicyName.BOOKIE_AFFINITY, write=False),
        PolicyOperation(PolicyName.BOOKIE_AFFINITY, write=True),
    }
)
"""Operations on namespaces that only superusers may perform, because they concern brokers and bookies."""
_SETS_DELAYS = PolicyOperation(PolicyName.DELAYED_DELIVERY, write=True)
"""Setting delayed delivery: for a namespace, only superusers may do this; for a topic, tenant admins, too."""
_OF_THE_NAMESPACE: frozenset[Operation] = frozenset({TopicOperation.GET_BUNDLE_RANGE})
"""Operations on a topic that need a permission on the namespace."""
Actions = Set[str]
"""A set of actions: ``produce``, ``consume``, ``functions``, ``packages``, ``sources``, ``sinks``."""


class PulsarRules:
    """Implements :class:`magnetar.security.authorization.Authorizer` with Pulsar's rules."""

    asks = True

    def __init__(
        self,
        grants: Grants,
        superusers: Callable[[], frozenset[str]],
        *,
        replicators: Callable[[], frozenset[str]] = frozenset,
        wildcards: bool = False,
    ) -> None:
        """:param superusers: returns the current superusers
        :param replicators: returns the current roles of other clusters' brokers
        :param wildcards: whether roles in permissions may contain a ``*``
        """
        self._grants = grants
        self._superusers = superusers
        self._replicators = replicators
        self._wildcards = wildcards

    def listen(self, changed: Changed) -> None:
        self._grants.listen(changed)

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        """Returns the reason why a principal lacks a permission; None: the principal has the permission.

        Behind a proxy, both the proxy and the role that it acts for need the permission.
        """
        if principal.method in INTERNAL:
            return None
        roles = [principal.role]
        if principal.original_role is not None:
            roles.append(principal.original_role)
        for role in roles:
            reason = await self._refusal_of(role, operation, target)
            if reason is not None:
                return reason
        return None

    async def _refusal_of(self, role: str, operation: Operation, target: Target) -> str | None:
        if operation in ANYBODY or (role and role in self._superusers()):
            return None
        if operation is TopicOperation.REPLICATE:
            return self._refusal_to_replicate(role, target)
        if _superusers_only(operation, target):
            return f"Only superusers may {_words(operation)}"
        if role and role in await self._grants.tenant_admins(target.tenant):
            return None
        wanted = BY_PERMISSION.get(operation)
        if wanted is None:
            return (
                f"{role or 'A client without a role'} may not {_words(operation)} on {target}: it "
                "is not an administrator of the tenant"
            )
        assert target.namespace is not None
        grants = await self._grants.of_namespace(target.namespace)
        return self._refusal_by(grants, role, wanted, operation, target)

    def _refusal_to_replicate(self, role: str, target: Target) -> str | None:
        """Returns the reason why a role may not replicate; None: the role may replicate.

        Tenant admins cannot grant this permission, because a role that replicates could change the position
        of any subscription.
        """
        if role and role in self._replicators():
            return None
        return (
            f"{role or 'A client without a role'} may not send messages of other clusters, or markers, to "
            f"{target}: only superusers and the roles in magnetarReplicationRoles may"
        )

    def _refusal_by(
        self, grants: NamespaceGrants, role: str, wanted: frozenset[str], operation: Operation, target: Target
    ) -> str | None:
        if target.subscription and wanted == {CONSUME}:
            reason = _subscription_refusal(grants, role, target.subscription)
            if reason is not None:
                return reason
        if target.topic is not None and operation not in _OF_THE_NAMESPACE:
            granted = actions_on(grants, target.topic, role, wildcards=self._wildcards)
        else:
            granted = actions_of(grants, role, wildcards=self._wildcards)
        if role and granted & wanted:
            return None
        actions = " or ".join(sorted(wanted))
        return (
            f"{role or 'A client without a role'} may not {_words(operation)} on {target}: it needs "
            f"the permission {actions}"
        )


def _superusers_only(operation: Operation, target: Target) -> bool:
    if isinstance(operation, (ClusterOperation, BrokerOperation)) or operation in _OF_SUPERUSERS:
        return True
    if operation == _SETS_DELAYS:
        return target.topic is None
    return isinstance(operation, TenantOperation) and operation not in OF_TENANT_ADMINS


def _subscription_refusal(grants: NamespaceGrants, role: str, subscription: str) -> str | None:
    allowed = grants.of_subscriptions.get(subscription)
    if allowed and role not in allowed:
        return f"{role or 'A client without a role'} is not allowed to use the subscription {subscription}"
    if grants.prefixed and not (subscription == role or subscription.startswith(f"{role}-")):
        return f"The name of the subscription must begin with the role, like {role}-xxxx"
    return None


def _words(operation: Operation) -> str:
    if isinstance(operation, PolicyOperation):
        return str(operation)
    return str(operation).replace("_", " ")


@dataclass(frozen=True, slots=True)
class NamespaceGrants:
    """The permissions of one namespace: ``auth_policies`` and ``subscription_auth_mode`` of its policies."""

    of_namespace: Mapping[str, Actions] = field(default_factory=dict)
    """The permissions on the namespace, by role."""
    of_topics: Mapping[str, Mapping[str, Actions]] = field(default_factory=dict)
    """The permissions on single topics, by the topic's full name, then by role."""
    of_subscriptions: Mapping[str, Set[str]] = field(default_factory=dict)
    """By subscription: the only roles that may use it.

    A subscription without listed roles is open to all roles that may consume.
    """
    prefixed: bool = False
    """Whether the name of a subscription must be the role, or begin with the role and a hyphen."""


class Grants(Protocol):
    """The source of the granted permissions."""

    async def tenant_admins(self, tenant: str) -> Set[str]:
        """Returns the roles that administer a tenant; empty if the tenant does not exist."""
        ...

    async def of_namespace(self, namespace: NamespaceName) -> NamespaceGrants:
        """Returns the permissions of a namespace; empty if the namespace does not exist."""
        ...

    def listen(self, changed: Callable[[NamespaceName | str | None], None]) -> None:
        """Registers ``changed``, to be called with the changed namespace or tenant; None: any may have
        changed."""
        ...


def actions_of(grants: NamespaceGrants, role: str, *, wildcards: bool) -> Actions:
    """Returns the actions that a role may carry out on all topics of a namespace."""
    return _of_role(grants.of_namespace, role, wildcards)


def actions_on(grants: NamespaceGrants, topic: TopicName, role: str, *, wildcards: bool) -> Actions:
    """Returns the actions that a role may carry out on a topic; a topic's permissions apply to its
    partitions."""
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
    """Whether a pattern matches a role. A ``*`` at the pattern's end or beginning matches any string; ``*``
    alone matches all roles.
    """
    if pattern.endswith("*"):
        return role.startswith(pattern[:-1])
    return pattern.startswith("*") and role.endswith(pattern[1:])
