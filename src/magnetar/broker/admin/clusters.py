"""Administration of clusters, tenants and resource groups."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.admin.namespaces import NamespaceAdmin
from magnetar.broker.policies.records import GLOBAL, PEERS, Record
from magnetar.broker.policies.rules import check_allowed, check_allows_replication, check_within_namespace
from magnetar.broker.policies.values import texts
from magnetar.broker.service import BrokerService
from magnetar.errors import (
    AuthorizationFailure,
    NamespaceNotFound,
    NotAllowed,
    PreconditionFailed,
    TenantNotFound,
)
from magnetar.io.waiting import finished
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

log = logging.getLogger(__name__)


class TenantAdmin:
    """Administration of tenants."""

    def __init__(self, broker: BrokerService, namespaces: NamespaceAdmin) -> None:
        self._broker = broker
        self._tenants = broker.policies.tenants
        self._namespaces = namespaces

    async def names(self) -> Sequence[str]:
        return await self._tenants.names()

    async def get(self, name: str) -> Mapping[str, object]:
        """Returns ``TenantInfo``, the record of a tenant.

        :raises TenantNotFound: no such tenant
        """
        return await self._tenants.get(name)

    async def create(self, name: str, info: Mapping[str, object]) -> None:
        """Creates a tenant.

        :raises AlreadyExists: the tenant exists
        :raises PreconditionFailed: the tenant allows no cluster, or a cluster that does not exist; an
            administrator's name begins or ends with white space; or there are too many tenants
        """
        await self._check(info)
        most = self._broker.settings.max_tenants
        if most and len(await self._tenants.names()) >= most:
            raise PreconditionFailed("Exceed the maximum number of tenants")
        await self._tenants.create(name, info)

    async def update(self, name: str, info: Mapping[str, Any]) -> None:
        """Replaces the record of a tenant.

        :raises TenantNotFound: no such tenant
        :raises PreconditionFailed: as for :meth:`create`, or the new list lacks a cluster that is in the name
            of a legacy namespace of the tenant. As in Pulsar, a namespace that is only replicated to the
            cluster does not count
        """
        await self._check(info)
        before = texts((await self._tenants.get(name)).get("allowedClusters") or [])
        for cluster in set(before).difference(info["allowedClusters"]):
            if await self._broker.policies.namespaces.of_cluster(name, cluster):
                raise PreconditionFailed("Active namespaces")

        def replace(record: Record) -> None:
            record.clear()
            record.update(info)

        await self._tenants.change(name, replace)

    async def delete(self, name: str, *, force: bool) -> None:
        """Deletes a tenant.

        :param force: also delete all namespaces and topics, if ``forceDeleteTenantAllowed`` permits it
        :raises TenantNotFound: no such tenant
        :raises HasChildren: the tenant has namespaces
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
        """Returns the names of all resource groups, sorted."""
        return await self._records.names()

    async def get(self, name: str) -> Mapping[str, object]:
        """Returns ``ResourceGroup``, the limits of a resource group.

        :raises NotFound: no such group
        """
        return await self._records.get(name)

    async def check(self, name: str) -> None:
        """Checks that a resource group exists.

        :raises PreconditionFailed: no such group
        """
        if name not in await self._records.names():
            raise PreconditionFailed("ResourceGroup does not exist")

    async def put(self, name: str, given: Mapping[str, object]) -> None:
        """Creates a group, or changes the given fields of an existing group."""
        await self._records.put(name, given)

    async def delete(self, name: str) -> None:
        """Deletes a resource group.

        :raises NotFound: no such group
        :raises PreconditionFailed: a namespace belongs to the group
        """
        for tenant in await self._policies.tenants.names():
            for namespace in await self._policies.namespaces.of_tenant(tenant):
                record = await self._policies.namespaces.get(self._broker.parse_namespace(namespace))
                if record.get("resource_group_name") == name:
                    raise PreconditionFailed("ResourceGroup is in use")
        await self._records.delete(name)


