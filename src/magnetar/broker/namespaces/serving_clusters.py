"""The clusters that serve a namespace's topics: the clusters that the namespace lists (PIP-321). A cluster
that is not listed redirects clients to a peer cluster that is listed.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.records import PEERS
from magnetar.broker.policies.store import PolicyStore
from magnetar.broker.policies.values import text, texts
from magnetar.errors import (
    ClusterNotFound,
    NamespaceNotFound,
    NotInThisCluster,
    PreconditionFailed,
    ServedElsewhere,
)
from magnetar.naming.namespace_name import NamespaceName, heartbeat_of


class OtherCluster(NamedTuple):
    """The addresses of another cluster for clients and administrators; an address that it does not have is
    None."""

    name: str
    binary: str | None
    binary_tls: str | None
    http: str | None
    http_tls: str | None

    def redirect(self) -> ServedElsewhere:
        """Returns the exception that redirects administrators to the cluster.

        :raises PreconditionFailed: the record of the cluster has no URL for administration
        """
        if not self.http and not self.http_tls:
            raise PreconditionFailed(
                f"The record of cluster {self.name} has neither serviceUrl nor serviceUrlTls: "
                "set one with pulsar-admin clusters update"
            )
        return ServedElsewhere(
            f"Cluster {self.name} serves the namespace", self.http, self.http_tls, authoritative=False
        )


def lists(policies: EffectivePolicies, cluster: str) -> bool:
    """Whether a namespace lists a cluster as a cluster that serves its topics.

    :param policies: the policies of the namespace, without policies of single topics
    """
    return cluster in policies.replication_clusters or cluster in policies.allowed_clusters


class ServingClusters:
    """Refuses service for namespaces that do not list the local cluster; their data is kept."""

    def __init__(self, policies: PolicyStore, cluster: str) -> None:
        """:param cluster: name of the local cluster"""
        self._policies = policies
        self._cluster = cluster
        self.by_names = False
        """Whether legacy namespaces with a cluster in their names are served only in that cluster. In Pulsar,
        this follows ``authorizationEnabled``."""

    async def include(self, namespace: NamespaceName) -> bool:
        """Whether the local cluster serves the topics of a namespace.

        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: the record of the namespace cannot be read
        """
        if heartbeat_of(namespace) is not None:
            return True
        if not namespace.is_global:
            return not self.by_names or namespace.cluster == self._cluster
        return lists(await self._policies.of_namespace(namespace), self._cluster)

    async def still_include(self, namespace: NamespaceName) -> bool:
        """Like :meth:`include`, but also true for a deleted namespace, because the deletion itself closes the
        topics.
        """
        try:
            return await self.include(namespace)
        except NamespaceNotFound:
            return True

    async def other(self, namespace: NamespaceName) -> OtherCluster | None:
        """Returns the cluster to which clients of a namespace are redirected; None if the local cluster
        serves it.

        For a legacy name, this is the cluster in the name; for any other name, the first of the local
        cluster's peers (``peerClusterNames``) that the namespace lists.

        :raises NotInThisCluster: the namespace lists neither the local cluster nor a peer
        :raises ClusterNotFound: the cluster in the name, or the peer, has no record
        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: a record cannot be read
        """
        if await self.include(namespace):
            return None
        if not namespace.is_global:
            return await self._elsewhere(str(namespace.cluster))
        policies = await self._policies.of_namespace(namespace)
        for peer in await self._peers():
            if lists(policies, peer):
                return await self._elsewhere(peer)
        clusters = ", ".join(policies.replication_clusters)
        raise NotInThisCluster(
            "Namespace missing local cluster name in clusters list: "
            f"local_cluster={self._cluster} ns={namespace} clusters=[{clusters}]"
        )

    async def _peers(self) -> list[str]:
        try:
            record = await self._policies.clusters.get(self._cluster)
        except ClusterNotFound:
            return []
        return list(texts(record.get(PEERS) or []))

    async def _elsewhere(self, cluster: str) -> OtherCluster:
        found = await self.named(cluster)
        try:
            own = await self.named(self._cluster)
        except ClusterNotFound:
            return found
        if found.binary and found.binary == own.binary:
            # The broker was started with another clusterName: clients would be redirected forever.
            raise NotInThisCluster(
                f"The records of cluster {cluster} and of the local cluster {self._cluster} have the same "
                f"brokerServiceUrl {found.binary}"
            )
        return found

    async def named(self, cluster: str) -> OtherCluster:
        """Returns the addresses of another cluster.

        :raises ClusterNotFound: the cluster has no record
        """
        record = await self._policies.clusters.get(cluster)
        fields = ("brokerServiceUrl", "brokerServiceUrlTls", "serviceUrl", "serviceUrlTls")
        return OtherCluster(cluster, *(text(record.get(field) or "") or None for field in fields))

    async def check(self, namespace: NamespaceName) -> None:
        """Checks that the local cluster serves a namespace.

        :raises NotInThisCluster: the namespace lists neither the local cluster nor a peer
        :raises ServedElsewhere: a peer cluster serves the namespace
        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: a record cannot be read
        """
        other = await self.other(namespace)
        if other is not None:
            raise other.redirect()
