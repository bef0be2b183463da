"""The load manager of a broker: settings, the machine's counters, load reports, and the work of the
leader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from magnetar import __version__
from magnetar.broker.load.candidates import KeptRules
from magnetar.broker.load.cluster_load import Quotas
from magnetar.broker.load.manager import PLACEMENTS, SHEDDERS, Histories, LoadManager
from magnetar.broker.load.reporter import Host, HostSample, Meter, Reporter, bundle_stats
from magnetar.broker.load.reports import MODULAR, BundleStats, Identity, Weights
from magnetar.broker.load.settings import (
    LoadDesk,
    LoadSettings,
    ReportSettings,
    ShedderSettings,
    SplitSettings,
)
from magnetar.broker.ownership.brokers import VERSION_PREFIX, Leadership, LiveBrokers, listeners_json
from magnetar.broker.ownership.bundles import DIVISIONS
from magnetar.broker.ownership.peers import PeerAdmin
from magnetar.broker.policies.dynamic import Changeable
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.settings import BrokerSettings
from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import SettingsContradict, attribute_name
from magnetar.config.table import cluster_settings_table
from magnetar.io.interfaces import Io
from magnetar.io.wheel import TimerWheel
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.namespace_name import NamespaceName
from magnetar.server.changing_settings import ChangingSettings, changeable_names
from magnetar.server.membership import Registration

_PACKAGE = MODULAR.rpartition(".")[0]
_MIB = 1 << 20
_BOTH = "AvgShedder"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_IDLE = (3, 4)
"""The columns with idle time in a line of /proc/stat: idle, and idle while waiting for a disk."""
_ETHERNET = "1"
_KBITS_PER_MBIT = 1000
_KBITS_PER_GBIT = 1_000_000


class LoadBalancing:
    """Load management. It is created before the broker, because the broker's first registration already
    contains a load report.
    """

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
        """:param host: the machine whose load is reported"""
        self._io = io
        self._wheel = wheel
        self._metadata = metadata
        self._options = options
        self._admin = admin
        self._cluster = cluster
        self._started_ms = io.clock.wall_ms()
        self._identity = Identity()
        self._served: ServedTopics | None = None
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
        """Returns the interface of load balancing for other parts of the broker; available as soon as
        :attr:`manager` is.
        """
        return LoadDesk(self.manager, self.reporter)

    @property
    def manager(self) -> LoadManager:
        """The current load manager; available once the broker has been created."""
        return self._managers[-1]

    def start(self, served: ServedTopics) -> None:
        """Starts reporting the load of the topics; while this broker leads the cluster, also balances the
        load.
        """
        self._served = served
        served.unloads.patience = lambda: self._options.now.unload_seconds

        async def count(namespace: NamespaceName) -> int:
            return len(await served.bundles.of_namespace(namespace))

        self.manager.start(count)
        self.reporter.start()

    def stop(self) -> None:
        """Stops load management, also after a failed start."""
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


def load_settings(settings: ClusterSettings) -> LoadSettings:
    """Returns the settings of load balancing.

    :raises SettingsContradict: a strategy or load manager is unknown, or settings contradict each other
    """
    manager = settings.load_manager_class_name
    if manager not in ("", MODULAR):
        raise SettingsContradict(
            f"loadManagerClassName={manager}: {manager.rpartition('.')[2]} is not supported; use {MODULAR}"
        )
    shedder = _named(
        "loadBalancerLoadSheddingStrategy", settings.load_balancer_load_shedding_strategy, SHEDDERS
    )
    placement = _named(
        "loadBalancerLoadPlacementStrategy", settings.load_balancer_load_placement_strategy, PLACEMENTS
    )
    if placement == _BOTH and shedder != _BOTH:
        raise SettingsContradict(
            f"loadBalancerLoadPlacementStrategy={_BOTH} requires loadBalancerLoadSheddingStrategy={_BOTH}, "
            f"not {shedder}"
        )
    seconds = settings.magnetar_load_shedding_interval_seconds
    return LoadSettings(
        enabled=settings.load_balancer_enabled,
        placement=placement,
        shedder=shedder,
        shedding=settings.load_balancer_shedding_enabled,
        shedding_seconds=seconds or settings.load_balancer_shedding_interval_minutes * 60.0,
        grace_seconds=settings.load_balancer_shedding_grace_period_minutes * 60.0,
        spread_namespaces=settings.load_balancer_distribute_bundles_evenly_enabled,
        max_topics=settings.load_balancer_broker_max_topics,
        average_difference=(
            settings.load_balancer_average_resource_usage_difference_threshold_percentage / 100
        ),
        unload_seconds=settings.namespace_bundle_unloading_timeout_ms / 1000,
        failure_domains=settings.failure_domains_enabled,
        later_versions=settings.prefer_later_versions,
        weights=_weights(settings),
        shed=_shed(settings),
        split=_split(settings),
        report=_report(settings),
    )


def _named(key: str, given: str, known: Mapping[str, object]) -> str:
    name = given.removeprefix(f"{_PACKAGE}.")
    if name not in known:
        raise SettingsContradict(f"{key}={given} is unknown; use one of {', '.join(known)}")
    return name


def _weights(settings: ClusterSettings) -> Weights:
    """Returns the weights of the resources. If a weight has two settings, the setting with the new name
    applies unless it has its default value; otherwise the setting with the old, misspelt name applies.
    """
    weight_in, weight_out = (
        settings.load_balancer_bandwidth_in_resource_weight,
        settings.load_balancer_bandwidth_out_resource_weight,
    )
    return Weights(
        cpu=settings.load_balancer_cpu_resource_weight,
        direct_memory=settings.load_balancer_direct_memory_resource_weight,
        bandwidth_in=weight_in if weight_in != 1.0 else settings.load_balancer_bandwith_in_resource_weight,
        bandwidth_out=(
            weight_out if weight_out != 1.0 else settings.load_balancer_bandwith_out_resource_weight
        ),
    )


def _shed(settings: ClusterSettings) -> ShedderSettings:
    return ShedderSettings(
        overloaded=settings.load_balancer_broker_overloaded_threshold_percentage / 100,
        above_average=settings.load_balancer_broker_threshold_shedder_percentage / 100,
        history=settings.load_balancer_history_resource_percentage,
        min_throughput=settings.load_balancer_bundle_unload_min_throughput_threshold * _MIB,
        lower_boundary=settings.lower_boundary_shedding_enabled,
        rate_difference=settings.load_balancer_msg_rate_difference_shedder_threshold / 100,
        throughput_factor=settings.load_balancer_msg_throughput_multiplier_difference_shedder_threshold,
        min_unload_rate=settings.min_unload_message,
        min_unload_throughput=settings.min_unload_message_throughput,
        max_unload_share=settings.max_unload_percentage,
        max_bundles=settings.max_unload_bundle_num_per_shedding,
        low=settings.load_balancer_avg_shedder_low_threshold,
        high=settings.load_balancer_avg_shedder_high_threshold,
        hits_low=settings.load_balancer_avg_shedder_hit_count_low_threshold,
        hits_high=settings.load_balancer_avg_shedder_hit_count_high_threshold,
    )


def _split(settings: ClusterSettings) -> SplitSettings:
    supported = settings.supported_namespace_bundle_split_algorithms
    for given in supported:
        _named("supportedNamespaceBundleSplitAlgorithms", given, DIVISIONS)
    algorithm = settings.default_namespace_bundle_split_algorithm
    return SplitSettings(
        algorithm=_named("defaultNamespaceBundleSplitAlgorithm", algorithm, DIVISIONS),
        supported=supported,
        enabled=settings.load_balancer_auto_bundle_split_enabled,
        unload=settings.load_balancer_auto_unload_split_bundles_enabled,
        max_topics=settings.load_balancer_namespace_bundle_max_topics,
        max_sessions=settings.load_balancer_namespace_bundle_max_sessions,
        max_rate=settings.load_balancer_namespace_bundle_max_msg_rate,
        max_throughput=settings.load_balancer_namespace_bundle_max_bandwidth_mbytes * _MIB,
        max_bundles=settings.load_balancer_namespace_maximum_bundles,
        tolerance=settings.flow_or_qps_difference_threshold_percentage / 100,
    )


def _report(settings: ClusterSettings) -> ReportSettings:
    return ReportSettings(
        change=settings.load_balancer_report_update_threshold_percentage / 100,
        min_seconds=settings.load_balancer_report_update_min_interval_millis / 1000,
        max_seconds=settings.load_balancer_report_update_max_interval_minutes * 60.0,
        host_seconds=settings.load_balancer_host_usage_check_interval_minutes * 60.0,
        quota_seconds=settings.load_balancer_resource_quota_update_interval_minutes * 60.0,
        nic_gbps=settings.load_balancer_override_broker_nic_speed_gbps,
    )


class LoadOptions:
    """The current settings of the load manager."""

    def __init__(self, settings: ClusterSettings) -> None:
        """:raises SettingsContradict: see :func:`load_settings`"""
        self._changing = ChangingSettings(settings, cluster_settings_table(), load_settings)

    @property
    def now(self) -> LoadSettings:
        return self._changing.now

    @property
    def dynamic(self) -> Mapping[str, Changeable]:
        """The settings that can change at run time, and functions that apply their changes."""
        return self._changing.changeable(filter(_of_load, changeable_names(cluster=True)))


def _of_load(name: str) -> bool:
    return attribute_name(name) in ClusterSettings.__dataclass_fields__


class LinuxHost:
    """The load of a Linux machine (see :class:`magnetar.broker.load.reporter.Host`); values that Linux does
    not report are 0.
    """

    def __init__(self, nic_gbps: float | None) -> None:
        """:param nic_gbps: the total speed of all network cards, in Gbit/s; None: the speed that the system
        reports
        """
        self._nic_kbits = None if nic_gbps is None else nic_gbps * _KBITS_PER_GBIT

    def sample(self) -> HostSample:
        cards = _cards()
        speed = self._nic_kbits
        if speed is None:
            speed = sum(max(0, _number(card / "speed")) for card in cards) * float(_KBITS_PER_MBIT)
        return HostSample(
            processor_seconds=_processor_seconds(),
            cores=float(len(os.sched_getaffinity(0))),
            resident_bytes=_resident_bytes(),
            memory_bytes=_memory_bytes(),
            received_bytes=sum(_number(card / "statistics/rx_bytes") for card in cards),
            sent_bytes=sum(_number(card / "statistics/tx_bytes") for card in cards),
            nic_kbits=speed,
        )


def _text(path: Path) -> str:
    """Returns the content of a file; empty if the file does not exist or cannot be read, like the speed of a
    network card without a cable.
    """
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else 0


def _processor_seconds() -> float:
    fields = _text(Path("/proc/stat")).partition("\n")[0].split()[1:9]
    return sum(int(field) for index, field in enumerate(fields) if index not in _IDLE) / _TICKS


def _resident_bytes() -> int:
    fields = _text(Path("/proc/self/statm")).split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _memory_bytes() -> int:
    """Returns the memory of the machine in bytes, or the limit of the process's control group if this limit
    is lower.
    """
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    confined = _number(Path("/sys/fs/cgroup/memory.max"))
    return min(total, confined) if confined else total


def _cards() -> list[Path]:
    """Returns the physical network cards."""
    try:
        found = sorted(Path("/sys/class/net").iterdir())
    except OSError:
        return []
    return [card for card in found if _text(card / "type") == _ETHERNET and (card / "device").exists()]
