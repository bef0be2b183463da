"""Migration of clients to another cluster: when, where to, and what is created for them there (PIP-188)."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from magnetar.broker.flow.connection import Assigned
from magnetar.broker.policies.records import CLUSTERS, policies_path
from magnetar.broker.policies.store import PolicyStore
from magnetar.broker.replication.clusters import Ask, Reach
from magnetar.broker.replication.settings import ReplicationSettings
from magnetar.broker.subscriptions.cursor_kinds import SUBSCRIPTION
from magnetar.broker.topics.any_topic import AnyTopic, move
from magnetar.errors import BrokerError, NotFound
from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.heartbeats import heartbeat_of
from magnetar.naming.topic_name import TopicName

log = logging.getLogger(__name__)

_SYSTEM = "pulsar/system"
_EARLIEST = {"ledgerId": -1, "entryId": -1}


class Migration:
    """Redirects the clients of topics to the cluster that this cluster's ``ClusterPolicies`` name."""

    def __init__(
        self,
        loop: Loop,
        metadata: MetadataStore,
        policies: PolicyStore,
        partitions: Callable[[TopicName], Awaitable[int]],
        settings: Callable[[], ReplicationSettings],
        reach: Reach,
    ) -> None:
        """:param partitions: returns the number of a topic's partitions; 0 for a topic without any"""
        self._loop = loop
        self._policies = policies
        self._partitions = partitions
        self._settings = settings
        self._reach = reach
        self._known = MetadataCache(metadata, CLUSTERS, self._read, most=1)
        self._moving: set[AnyTopic] = set()

    async def check(self, topic: AnyTopic) -> None:
        """Migrates a topic if its policies say so; a failure is retried at the next check or load."""
        if topic.closing or topic.fenced or topic in self._moving:
            return
        self._moving.add(topic)
        try:
            await self._check(topic)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            log.warning(
                "cannot migrate the topic to the other cluster",
                extra={"topic": topic.full_name, "error": str(error) or type(error).__name__},
            )
        finally:
            self._moving.discard(topic)

    async def _check(self, topic: AnyTopic) -> None:
        url = await self._url_of(topic.name)
        if url is None:
            return
        there = Assigned(url.get("brokerServiceUrl") or "", url.get("brokerServiceUrlTls") or "")
        if topic.moved is not None:
            # The topic is terminated here for good: only the address may change.
            topic.moved = there
            return
        if self._settings().makes_resources_of_moved:
            await self._make_there(topic, url)
        await move(topic, there)
        log.info("topic migrated to another cluster", extra={"topic": topic.full_name, "url": any_of(there)})

    async def _url_of(self, name: TopicName) -> Mapping[str, Any] | None:
        """Returns the ``ClusterUrl`` that clients shall go to; None: they stay."""
        namespace = name.namespace_name
        if name.reserved or str(namespace) == _SYSTEM or heartbeat_of(namespace) is not None:
            return None
        policies = await self._known.get(policies_path(self._settings().cluster))
        url: Mapping[str, Any] = policies.get("migratedClusterUrl") or {}
        if not (url.get("brokerServiceUrl") or url.get("brokerServiceUrlTls")):
            return None
        if policies.get("migrated") or (await self._policies.namespaces.local(namespace)).get("migrated"):
            return url
        return None

    async def _read(self, _path: str) -> Mapping[str, Any]:
        try:
            return await self._policies.clusters.policies(self._settings().cluster)
        except NotFound:
            return {}

    # Resources in the other cluster

    async def _make_there(self, topic: AnyTopic, url: Mapping[str, Any]) -> None:
        """Creates the tenant, the namespace, the topic and its subscriptions, which start at the first
        message.

        :raises BrokerError: the other cluster does not answer, or refuses a request
        """
        way = self._reach(f"{self._settings().cluster} (migratedClusterUrl)", url)
        try:
            name = topic.name
            await self._make_namespace(way.ask, name)
            count = await self._partitions(name.base) if name.partition_index >= 0 else 0
            if count:
                path, query = f"{name.base.admin_path}/partitions", {"createLocalTopicOnly": "true"}
                await _make(way.ask, path, count, query)
            elif name.persistent:
                await _make(way.ask, name.admin_path)
            for subscription in list(topic.subscriptions.values()) if name.persistent else ():
                if subscription.kind is SUBSCRIPTION and subscription.durable:
                    path = f"{name.admin_path}/subscription/{quote(subscription.name, '')}"
                    await _make(way.ask, path, _EARLIEST)
        finally:
            await way.client.close()

    async def _make_namespace(self, ask: Ask, name: TopicName) -> None:
        namespace = name.namespace_name
        tenant = await self._policies.tenants.get(namespace.tenant)
        # The clusters that a tenant may use have other names there.
        found: Any = await ask("GET", "/admin/v2/clusters", {}, b"")
        try:
            clusters = found.json()
        except ValueError as error:
            raise BrokerError(f"the other cluster did not answer with a list of clusters: {error}") from error
        own = {"adminRoles": list(tenant.get("adminRoles") or ()), "allowedClusters": clusters}
        await _make(ask, f"/admin/v2/tenants/{quote(namespace.tenant, '')}", own)
        bundles = (await self._policies.namespaces.get(namespace)).get("bundles") or {}
        wanted = {"bundles": {"numBundles": bundles["numBundles"]}} if bundles.get("numBundles") else {}
        await _make(ask, f"/admin/v2/namespaces/{namespace}", wanted)


def any_of(there: Assigned) -> str:
    """Returns the address for log entries and answers."""
    return there.url or there.url_tls


async def _make(ask: Ask, path: str, body: object = None, query: Mapping[str, str] | None = None) -> None:
    """Creates a resource unless it exists."""
    try:
        await ask("PUT", path, query or {}, b"" if body is None else json.dumps(body).encode())
    except BrokerError as error:
        if error.http_status != HTTPStatus.CONFLICT:
            raise
