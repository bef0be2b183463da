"""Administration of brokers: which are live, what they serve, lookups, and load balancing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from magnetar.broker.load.cluster_load import Quotas, ResourceQuota
from magnetar.broker.load.reports import BrokerReport
from magnetar.broker.ownership.contract import Asked, Owner
from magnetar.broker.service import BrokerService
from magnetar.broker.stats.assembled import StatsSelection, stats_of
from magnetar.errors import (
    Conflict,
    InvalidRequest,
    NamespaceNotFound,
    NotFound,
    NotSupported,
    PreconditionFailed,
    ServedElsewhere,
    ServiceNotReady,
    TopicNotFound,
)
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MetadataError
from magnetar.naming.bundles import BundleRange
from magnetar.naming.name_rules import InvalidName


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The answer to a lookup: the broker that serves a topic."""

    broker_url: str | None
    http_url: str | None
    broker_url_tls: str | None = None
    http_url_tls: str | None = None
    redirect: bool = False
    """Whether the client is to repeat the lookup at another broker, ``http_url``."""
    authoritative: bool = True
    """Whether the broker at ``http_url`` may take ownership of the topic's bundle."""


def elsewhere(reason: str, owner: Owner, without: frozenset[str] = frozenset()) -> ServedElsewhere:
    """Returns the exception that redirects a request to ``owner``.

    :param without: names of query parameters to leave out of the URL, because this broker has applied them
    """
    told = owner.addresses
    return ServedElsewhere(
        reason, told.http, told.http_tls, authoritative=owner.authoritative, without=without
    )


