"""Which clusters serve the topics of a namespace, and which it is replicated to."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.policies.records import Record
from magnetar.broker.policies.rules import (
    check_allowed,
    check_allows_replication,
    check_has_own,
    check_within_namespace,
)
from magnetar.broker.service import BrokerService
from magnetar.errors import AuthorizationFailure, NamespaceNotFound, PreconditionFailed
from magnetar.naming.namespace_name import NamespaceName


class NamespaceClusterAdmin:
    """Namespaces are given as ``tenant/namespace`` or ``tenant/cluster/namespace``."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._policies = broker.policies

    async def set_replicated(self, namespace: str, clusters: Sequence[str]) -> None:
        """Sets the clusters that the topics of a namespace are replicated to.

        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: none is named, or ``global``
        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        :raises InvalidRequest: a cluster is not among the allowed clusters of the namespace
        """
        name = self._broker.parse_namespace(namespace)
        if not clusters:
            raise PreconditionFailed("ClusterIds should not be null or empty")
        if "global" in clusters:
            raise PreconditionFailed("Cannot specify global in the list of replication clusters")
        await self._check_known(name, clusters)

        def work(record: Record) -> None:
            allowed = record.get("allowed_clusters") or ()
            check_within_namespace(str(name), clusters, allowed)
            check_has_own(clusters, allowed, self._broker.settings.cluster)
            record["replication_clusters"] = list(clusters)

        await self._policies.change_namespace(name, work)

    async def set_allowed(self, namespace: str, clusters: Sequence[str]) -> None:
        """Sets the clusters that may serve the topics of a namespace; none: those it is replicated to.

        Topics that the local cluster may not serve any more are closed, and keep their data.

        :raises NamespaceNotFound: no such namespace
        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        :raises InvalidRequest: a cluster that the namespace is replicated to is missing
        """
        name = self._broker.parse_namespace(namespace)
        if "global" in clusters:
            raise AuthorizationFailure("Cannot specify global in the list of allowed clusters")
        await self._check_known(name, clusters)

        def work(record: Record) -> None:
            check_allows_replication(clusters, record.get("replication_clusters") or ())
            record["allowed_clusters"] = list(clusters)

        await self._policies.change_namespace(name, work)

    async def _check_known(self, name: NamespaceName, clusters: Sequence[str]) -> None:
        """:raises NamespaceNotFound: no such namespace

        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        """
        if not await self._policies.namespaces.exists(name):
            raise NamespaceNotFound("Namespace does not exist")
        for cluster in clusters:
            if not await self._policies.clusters.exists(cluster):
                raise AuthorizationFailure(f"Invalid cluster id: {cluster}")
        check_allowed(name.tenant, clusters, await self._policies.tenants.get(name.tenant))
