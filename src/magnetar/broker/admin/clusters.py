"""Administration of the records of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.policies.clusters import PEERS
from magnetar.broker.policies.records import Record
from magnetar.broker.service import BrokerService
from magnetar.errors import NamespaceNotFound, PreconditionFailed
from magnetar.naming.namespace_name import NamespaceName


class ClusterAdmin:
    def __init__(self, broker: BrokerService) -> None:
        self._policies = broker.policies
        self._clusters = broker.policies.clusters
        self._own = broker.settings.cluster

    async def names(self) -> Sequence[str]:
        """Returns all names but ``global``, sorted."""
        return await self._clusters.names()

    async def get(self, name: str) -> Mapping[str, Any]:
        """Returns ``ClusterData``.

        :raises ClusterNotFound: no such cluster
        """
        return await self._clusters.get(name)

    async def create(self, name: str, data: Mapping[str, Any]) -> None:
        """:raises AlreadyExists: the cluster exists"""
        await self._clusters.create(name, data)

    async def update(self, name: str, data: Mapping[str, Any]) -> None:
        """Replaces the record.

        :raises ClusterNotFound: no such cluster
        """

        def replace(record: Record) -> None:
            record.clear()
            record.update(data)

        await self._clusters.change(name, replace)

    async def delete(self, name: str) -> None:
        """Removes the record of a cluster that nothing refers to.

        :raises ClusterNotFound: no such cluster
        :raises PreconditionFailed: it is the local cluster, a namespace lists it or has it in its name, or it
            has failure domains or isolation policies
        """
        await self._clusters.get(name)
        if name == self._own:
            raise PreconditionFailed(f"Cluster {name} is the cluster of this broker and cannot be deleted")
        for namespace in await self._policies.all_namespaces():
            if await self._lists(namespace, name):
                raise PreconditionFailed(
                    f"Cluster {name} is in use: remove it from the clusters of namespace {namespace} first"
                )
        await self._clusters.delete(name)

    async def _lists(self, namespace: str, cluster: str) -> bool:
        try:
            record = await self._policies.namespaces.get(NamespaceName.parse(namespace))
        except NamespaceNotFound:
            # The namespace was deleted meanwhile.
            return False
        return any(
            cluster in (record.get(field) or ()) for field in ("replication_clusters", "allowed_clusters")
        )

    async def migration(self, name: str) -> Mapping[str, Any]:
        """Returns ``ClusterPolicies``.

        :raises NotFound: they were never set
        """
        return await self._clusters.policies(name)

    async def set_migration(self, name: str, url: Mapping[str, Any], *, migrated: bool) -> None:
        """Sets where clients of the cluster migrate to, and whether they do so now.

        :param url: ``ClusterUrl``
        :raises ClusterNotFound: no such cluster
        """
        await self._clusters.set_policies(name, {"migrated": migrated, "migratedClusterUrl": dict(url)})

    async def peers(self, name: str) -> Sequence[str] | None:
        """None if they were never set.

        :raises ClusterNotFound: no such cluster
        """
        found: Sequence[str] | None = (await self._clusters.get(name)).get(PEERS)
        return found

    async def set_peers(self, name: str, peers: Sequence[str]) -> None:
        """:raises ClusterNotFound: no such cluster

        :raises PreconditionFailed: a peer does not exist, or is the cluster itself
        """
        for peer in peers:
            if peer == name:
                raise PreconditionFailed(f"{name} itself can't be part of peer-list")
            if not await self._clusters.exists(peer):
                raise PreconditionFailed(f"Peer cluster {peer} does not exist")
        await self._clusters.change(name, lambda record: record.update({PEERS: list(peers)}))
