"""The broker's answers to what HTTP asks: see :class:`magnetar.http.services.BrokerServices`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from magnetar.broker.admin.all import Admin
from magnetar.broker.admin.partitions import check_room
from magnetar.broker.service import BrokerService
from magnetar.broker.stats.assembled import Wanted, internal_stats_of, stats_of
from magnetar.broker.topics.any_topic import persistent
from magnetar.errors import (
    AlreadyExists,
    MetadataFailure,
    NotAllowed,
    PersistenceFailure,
    PreconditionFailed,
    ServiceNotReady,
    TopicNotFound,
)
from magnetar.http.services import Json, LookupAnswer, MessageIdAnswer, MetricsSnapshot, StatsOptions
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.bundles import Bundles
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.server.broker_metrics import take_snapshot
from magnetar.server.health import HealthCheck
from magnetar.server.storage_report import StorageReport

_MOST_PARTITIONS = 2**31 - 1
"""What Pulsar's records and clients have room for."""


class Services:
    """One broker, seen from outside."""

    def __init__(self, broker: BrokerService, storage: StorageReport) -> None:
        self._broker = broker
        self._storage = storage
        self._admin = Admin(broker)
        self._health = HealthCheck(broker)

    @property
    def admin(self) -> Admin:
        return self._admin

    def is_ready(self) -> bool:
        return self._broker.ready

    async def check_health(self) -> None:
        if not self._broker.ready:
            raise ServiceNotReady("The broker is stopping")
        try:
            await self._health.run()
        except (LedgerError, ManagedLedgerError) as error:
            raise PersistenceFailure(f"Health check failed: {error}") from error
        except MetadataError as error:
            raise MetadataFailure(f"Health check failed: {error}") from error

    def broker_ids(self) -> Sequence[str]:
        return [self._broker.settings.broker_id]

    def leader(self) -> Json:
        # The only broker of its cluster leads it.
        own = self._broker.settings
        return {"brokerId": own.broker_id, "serviceUrl": own.http_url}

    def internal_configuration(self) -> Json:
        url = self._broker.settings.metadata_url
        return {
            "zookeeperServers": url,
            "configurationStoreServers": url,
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": "/ledgers",
        }

    def runtime_settings(self) -> Mapping[str, str]:
        return self._broker.settings.runtime

    async def storage(self, namespace: str | None) -> Json:
        return await self._storage.report(namespace)

    async def clusters(self) -> Sequence[str]:
        return await self._broker.policies.clusters.names()

    async def cluster(self, name: str) -> Json:
        return await self._broker.policies.clusters.get(name)

    async def tenants(self) -> Sequence[str]:
        return await self._broker.policies.tenants.names()

    async def tenant(self, name: str) -> Json:
        return await self._broker.policies.tenants.get(name)

    async def namespaces(self, tenant: str) -> Sequence[str]:
        return await self._broker.policies.namespaces.of_tenant(tenant)

    async def topics(self, namespace: str, *, mode: str, system: bool) -> Sequence[str]:
        return await self._broker.topic_names(namespace, mode=mode, system=system)

    async def partitioned_topics(self, namespace: str, *, persistent_ones: bool) -> Sequence[str]:
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        domain = Domain.PERSISTENT if persistent_ones else Domain.NON_PERSISTENT
        return await self._broker.namespaces.partitioned_topics(name, domain)

    async def lookup(self, topic: str, *, authoritative: bool, listener: str | None) -> LookupAnswer:
        name = self._broker.parse_topic(topic)
        await self._broker.check_lookup(name)
        return LookupAnswer(self._broker.settings.service_url, self._broker.settings.http_url)

    async def bundle(self, topic: str) -> str:
        name = self._broker.parse_topic(topic)
        division = (await self._broker.policies.namespaces.get(name.namespace_name))["bundles"]
        return str(Bundles.parse(division["boundaries"]).of_topic(str(name)))

    async def partitions(self, topic: str, *, create: bool) -> int:
        name = self._broker.parse_topic(topic)
        if create:
            return await self._broker.creation.partitions_or_create(name)
        await self._broker.namespaces.check(name.namespace_name)
        count = await self._broker.namespaces.partitions(name)
        if not count and not await self._broker.creation.exists(name):
            raise TopicNotFound(f"Topic {name} not found")
        return count

    async def create_topic(self, topic: str, properties: Mapping[str, str]) -> None:
        name = self._broker.parse_topic(topic)
        await self._check_free(name)
        if name.partition_index >= 0 and not await self._broker.namespaces.partitions(name.base):
            raise PreconditionFailed(
                f'Can\'t create topic {name.local} with "-partition-" followed by numeric value if there '
                f"isn't a partitioned topic {name.base.local} created."
            )
        await check_room(self._broker, name, 1)
        made = await self._broker.create_topic(name)
        if properties:
            await persistent(made).managed_ledger.set_properties(dict(properties))

    async def _check_free(self, name: TopicName) -> None:
        await self._broker.namespaces.check(name.namespace_name)
        if await self._broker.namespaces.partitions(name) or await self._broker.creation.exists(name):
            raise AlreadyExists("This topic already exists")

    async def topic_stats(self, topic: str, options: StatsOptions) -> Json:
        found = await self._admin.topics.existing(topic)
        wanted = Wanted(
            backlog_size=options.subscription_backlog_size,
            earliest_time=options.earliest_time_in_backlog,
            publishers=not options.exclude_publishers,
            consumers=not options.exclude_consumers,
        )
        return await stats_of(found, self._broker.settings.broker_id, wanted)

    async def internal_stats(self, topic: str, *, metadata: bool) -> Json:
        found = await self._admin.topics.existing(topic)
        return await internal_stats_of(found, self._broker.schemas.storage, metadata=metadata)

    async def _each_partition(self, topic: str) -> list[TopicName]:
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        count = await self._broker.namespaces.partitions(name)
        return [name.partition(index) for index in range(count)] if count else [name]

    async def unload(self, topic: str) -> None:
        for name in await self._each_partition(topic):
            loaded = self._broker.topics.get(str(name))
            if loaded is not None:
                await self._broker.unload_topic(loaded)
            elif not await self._broker.creation.exists(name):
                raise TopicNotFound(f"Topic {name} not found")

    async def terminate(self, topic: str) -> MessageIdAnswer:
        name = self._broker.parse_topic(topic)
        if await self._broker.namespaces.partitions(name):
            raise NotAllowed("Termination of a partitioned topic is not allowed")
        position = await (await self._admin.topics.persistent(topic)).terminate()
        return MessageIdAnswer(position[0], position[1], name.partition_index)

    async def metrics(self) -> MetricsSnapshot:
        found = await take_snapshot(self._broker)
        return replace(found, extra={**found.extra, **self._storage.metrics()})