class ClusterAdmin:
    """Administration of the records of clusters."""

    def __init__(self, broker: BrokerService) -> None:
        self._policies = broker.policies
        self._clusters = broker.policies.clusters
        self._own = broker.settings.cluster

    async def names(self) -> Sequence[str]:
        """Returns the names of all clusters except ``global``, sorted."""
        return await self._clusters.names()

    async def get(self, name: str) -> Mapping[str, object]:
        """Returns ``ClusterData``, the record of a cluster.

        :raises ClusterNotFound: no such cluster
        """
        return await self._clusters.get(name)

    async def create(self, name: str, data: Mapping[str, object]) -> None:
        """Creates the record of a cluster.

        :raises AlreadyExists: the cluster exists
        """
        await self._clusters.create(name, data)

    async def update(self, name: str, data: Mapping[str, object]) -> None:
        """Replaces the record of a cluster.

        :raises ClusterNotFound: no such cluster
        """

        def replace(record: Record) -> None:
            record.clear()
            record.update(data)

        await self._clusters.change(name, replace)

    async def delete(self, name: str) -> None:
        """Removes the record of a cluster.

        :raises ClusterNotFound: no such cluster
        :raises PreconditionFailed: the cluster is the local cluster; a namespace lists the cluster or has
            its name in its own name; or the cluster has failure domains or isolation policies
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
        """Returns ``ClusterPolicies``: where clients of the cluster migrate to.

        :raises NotFound: the policies were never set
        """
        return await self._clusters.policies(name)

    async def set_migration(self, name: str, url: Mapping[str, object], *, migrated: bool) -> None:
        """Sets where clients of the cluster migrate to.

        :param url: ``ClusterUrl``
        :param migrated: whether clients migrate now
        :raises ClusterNotFound: no such cluster
        """
        await self._clusters.set_policies(name, {"migrated": migrated, "migratedClusterUrl": dict(url)})

    async def peers(self, name: str) -> Sequence[str] | None:
        """Returns the peer clusters of a cluster; None if they were never set.

        :raises ClusterNotFound: no such cluster
        """
        found = (await self._clusters.get(name)).get(PEERS)
        return texts(found) if found is not None else None

    async def set_peers(self, name: str, peers: Sequence[str]) -> None:
        """Replaces the peer clusters of a cluster.

        :raises ClusterNotFound: no such cluster
        :raises PreconditionFailed: a peer does not exist, or is the cluster itself
        """
        for peer in peers:
            if peer == name:
                raise PreconditionFailed(f"{name} itself can't be part of peer-list")
            if not await self._clusters.exists(peer):
                raise PreconditionFailed(f"Peer cluster {peer} does not exist")
        await self._clusters.change(name, lambda record: record.update({PEERS: list(peers)}))


class NamespaceClusterAdmin:
    """Administration of a namespace's clusters: the clusters that may serve it, and its replication clusters.

    Namespaces are given as ``tenant/namespace`` or ``tenant/cluster/namespace``.
    """

    def __init__(self, broker: BrokerService, bundles: BundleAdmin) -> None:
        self._broker = broker
        self._bundles = bundles
        self._policies = broker.policies

    async def set_replicated(self, namespace: str, clusters: Sequence[str]) -> None:
        """Sets the clusters that the topics of a namespace are replicated to.

        If neither this list nor ``allowed_clusters`` names the local cluster, all local topics of the
        namespace are deleted with their data, as in Pulsar. Only this call deletes topics; a list that
        another cluster writes to a shared configuration store, or a changed ``clusterName``, does not.

        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: the list is empty or contains ``global``, or the namespace has a cluster
            in its name
        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        :raises Conflict: two of the clusters are peers
        :raises InvalidRequest: a cluster is not among the allowed clusters of the namespace
        """
        name = self._broker.parse_namespace(namespace)
        if not clusters:
            raise PreconditionFailed("ClusterIds should not be null or empty")
        if not name.is_global and list(clusters) != [self._broker.settings.cluster]:
            raise PreconditionFailed("Cannot set replication on a non-global namespace")
        if "global" in clusters:
            raise PreconditionFailed("Cannot specify global in the list of replication clusters")
        await self._check_known(name, clusters)
        allowed = (await self._policies.namespaces.get(name)).get("allowed_clusters") or ()
        check_within_namespace(str(name), clusters, allowed)
        check_allowed(name.tenant, clusters, await self._policies.tenants.get(name.tenant))

        def work(record: Record) -> None:
            check_within_namespace(str(name), clusters, record.get("allowed_clusters") or ())
            record["replication_clusters"] = list(dict.fromkeys(clusters))

        await self._policies.change_namespace(name, work)
        if not await self._broker.serving_clusters.include(name):
            await self._delete_topics(name)

    async def _delete_topics(self, name: NamespaceName) -> None:
        """Deletes the topics of a namespace that does not list the local cluster.

        The records of partitioned topics stay, because clusters with a shared configuration store share
        these records.
        """
        broker = self._broker
        for loading in broker.topics.loading_in(name):
            await finished(broker.io.loop, loading)
        if broker.beside is not None:
            # Brokers do not load the topics again, because the namespace no longer lists the local cluster.
            await self._bundles.unload_all(str(name))
        for topic in await broker.namespaces.persistent_topics(name):
            if await broker.serving_clusters.include(name):
                log.warning(
                    "deletion of topics stopped: their namespace lists the local cluster again",
                    extra={"namespace": str(name)},
                )
                break
            log.warning(
                "topic deleted: the clusters of its namespace no longer include the local cluster",
                extra={"topic": topic, "cluster": broker.settings.cluster},
            )
            await broker.topics.delete_stored_topic(TopicName.parse(topic))
        if self._policies.topics is not None:
            self._policies.topics.forget(name)

    async def set_allowed(self, namespace: str, clusters: Sequence[str]) -> None:
        """Sets the clusters that may serve the topics of a namespace. If the list is empty, the clusters that
        the namespace is replicated to may serve them.

        Topics that the local cluster may no longer serve are closed, and keep their data.

        :raises NamespaceNotFound: no such namespace
        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        :raises Conflict: two of the clusters are peers
        :raises InvalidRequest: the list lacks a cluster that the namespace is replicated to
        """
        name = self._broker.parse_namespace(namespace)
        if "global" in clusters:
            raise AuthorizationFailure("Cannot specify global in the list of allowed clusters")
        await self._check_known(name, clusters)
        check_allowed(name.tenant, clusters, await self._policies.tenants.get(name.tenant))

        def work(record: Record) -> None:
            check_allows_replication(clusters, record.get("replication_clusters") or ())
            record["allowed_clusters"] = list(clusters)

        await self._policies.change_namespace(name, work)

    async def _check_known(self, name: NamespaceName, clusters: Sequence[str]) -> None:
        """Checks that a namespace and clusters exist, and that no two of the clusters are peers.

        :raises NamespaceNotFound: no such namespace
        :raises AuthorizationFailure: a cluster does not exist
        :raises Conflict: two of the clusters are peers
        """
        if not await self._policies.namespaces.exists(name):
            raise NamespaceNotFound("Namespace does not exist")
        for cluster in clusters:
            if not await self._policies.clusters.exists(cluster):
                raise AuthorizationFailure(f"Invalid cluster id: {cluster}")
        await self._policies.clusters.check_peers(clusters)
