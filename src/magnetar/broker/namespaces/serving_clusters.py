"""Whether the local cluster serves the topics of a namespace (Pulsar's PIP-321)."""

from __future__ import annotations

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import PolicyStore
from magnetar.errors import NamespaceNotFound, NotInThisCluster, PreconditionFailed, ServedElsewhere
from magnetar.naming.heartbeats import heartbeat_of
from magnetar.naming.namespace_name import NamespaceName


def lists(policies: EffectivePolicies, cluster: str) -> bool:
    """Whether a namespace lists a cluster as one that serves its topics.

    :param policies: those of the namespace, without any that a topic has of its own
    """
    return cluster in policies.replication_clusters or cluster in policies.allowed_clusters


class ServingClusters:
    """A namespace that does not list the local cluster is refused service here; its data stays."""

    def __init__(self, policies: PolicyStore, cluster: str) -> None:
        """:param cluster: the local one, by its name"""
        self._policies = policies
        self._cluster = cluster

    async def include(self, namespace: NamespaceName) -> bool:
        """Whether the local cluster serves the topics of a namespace.

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: its record cannot be read
        """
        if not namespace.is_global or heartbeat_of(namespace) is not None:
            return True
        return lists(await self._policies.of_namespace(namespace), self._cluster)

    async def still_include(self, namespace: NamespaceName) -> bool:
        """Like :meth:`include`; a namespace that is gone leaves its topics to whoever deletes it."""
        try:
            return await self.include(namespace)
        except NamespaceNotFound:
            return True

    async def at(self, cluster: str) -> ServedElsewhere:
        """What sends an administrator to another cluster.

        :raises ClusterNotFound: there is no record of that cluster
        :raises PreconditionFailed: the record has no URL for administration
        """
        record = await self._policies.clusters.get(cluster)
        http, https = record.get("serviceUrl"), record.get("serviceUrlTls")
        if not http and not https:
            raise PreconditionFailed(
                f"The record of cluster {cluster} has neither serviceUrl nor serviceUrlTls: "
                "set one with pulsar-admin clusters update"
            )
        return ServedElsewhere(f"Cluster {cluster} does that", http, https, authoritative=False)

    async def check(self, namespace: NamespaceName) -> None:
        """:raises NotInThisCluster: the namespace does not list the local cluster

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: its record cannot be read
        """
        if await self.include(namespace):
            return
        clusters = (await self._policies.of_namespace(namespace)).replication_clusters
        raise NotInThisCluster(
            "Namespace missing local cluster name in clusters list: "
            f"local_cluster={self._cluster} ns={namespace} clusters=[{', '.join(clusters)}]"
        )
