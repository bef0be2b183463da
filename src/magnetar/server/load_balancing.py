"""Assembles the load manager of a broker: its own reports, and its work as the leader."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar import __version__
from magnetar.broker.load.candidates import KeptRules
from magnetar.broker.load.cluster_load import Quotas
from magnetar.broker.load.manager import Histories, LoadManager
from magnetar.broker.load.reporter import Host, Meter, Reporter, bundle_stats
from magnetar.broker.load.reports import BundleStats, Identity
from magnetar.broker.load.settings import LoadDesk
from magnetar.broker.ownership.brokers import VERSION_PREFIX, LiveBrokers, listeners_json
from magnetar.broker.ownership.leader import Leadership
from magnetar.broker.ownership.peers import PeerAdmin
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.io.interfaces import Io
from magnetar.io.wheel import TimerWheel
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.namespace_name import NamespaceName
from magnetar.server.load_settings import LoadOptions
from magnetar.server.registration import Registration


class LoadBalancing:
    """Created before the broker, because the broker's first record already contains its load."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        metadata: MetadataStore,
        options: LoadOptions,
        admin: PeerAdmin,
        cluster: str,
        host: Host,
    ) -> None:
        """:param host: the machine whose usage the load reports give"""
        self._io = io
        self._wheel = wheel
        self._metadata = metadata
        self._options = options
        self._admin = admin
        self._cluster = cluster
        self._started_ms = io.clock.wall_ms()
        self._identity = Identity()
        self._served: BrokerService | None = None
        self.registration = Registration(io.loop, io.clock, metadata, self._content)
        self.reporter = Reporter(
            io,
            wheel,
            Meter(io.clock, host),
            lambda: options.now,
            lambda: self._identity,
            self._stats,
            self.registration.write,
        )
        self._managers: list[LoadManager] = []

    def placement(self, brokers: LiveBrokers, leadership: Leadership) -> LoadManager:
        manager = LoadManager(
            self._io,
            self._wheel,
            brokers,
            leadership,
            self._admin,
            KeptRules(self._metadata, self._cluster),
            Histories(self._metadata, Quotas(self._metadata)),
            lambda: self._options.now,
            leadership.own_id,
        )
        self._managers.append(manager)
        return manager

    def desk(self) -> LoadDesk:
        """Available as soon as the broker's ownership exists."""
        return LoadDesk(self.manager, self.reporter)

    @property
    def manager(self) -> LoadManager:
        """The newest manager; available as soon as the broker exists."""
        return self._managers[-1]

    def start(self, served: BrokerService) -> None:
        """Starts reporting the load of ``served``, and balancing load while this broker leads."""
        self._served = served
        served.unloads.patience = lambda: self._options.now.unload_seconds

        async def count(namespace: NamespaceName) -> int:
            return len(await served.bundles.of_namespace(namespace))

        self.manager.start(count)
        self.reporter.start()

    def stop(self) -> None:
        """Stops, also after a failed start."""
        self.reporter.stop()
        for manager in self._managers:
            manager.stop()

    def _content(self, broker: BrokerSettings) -> Mapping[str, object]:
        urls = {
            "webServiceUrl": broker.http_url,
            "webServiceUrlTls": broker.http_url_tls,
            "pulsarServiceUrl": broker.service_url,
            "pulsarServiceUrlTls": broker.service_url_tls,
        }
        self._identity = Identity(
            {key: url for key, url in urls.items() if url},
            broker.persistent_topics,
            broker.non_persistent_topics,
            f"{VERSION_PREFIX}{__version__}",
            listeners=listeners_json(broker.listeners),
            started_ms=self._started_ms,
        )
        return self.reporter.first_record()

    async def _stats(self) -> Mapping[str, BundleStats]:
        return {} if self._served is None else await bundle_stats(self._served)
