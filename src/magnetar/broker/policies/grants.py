"""The permissions that are stored in the records of tenants and namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Set

from magnetar.broker.policies.namespaces import NamespaceRecords
from magnetar.broker.policies.records import Tenants
from magnetar.errors import MetadataFailure, NamespaceNotFound, TenantNotFound
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import Change, MetadataStore, SessionEvent
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import POLICIES, NamespaceName, check_part
from magnetar.naming.topic_name import TopicName
from magnetar.security.authorization import Changed, Touched
from magnetar.security.rules import Actions, NamespaceGrants

_MAX_KNOWN = 10_000
_EMPTY = NamespaceGrants()


class StoredGrants:
    """Implements :class:`magnetar.security.rules.Grants`; permissions are cached until the metadata
    changes."""

    def __init__(self, metadata: MetadataStore, tenants: Tenants, namespaces: NamespaceRecords) -> None:
        self._tenants = tenants
        self._namespaces = namespaces
        self._admins = MetadataCache(metadata, POLICIES, self._read_admins, most=_MAX_KNOWN)
        self._grants = MetadataCache(metadata, POLICIES, self._read_grants, most=_MAX_KNOWN)
        self._listeners: list[Changed] = []
        metadata.listen(POLICIES, self._metadata_changed)
        metadata.listen_session(self._session_changed)
        tenants.listen(self._tenant_changed)

    async def tenant_admins(self, tenant: str) -> Set[str]:
        """Returns the administrators of a tenant; see :meth:`magnetar.security.rules.Grants.tenant_admins`.

        :raises MetadataFailure: the record is not in the form that brokers write
        """
        try:
            check_part("tenant", tenant)
        except InvalidName:
            # The tenant cannot exist, so it has no administrators.
            return frozenset()
        return await self._admins.get(f"{POLICIES}/{tenant}")

    async def of_namespace(self, namespace: NamespaceName) -> NamespaceGrants:
        """Returns the permissions of a namespace; see :meth:`magnetar.security.rules.Grants.of_namespace`.

        :raises MetadataFailure: the record is not in the form that brokers write
        """
        return await self._grants.get(f"{POLICIES}/{namespace.path}")

    def listen(self, changed: Changed) -> None:
        self._listeners.append(changed)

    async def namespace_changed(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        """Drops the cached permissions of a namespace whose policies changed. A topic's policies grant
        nothing."""
        if topic is not None:
            return
        if namespace is None:
            self._grants.forget_all()
        else:
            self._grants.forget(f"{POLICIES}/{namespace.path}")
        self._tell(namespace)

    def _tenant_changed(self, tenant: str) -> None:
        self._admins.forget(f"{POLICIES}/{tenant}")
        self._tell(tenant)

    def _metadata_changed(self, change: Change) -> None:
        name = change.path[len(POLICIES) + 1 :]
        if "/" not in name:
            self._tell(name)
            return
        try:
            self._tell(NamespaceName.parse(name))
        except InvalidName:
            # Brokers do not write such a node.
            return

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._tell(None)

    def _tell(self, touched: Touched) -> None:
        for listener in self._listeners:
            listener(touched)

    async def _read_admins(self, path: str) -> Set[str]:
        try:
            record = await self._tenants.get(path[len(POLICIES) + 1 :])
        except TenantNotFound:
            return frozenset()
        return _names(record.get("adminRoles"), path)

    async def _read_grants(self, path: str) -> NamespaceGrants:
        try:
            record = await self._namespaces.get(NamespaceName.parse(path[len(POLICIES) + 1 :]))
        except NamespaceNotFound:
            return _EMPTY
        policies = _mapping(record.get("auth_policies"), path)
        return NamespaceGrants(
            of_namespace=_by_role(policies.get("namespace_auth"), path),
            of_topics={
                topic: _by_role(roles, path)
                for topic, roles in _mapping(policies.get("destination_auth"), path).items()
            },
            of_subscriptions={
                subscription: _names(roles, path)
                for subscription, roles in _mapping(policies.get("subscription_auth_roles"), path).items()
            },
            prefixed=record.get("subscription_auth_mode") == "Prefix",
        )


def _by_role(value: object, path: str) -> Mapping[str, Actions]:
    return {role: _names(actions, path) for role, actions in _mapping(value, path).items()}


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MetadataFailure(f"The permissions stored at {path} must be a JSON object of roles")
    return value


def _names(value: object, path: str) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise MetadataFailure(f"The actions or roles stored at {path} must be a list of strings")
    return frozenset(value)
