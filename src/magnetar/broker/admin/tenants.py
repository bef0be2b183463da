"""Administration of tenants and resource groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.admin.namespaces import NamespaceAdmin
from magnetar.broker.policies.records import GLOBAL, Record
from magnetar.broker.service import BrokerService
from magnetar.errors import NotAllowed, PreconditionFailed, TenantNotFound


class TenantAdmin:
    def __init__(self, broker: BrokerService, namespaces: NamespaceAdmin) -> None:
        self._broker = broker
        self._tenants = broker.policies.tenants
        self._namespaces = namespaces

    async def names(self) -> Sequence[str]:
        return await self._tenants.names()

    async def get(self, name: str) -> Mapping[str, Any]:
        """Returns ``TenantInfo``.

        :raises TenantNotFound: no such tenant
        """
        return await self._tenants.get(name)

    async def create(self, name: str, info: Mapping[str, Any]) -> None:
        """:raises AlreadyExists: the tenant exists

        :raises PreconditionFailed: it allows no cluster, or one that does not exist; the name of an
            administrator begins or ends with white space; or there are too many tenants
        """
        await self._check(info)
        most = self._broker.settings.max_tenants
        if most and len(await self._tenants.names()) >= most:
            raise PreconditionFailed("Exceed the maximum number of tenants")
        await self._tenants.create(name, info)

    async def update(self, name: str, info: Mapping[str, Any]) -> None:
        """Replaces the record.

        :raises TenantNotFound: no such tenant
        :raises PreconditionFailed: as for :meth:`create`, or a cluster is removed that legacy namespaces of
            the tenant have in their names. Namespaces that are only replicated to the cluster do not count,
            as in Pulsar
        """
        await self._check(info)
        before = (await self._tenants.get(name)).get("allowedClusters") or ()
        for cluster in set(before).difference(info["allowedClusters"]):
            if await self._broker.policies.namespaces.of_cluster(name, cluster):
                raise PreconditionFailed("Active namespaces")

        def replace(record: Record) -> None:
            record.clear()
            record.update(info)

        await self._tenants.change(name, replace)

    async def delete(self, name: str, *, force: bool) -> None:
        """:param force: with all namespaces and topics, if ``forceDeleteTenantAllowed`` permits it

        :raises TenantNotFound: no such tenant
        :raises HasChildren: it has namespaces
        :raises NotAllowed: forced deletion is disabled
        """
        if force:
            if not self._broker.settings.force_delete_tenants:
                raise NotAllowed("Broker doesn't allow forced deletion of tenants")
            # Legacy namespaces below the name of another namespace are deleted before it.
            for namespace in reversed(await self._broker.policies.namespaces.of_tenant(name)):
                await self._namespaces.delete_with_topics(self._broker.parse_namespace(namespace))
        try:
            await self._tenants.delete(name)
        except TenantNotFound as error:
            raise TenantNotFound("Tenant doesn't exist") from error

    async def _check(self, info: Mapping[str, Any]) -> None:
        if any(role != role.strip() for role in info.get("adminRoles") or ()):
            raise PreconditionFailed("AdminRoles contains whitespace in the beginning or end.")
        await self._check_clusters(info)

    async def _check_clusters(self, info: Mapping[str, Any]) -> None:
        clusters: Sequence[str] | None = info.get("allowedClusters")
        if clusters is None:
            raise PreconditionFailed("Clusters cannot be null")
        if not clusters or not all(name.strip() for name in clusters):
            raise PreconditionFailed("Clusters cannot be empty or blank")
        for name in clusters:
            if name == GLOBAL or not await self._broker.policies.clusters.exists(name):
                raise PreconditionFailed("Clusters do not exist")


class ResourceGroupAdmin:
    """Administration of resource groups."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._records = broker.resource_groups
        self._policies = broker.policies

    async def names(self) -> Sequence[str]:
        """Returns the names, sorted."""
        return await self._records.names()

    async def get(self, name: str) -> Mapping[str, Any]:
        """Returns ``ResourceGroup``.

        :raises NotFound: no such group
        """
        return await self._records.get(name)

    async def check(self, name: str) -> None:
        """:raises PreconditionFailed: no such group"""
        if name not in await self._records.names():
            raise PreconditionFailed("ResourceGroup does not exist")

    async def put(self, name: str, given: Mapping[str, Any]) -> None:
        """Creates a group, or changes the given fields of an existing one."""
        await self._records.put(name, given)

    async def delete(self, name: str) -> None:
        """:raises NotFound: no such group

        :raises PreconditionFailed: a namespace belongs to it
        """
        for tenant in await self._policies.tenants.names():
            for namespace in await self._policies.namespaces.of_tenant(tenant):
                record = await self._policies.namespaces.get(self._broker.parse_namespace(namespace))
                if record.get("resource_group_name") == name:
                    raise PreconditionFailed("ResourceGroup is in use")
        await self._records.delete(name)
