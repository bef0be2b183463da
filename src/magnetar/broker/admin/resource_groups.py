"""Administration of resource groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.service import BrokerService
from magnetar.errors import PreconditionFailed


class ResourceGroupAdmin:
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
