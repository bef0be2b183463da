"""Administration of load balancing: reports of brokers, quotas of bundles, explanations of placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from magnetar.broker.load.quotas import Quotas, ResourceQuota
from magnetar.broker.load.reports import BrokerReport
from magnetar.broker.service import BrokerService
from magnetar.broker.stats.assembled import StatsSelection, stats_of
from magnetar.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    NotSupported,
    ServedElsewhere,
    ServiceNotReady,
)
from magnetar.metadata.interface import MetadataError
from magnetar.naming.bundles import BundleRange
from magnetar.naming.errors import InvalidName


class LoadAdmin:
    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._quotas = Quotas(broker.metadata)

    def report(self) -> Mapping[str, Any] | None:
        """Returns ``LocalBrokerData`` as last measured; None: the broker is standalone."""
        desk = self._broker.load
        return None if desk is None else desk.reporter.latest.to_json()

    def brokers(self) -> list[dict[str, Any]]:
        """Returns every live broker with its last load report, usage in percent; none if standalone.

        ``url`` and ``urlTls`` are those of its HTTP interface; ``magnetar``: it is not a broker of Apache
        Pulsar.
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

    async def topics(self) -> Mapping[str, Any]:
        """Returns ``TopicStats`` of all topics loaded here, by namespace, bundle, domain and name."""
        found: dict[str, Any] = {}
        own, wanted = self._broker.settings.broker_id, StatsSelection(backlog_size=False)
        for topic in list(self._broker.topics.values()):
            bundle = await self._broker.bundles.of_topic(topic.name)
            of_bundle = found.setdefault(str(bundle.namespace), {}).setdefault(str(bundle.range), {})
            domain = "persistent" if topic.name.persistent else "non-persistent"
            of_bundle.setdefault(domain, {})[topic.full_name] = await stats_of(
                self._broker.io, topic, own, wanted
            )
        return found

    def metrics(self) -> list[dict[str, Any]]:
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
        :raises Conflict: this load manager does not count them
        """
        self._broker.parse_namespace(namespace)
        raise Conflict("ModularLoadManagerImpl does not support this operation")

    async def default_quota(self) -> Mapping[str, Any]:
        """Returns ``ResourceQuota``.

        :raises MetadataFailure: the record is not valid JSON
        """
        return (await self._quotas.default()).to_json()

    async def set_default_quota(self, quota: Mapping[str, Any]) -> None:
        """:raises InvalidRequest: a number is missing, invalid or negative"""
        await self._quotas.set_default(ResourceQuota.checked(quota))

    async def quota(self, namespace: str, bundle: str) -> Mapping[str, Any]:
        """:raises NamespaceNotFound: no such namespace

        :raises NotFound: no such bundle
        """
        return (await self._quotas.of(await self._bundle(namespace, bundle))).to_json()

    async def set_quota(self, namespace: str, bundle: str, quota: Mapping[str, Any]) -> None:
        """Sets the expected load of a bundle that has no measured load yet; raises as :meth:`quota` does.

        :raises InvalidRequest: a number is missing, invalid or negative
        """
        checked = ResourceQuota.checked(quota)
        await self._quotas.set(await self._bundle(namespace, bundle), checked)

    async def reset_quota(self, namespace: str, bundle: str) -> None:
        """Raises as :meth:`quota` does."""
        await self._quotas.reset(await self._bundle(namespace, bundle))

    async def explain_placement(self, namespace: str, bundle: str) -> Mapping[str, Any]:
        """Explains why a bundle is where it is, and what would move it.

        :raises NamespaceNotFound: no such namespace
        :raises NotFound: no such bundle
        :raises NotSupported: the broker is standalone
        :raises ServedElsewhere: another broker is the leader, and has to be asked
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