class BrokerAdmin:
    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker

    def ids(self) -> Sequence[str]:
        """Returns ``host:port`` of every live broker."""
        beside = self._broker.beside
        return [self._broker.settings.broker_id] if beside is None else list(beside.brokers.all)

    def leader(self) -> Mapping[str, str]:
        """Returns the id and address of the leader of the cluster; a standalone broker is its own leader.

        :raises NotFound: the cluster has no leader now
        """
        own, beside = self._broker.settings, self._broker.beside
        if beside is None:
            return {"brokerId": own.broker_id, "serviceUrl": own.http_url}
        found = beside.leadership.leader()
        if found is None:
            raise NotFound("Couldn't find leader broker")
        told = found.addresses
        return {"brokerId": found.broker_id, "serviceUrl": told.http or told.http_tls or ""}

    def owned(self, broker_id: str) -> Mapping[str, Mapping[str, object]]:
        """Returns ``NamespaceOwnershipStatus`` of each bundle that a broker owns, by bundle.

        :raises NotFound: no such broker
        :raises ServedElsewhere: the id names another broker, which must be asked
        """
        self.check_broker(broker_id)
        bundles = sorted(map(str, self._broker.ownership.held()))
        return {
            name: {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
            for name in bundles
        }

    def unload_slowly(self, per_second: int) -> None:
        """Limits how many bundles per second the broker unloads when it stops; 0: no limit.

        :raises PreconditionFailed: ``per_second`` is below 0
        """
        if per_second < 0:
            raise PreconditionFailed(f"maxConcurrentUnloadPerSec must be 0 or more, not {per_second}")
        self._broker.topics.unloads.most_per_second = per_second

    def check_broker(self, broker_id: str) -> None:
        """Checks that ``broker_id`` is the id of this broker.

        :raises NotFound: no live broker has the id
        :raises ServedElsewhere: the id names another broker
        """
        beside = self._broker.beside
        if broker_id == self._broker.settings.broker_id:
            return
        found = beside.brokers.get(broker_id) if beside is not None else None
        if found is None:
            raise NotFound(f"Broker {broker_id} not found")
        told = found.addresses
        raise ServedElsewhere(
            f"Only {broker_id} answers this request", told.http, told.http_tls, authoritative=False
        )

    def internal_configuration(self) -> Mapping[str, str]:
        """Returns ``InternalConfigurationData``: where the cluster keeps its metadata."""
        url = self._broker.settings.metadata_url
        return {
            "zookeeperServers": url,
            "configurationStoreServers": url,
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": "/ledgers",
        }

    def dynamic_names(self) -> Sequence[str]:
        """Returns the names of the settings that can be changed while the broker runs."""
        return self._broker.dynamic.names

    async def dynamic_values(self) -> Mapping[str, str]:
        """Returns the dynamic settings that were changed.

        :raises MetadataFailure: the stored record is damaged
        """
        return await self._broker.dynamic.values()

    async def set_dynamic(self, name: str, value: str) -> None:
        """Changes a setting of the running brokers, and of brokers that start later.

        :raises PreconditionFailed: the setting cannot be changed while the broker runs
        """
        await self._broker.dynamic.set(name, value)

    async def delete_dynamic(self, name: str) -> None:
        """Removes the dynamic value of a setting; the value in the configuration file takes effect again.

        :raises PreconditionFailed: the setting cannot be changed while the broker runs
        """
        await self._broker.dynamic.delete(name)

    async def lookup(
        self, topic: str, listener: str | None = None, *, authoritative: bool = False
    ) -> LookupAnswer:
        """Looks up the owner of a topic; the topic need not exist.

        :param listener: name of the advertised listener whose addresses to return
        :param authoritative: whether the leader has chosen this broker as the owner
        :raises NamespaceNotFound: no such namespace
        """
        owner = await self._broker.lookups.look_up(
            self._broker.parse_topic(topic), authoritative=authoritative
        )
        told = owner.addresses_of(listener)
        # Listeners often have addresses of the binary protocol only, and a client redirected here uses HTTP.
        web = told if told.http or told.http_tls else owner.addresses
        return LookupAnswer(
            told.binary,
            web.http,
            told.binary_tls,
            web.http_tls,
            redirect=not owner.settled,
            authoritative=owner.authoritative,
        )

    async def check_cluster(self, topic: str) -> None:
        """Checks that the local cluster serves a topic.

        :raises NotInThisCluster: the local cluster does not serve the topics of that namespace
        """
        try:
            await self._broker.serving_clusters.check(self._broker.parse_topic(topic).namespace_name)
        except NamespaceNotFound:
            # The handler of the request reports the missing namespace in its own words.
            return

    async def check_here(self, topic: str, *, authoritative: bool = False) -> None:
        """Checks that this broker serves a topic, for requests that only its owner can answer.

        :param authoritative: whether the leader has chosen this broker as the owner
        :raises ServedElsewhere: another broker serves the topic
        """
        name = self._broker.parse_topic(topic)
        if await self._broker.namespaces.partitions(name):
            # A partitioned topic has no owner: each partition has one.
            return
        try:
            owner = await self._broker.lookups.owner_of(name, Asked.TAKE if authoritative else Asked.PLACE)
        except TopicNotFound:
            # The handler of the request reports the missing namespace in its own words.
            return
        if not owner.here:
            raise elsewhere(f"{name} is served by {owner.broker_id}", owner)

    async def bundle(self, topic: str) -> str:
        """Returns the bundle of a topic, ``0xSTART_0xEND``; the topic need not exist.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        return str((await self._broker.bundles.of_topic(name)).range)


class LoadAdmin:
    """Administration of load balancing: load reports, bundle quotas, and explanations of bundle placement."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._quotas = Quotas(broker.metadata)

    def report(self) -> Mapping[str, object] | None:
        """Returns the last measured ``LocalBrokerData``; None if the broker is standalone."""
        desk = self._broker.load
        return None if desk is None else desk.reporter.latest.to_json()

    def brokers(self) -> list[dict[str, Any]]:
        """Returns every live broker with its last load report (usage in percent).

        A standalone broker returns only itself, without a report. ``url`` and ``urlTls`` are the addresses of
        the broker's HTTP interface. ``magnetar`` is true if the broker is not a broker of Apache Pulsar.
        """
        beside, own = self._broker.beside, self._broker.settings
        if beside is None:
            return [{"broker": own.broker_id, "here": True, "leads": True, "magnetar": True}]
        leader = beside.leadership.leader()
        led_by = None if leader is None else leader.broker_id
        rows = []
        for broker_id, record in beside.brokers.all.items():
            report = BrokerReport.from_json(record.raw)
            rows.append(
                {
                    "broker": broker_id,
                    "here": broker_id == own.broker_id,
                    "leads": broker_id == led_by,
                    "magnetar": record.is_magnetar,
                    "url": record.addresses.http,
                    "urlTls": record.addresses.http_tls,
                    "version": record.version,
                    "updated": report.updated_ms,
                    "usage": {name: each.percent for name, each in report.resources.named().items()},
                    "bundles": len(report.bundles),
                    **report.total.to_json(),
                }
            )
        return rows

    async def topics(self) -> Mapping[str, object]:
        """Returns ``TopicStats`` of all topics that this broker has loaded, by namespace, bundle, domain and
        name.
        """
        found: dict[str, Any] = {}
        own, wanted = self._broker.settings.broker_id, StatsSelection(backlog_size=False)
        for topic in list(self._broker.topics.loaded.values()):
            bundle = await self._broker.bundles.of_topic(topic.name)
            of_bundle = found.setdefault(str(bundle.namespace), {}).setdefault(str(bundle.range), {})
            domain = "persistent" if topic.name.persistent else "non-persistent"
            of_bundle.setdefault(domain, {})[topic.full_name] = await stats_of(
                self._broker.io, topic, own, wanted
            )
        return found

    def metrics(self) -> list[dict[str, object]]:
        """Returns ``Metrics`` of load balancing with Pulsar's names; usage in percent."""
        desk = self._broker.load
        if desk is None:
            return []
        usage = desk.reporter.latest.resources.named()
        done = desk.manager.done
        of_broker = {
            "brk_lb_bandwidth_in_usage": usage["bandwidthIn"].percent,
            "brk_lb_bandwidth_out_usage": usage["bandwidthOut"].percent,
            "brk_lb_cpu_usage": usage["cpu"].percent,
            "brk_lb_directMemory_usage": usage["directMemory"].percent,
            "brk_lb_memory_usage": usage["memory"].percent,
        }
        moved = {
            "brk_lb_unload_broker_total": done.relieved_brokers,
            "brk_lb_unload_bundle_total": done.moved_bundles,
        }
        own = self._broker.settings.broker_id.rpartition(":")[0]
        return [
            {"metrics": of_broker, "dimensions": {"broker": own, "metric": "loadBalancing"}},
            {"metrics": moved, "dimensions": {"metric": "bundleUnloading"}},
            {
                "metrics": {"brk_lb_bundles_split_total": done.splits},
                "dimensions": {"metric": "bundlesSplit"},
            },
        ]

    def availability(self, namespace: str) -> NoReturn:
        """Always raises: only Pulsar's ``SimpleLoadManagerImpl`` counts the resources left for a namespace.

        :raises InvalidName: the text is not the name of a namespace
        :raises Conflict: always, because this load manager does not count resources
        """
        self._broker.parse_namespace(namespace)
        raise Conflict("ModularLoadManagerImpl does not support this operation")

    async def default_quota(self) -> Mapping[str, object]:
        """Returns ``ResourceQuota``: the expected load of bundles that have no quota of their own.

        :raises MetadataFailure: the record is not valid JSON
        """
        return (await self._quotas.default()).to_json()

    async def set_default_quota(self, quota: Mapping[str, object]) -> None:
        """Sets ``ResourceQuota``: the expected load of bundles that have no quota of their own.

        :raises InvalidRequest: a number is missing, invalid or negative
        """
        await self._quotas.set_default(ResourceQuota.checked(quota))

    async def quota(self, namespace: str, bundle: str) -> Mapping[str, object]:
        """Returns the expected load of a bundle.

        :raises NamespaceNotFound: no such namespace
        :raises NotFound: no such bundle
        """
        return (await self._quotas.of(await self._bundle(namespace, bundle))).to_json()

    async def set_quota(self, namespace: str, bundle: str, quota: Mapping[str, object]) -> None:
        """Sets the expected load of a bundle that has no measured load yet; raises as :meth:`quota` does.

        :raises InvalidRequest: a number is missing, invalid or negative
        """
        checked = ResourceQuota.checked(quota)
        await self._quotas.set(await self._bundle(namespace, bundle), checked)

    async def reset_quota(self, namespace: str, bundle: str) -> None:
        """Removes the expected load that was set for a bundle; raises as :meth:`quota` does."""
        await self._quotas.reset(await self._bundle(namespace, bundle))

    async def explain_placement(self, namespace: str, bundle: str) -> Mapping[str, object]:
        """Explains why a bundle is on its broker, and when the leader would move the bundle.

        :raises NamespaceNotFound: no such namespace
        :raises NotFound: no such bundle
        :raises NotSupported: the broker is standalone
        :raises ServedElsewhere: another broker is the leader, and must be asked
        :raises ServiceNotReady: the policies or reports cannot be read now
        """
        name = await self._bundle(namespace, bundle)
        desk, beside = self._broker.load, self._broker.beside
        if desk is None or beside is None:
            raise NotSupported(
                "This broker is the only one: it serves all bundles, and there is no broker to move them to"
            )
        leader = beside.leadership.leader()
        if not beside.leadership.is_leader and leader is not None:
            told = leader.addresses
            raise ServedElsewhere(
                f"{leader.broker_id} is the leader of the cluster", told.http, told.http_tls
            )
        try:
            await desk.manager.take_reports()
            placer = await desk.manager.placer(name, pure=True)
        except MetadataError as error:
            raise ServiceNotReady(f"Policies cannot be read at present: {error}") from error
        # Imported here, as a standalone broker never needs it.
        from magnetar.broker.load.explaining import explain

        now = self._broker.io.clock.monotonic()
        return explain(placer, name, desk.manager.kinds_of(name), now).to_json()

    async def _bundle(self, namespace: str, bundle: str) -> str:
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        try:
            wanted = BundleRange.parse(bundle)
        except InvalidName as error:
            raise InvalidRequest(str(error)) from error
        if wanted not in list(await self._broker.bundles.of_namespace(name)):
            raise NotFound(f"Bundle {bundle} not found in namespace {name}")
        return f"{name}/{wanted}"
