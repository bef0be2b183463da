"""Clusters in the metadata store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from magnetar.broker.policies.records import Record, change, create, read
from magnetar.errors import AlreadyExists, ClusterNotFound, Conflict, NotFound, PreconditionFailed
from magnetar.metadata.interface import MetadataStore, NodeMissing, NodeNotEmpty
from magnetar.naming.errors import InvalidName
from magnetar.naming.namespace_name import check_part

GLOBAL = "global"
"""Stands for all clusters in names of legacy namespaces; no tenant can be allowed it."""
CLUSTERS = "/admin/clusters"
"""The parent of their records."""
PEERS = "peerClusterNames"
"""The field of ``ClusterData`` with the clusters that may serve what this cluster does not."""
_TENANTS = "/admin/policies"
_POLICIES = "policies"


def policies_path(name: str) -> str:
    """Returns the path of a cluster's ``ClusterPolicies``."""
    return f"{CLUSTERS}/{name}/{_POLICIES}"


def _missing() -> ClusterNotFound:
    return ClusterNotFound("Cluster does not exist")


class Clusters:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def names(self) -> Sequence[str]:
        """Returns the names of the clusters, sorted, without the pseudo-cluster ``global``."""
        return [name for name in await self._metadata.children(CLUSTERS) if name != GLOBAL]

    async def exists(self, name: str) -> bool:
        """Whether the cluster exists; False also for an invalid name."""
        try:
            check_part("cluster", name)
        except InvalidName:
            return False
        return await self._metadata.exists(f"{CLUSTERS}/{name}")

    async def get(self, name: str) -> Mapping[str, Any]:
        """:raises ClusterNotFound: the cluster does not exist"""
        found = await read(self._metadata, f"{CLUSTERS}/{name}")
        if found is None:
            raise _missing()
        return {key: value for key, value in found.items() if value is not None}

    async def check_peers(self, clusters: Sequence[str]) -> None:
        """Checks that the clusters may stand in one list; clusters without a record are ignored.

        :raises Conflict: one of them is a peer of another
        """
        for name in clusters:
            try:
                peers = (await self.get(name)).get(PEERS) or ()
            except ClusterNotFound:
                continue
            if not set(peers).isdisjoint(clusters):
                raise Conflict(
                    f"{name}'s peer-clusters [{', '.join(peers)}] can't be part of replication-clusters "
                    f"[{', '.join(clusters)}]"
                )

    async def create(self, name: str, value: Mapping[str, Any]) -> None:
        """:raises AlreadyExists: the cluster exists"""
        if not await create(self._metadata, f"{CLUSTERS}/{name}", value):
            raise AlreadyExists("Cluster already exists")

    async def change(self, name: str, work: Callable[[Record], None]) -> None:
        """:raises ClusterNotFound: the cluster does not exist"""
        await change(self._metadata, f"{CLUSTERS}/{name}", work, _missing())

    async def policies(self, name: str) -> Mapping[str, Any]:
        """Returns ``ClusterPolicies``: whether the cluster has migrated, and where to.

        :raises NotFound: the cluster has no such policies
        """
        found = await read(self._metadata, policies_path(name))
        if found is None:
            raise NotFound("Cluster does not exist")
        return found

    async def set_policies(self, name: str, value: Mapping[str, Any]) -> None:
        """:raises ClusterNotFound: the cluster does not exist

        :raises ConcurrentModification: the record keeps changing
        """
        if not await self.exists(name):
            raise _missing()
        path = policies_path(name)
        if not await create(self._metadata, path, value):

            def replace(record: Record) -> None:
                record.clear()
                record.update(value)

            await change(self._metadata, path, replace, _missing())

    async def delete(self, name: str) -> None:
        """:raises ClusterNotFound: the cluster does not exist

        :raises PreconditionFailed: it has legacy namespaces, failure domains or isolation policies
        """
        for tenant in await self._metadata.children(_TENANTS):
            if await self._metadata.children(f"{_TENANTS}/{tenant}/{name}"):
                raise PreconditionFailed("Cluster not empty")
        if await self._metadata.children(f"{CLUSTERS}/{name}") == [_POLICIES]:
            with suppress(NodeMissing):
                await self._metadata.delete(policies_path(name))
        try:
            await self._metadata.delete(f"{CLUSTERS}/{name}")
        except NodeMissing as error:
            raise _missing() from error
        except NodeNotEmpty as error:
            raise PreconditionFailed("Cluster not empty") from error
