"""Administration of the clusters of a namespace: which may serve it, and which it is replicated to."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.policies.records import Record
from magnetar.broker.policies.rules import (
    check_allowed,
    check_allows_replication,
    check_within_namespace,
)
from magnetar.broker.service import BrokerService
from magnetar.errors import AuthorizationFailure, NamespaceNotFound, PreconditionFailed
from magnetar.io.waiting import finished
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

log = logging.getLogger(__name__)


class NamespaceClusterAdmin:
    """Namespaces are given as ``tenant/namespace`` or ``tenant/cluster/namespace``."""

    def __init__(self, broker: BrokerService, bundles: BundleAdmin) -> None:
        self._broker = broker
        self._bundles = bundles
        self._policies = broker.policies

    async def set_replicated(self, namespace: str, clusters: Sequence[str]) -> None:
        """Sets the clusters that the topics of a namespace are replicated to.

        If neither this list nor ``allowed_clusters`` names the local cluster, all local topics of the
        namespace are deleted with their data, as in Pulsar. Nothing else deletes them: neither a list that
        another cluster has written to a shared configuration store, nor another ``clusterName`` in the
        configuration of a broker.

        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: the list is empty or contains ``global``, or the namespace has a cluster
            in its name
        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        :raises Conflict: two of them are peers
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

        The records of partitioned topics stay, because clusters with a shared configuration store share them.
        """
        broker = self._broker
        for loading in broker.loading_in(name):
            await finished(broker.io.loop, loading)
        if broker.beside is not None:
            # Brokers do not load the topics again, because the namespace no longer lists the local cluster.
            await self._bundles.unload_all(str(name))
        for topic in await broker.namespaces.persistent_topics(name):
            if await broker.serving_clusters.include(name):
                log.warning("namespace lists the local cluster again", extra={"namespace": str(name)})
                break
            log.warning(
                "topic deleted: the clusters of its namespace no longer include the local cluster",
                extra={"topic": topic, "cluster": broker.settings.cluster},
            )
            await broker.delete_stored_topic(TopicName.parse(topic))
        if self._policies.topics is not None:
            self._policies.topics.forget(name)

    async def set_allowed(self, namespace: str, clusters: Sequence[str]) -> None:
        """Sets the clusters that may serve the topics of a namespace; an empty list: those it is replicated
        to.

        Topics that the local cluster may no longer serve are closed, and keep their data.

        :raises NamespaceNotFound: no such namespace
        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        :raises Conflict: two of them are peers
        :raises InvalidRequest: a cluster that the namespace is replicated to is missing
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
        """:raises NamespaceNotFound: no such namespace

        :raises AuthorizationFailure: a cluster does not exist
        :raises Conflict: two of them are peers
        """
        if not await self._policies.namespaces.exists(name):
            raise NamespaceNotFound("Namespace does not exist")
        for cluster in clusters:
            if not await self._policies.clusters.exists(cluster):
                raise AuthorizationFailure(f"Invalid cluster id: {cluster}")
        await self._policies.clusters.check_peers(clusters)
