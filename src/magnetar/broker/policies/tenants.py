"""Tenants in the metadata store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar.broker.policies.records import Record, change, create, read
from magnetar.errors import AlreadyExists, HasChildren, TenantNotFound
from magnetar.metadata.interface import MetadataStore, NodeMissing, NodeNotEmpty

_POLICIES = "/admin/policies"


def _missing() -> TenantNotFound:
    return TenantNotFound("Tenant does not exist")


class Tenants:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, changed: Callable[[str], None]) -> None:
        """Calls ``changed`` with the name of a tenant that is changed here, before the change is answered."""
        self._listeners.append(changed)

    def _tell(self, name: str) -> None:
        for changed in self._listeners:
            changed(name)

    async def names(self) -> Sequence[str]:
        """Returns the names of the tenants, sorted."""
        return await self._metadata.children(_POLICIES)

    async def get(self, name: str) -> Mapping[str, Any]:
        """:raises TenantNotFound: the tenant does not exist"""
        found = await read(self._metadata, f"{_POLICIES}/{name}")
        if found is None:
            raise _missing()
        return found

    async def create(self, name: str, value: Mapping[str, Any]) -> None:
        """:raises AlreadyExists: the tenant exists"""
        if not await create(self._metadata, f"{_POLICIES}/{name}", value):
            raise AlreadyExists("Tenant already exist")
        self._tell(name)

    async def change(self, name: str, work: Callable[[Record], None]) -> None:
        """:raises TenantNotFound: the tenant does not exist"""
        await change(self._metadata, f"{_POLICIES}/{name}", work, _missing())
        self._tell(name)

    async def delete(self, name: str) -> None:
        """:raises TenantNotFound: the tenant does not exist

        :raises HasChildren: it has namespaces
        """
        path = f"{_POLICIES}/{name}"
        for child in await self._metadata.children(path):
            # A deleted legacy namespace leaves an empty parent with the name of its cluster behind.
            below = await self._metadata.children(f"{path}/{child}")
            if below or await read(self._metadata, f"{path}/{child}") is not None:
                raise HasChildren("The tenant still has active namespaces")
            await self._metadata.delete(f"{path}/{child}")
        try:
            await self._metadata.delete(path)
        except NodeMissing as error:
            raise _missing() from error
        except NodeNotEmpty as error:
            raise HasChildren("The tenant still has active namespaces") from error
        self._tell(name)
