"""Derives the present settings of the load manager from those of a cluster; most can change at runtime."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.broker.load.manager import PLACEMENTS, SHEDDERS
from magnetar.broker.load.reports import MODULAR, Weights
from magnetar.broker.load.settings import LoadSettings, ReportSettings, ShedderSettings, SplitSettings
from magnetar.broker.ownership.bundles import ALGORITHMS
from magnetar.broker.policies.dynamic import Changeable
from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import SettingsContradict, attribute_name
from magnetar.config.table import cluster_settings_table
from magnetar.server.changing_settings import ChangingSettings, changeable_names

_PACKAGE = MODULAR.rpartition(".")[0]
_MIB = 1 << 20
_BOTH = "AvgShedder"


def load_settings(settings: ClusterSettings) -> LoadSettings:
    """:raises SettingsContradict: a strategy or load manager is unknown, or settings contradict each other"""
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
    """Of the two names of a weight, the new one counts unless it has its default."""
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
        _named("supportedNamespaceBundleSplitAlgorithms", given, ALGORITHMS)
    algorithm = settings.default_namespace_bundle_split_algorithm
    return SplitSettings(
        algorithm=_named("defaultNamespaceBundleSplitAlgorithm", algorithm, ALGORITHMS),
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
    """The present settings of the load manager."""

    def __init__(self, settings: ClusterSettings) -> None:
        """:raises SettingsContradict: see :func:`load_settings`"""
        self._changing = ChangingSettings(settings, cluster_settings_table(), load_settings)

    @property
    def now(self) -> LoadSettings:
        return self._changing.now

    @property
    def dynamic(self) -> Mapping[str, Changeable]:
        """The settings that can change, and what applies each change."""
        return self._changing.changeable(filter(_of_load, changeable_names(cluster=True)))


def _of_load(name: str) -> bool:
    return attribute_name(name) in ClusterSettings.__dataclass_fields__
