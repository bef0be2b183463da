"""The additional settings of a broker on ZooKeeper and BookKeeper, typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from magnetar.config.table import Value
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Settings with Pulsar's names in snake case as attributes; for units, ranges and defaults see
    docs/settings.md.
    """

    # Written by tools/generate_settings.py.
    zookeeper_servers: str
    metadata_store_url: str
    global_zookeeper_servers: str
    configuration_store_servers: str
    configuration_metadata_store_url: str
    failure_domains_enabled: bool
    metadata_store_session_timeout_millis: int
    zoo_keeper_session_timeout_millis: int
    metadata_store_config_path: str
    configuration_store_config_path: str
    bookkeeper_metadata_service_uri: str
    bookkeeper_client_authentication_plugin: str
    bookkeeper_client_authentication_parameters_name: str
    bookkeeper_client_authentication_parameters: str = field(repr=False)
    bookkeeper_client_timeout_in_seconds: int
    bookkeeper_client_speculative_read_timeout_in_millis: int
    bookkeeper_use_v2_wire_protocol: bool
    bookkeeper_client_health_check_enabled: bool
    bookkeeper_client_health_check_interval_seconds: int
    bookkeeper_client_health_check_error_threshold_per_interval: int
    bookkeeper_client_health_check_quarantine_time_in_seconds: int
    bookkeeper_client_quarantine_ratio: float
    bookkeeper_client_rackaware_policy_enabled: bool
    bookkeeper_client_regionaware_policy_enabled: bool
    bookkeeper_client_min_num_racks_per_write_quorum: int
    bookkeeper_client_enforce_min_num_racks_per_write_quorum: bool
    bookkeeper_client_isolation_groups: str
    bookkeeper_client_secondary_isolation_groups: str
    bookkeeper_client_get_bookie_info_interval_seconds: int
    bookkeeper_client_get_bookie_info_retry_interval_seconds: int
    bookkeeper_enable_sticky_reads: bool
    bookkeeper_tls_client_authentication: bool
    bookkeeper_tls_key_file_type: str
    bookkeeper_tls_trust_cert_types: str
    bookkeeper_tls_key_store_password_path: str = field(repr=False)
    bookkeeper_tls_trust_store_password_path: str = field(repr=False)
    bookkeeper_tls_key_file_path: str
    bookkeeper_tls_certificate_file_path: str
    bookkeeper_tls_trust_certs_file_path: str
    bookkeeper_disk_weight_based_placement_enabled: bool
    bookkeeper_explicit_lac_interval_in_mills: int
    managed_ledger_default_ensemble_size: int
    managed_ledger_default_write_quorum: int
    managed_ledger_default_ack_quorum: int
    managed_ledger_digest_type: str
    managed_ledger_password: str = field(repr=False)
    load_balancer_enabled: bool
    load_balancer_load_shedding_strategy: str
    lower_boundary_shedding_enabled: bool
    load_balancer_load_placement_strategy: str
    load_balancer_report_update_threshold_percentage: int
    load_balancer_report_update_min_interval_millis: int
    load_balancer_report_update_max_interval_minutes: int
    load_balancer_host_usage_check_interval_minutes: int
    load_balancer_shedding_enabled: bool
    load_balancer_shedding_interval_minutes: int
    load_balancer_distribute_bundles_evenly_enabled: bool
    load_balancer_shedding_grace_period_minutes: int
    load_balancer_broker_max_topics: int
    load_balancer_broker_overloaded_threshold_percentage: int
    load_balancer_broker_threshold_shedder_percentage: int
    load_balancer_average_resource_usage_difference_threshold_percentage: int
    flow_or_qps_difference_threshold_percentage: int
    load_balancer_avg_shedder_low_threshold: int
    load_balancer_avg_shedder_high_threshold: int
    load_balancer_avg_shedder_hit_count_low_threshold: int
    load_balancer_avg_shedder_hit_count_high_threshold: int
    min_unload_message: int
    min_unload_message_throughput: int
    max_unload_percentage: float
    load_balancer_msg_rate_difference_shedder_threshold: float
    load_balancer_msg_throughput_multiplier_difference_shedder_threshold: float
    max_unload_bundle_num_per_shedding: int
    load_balancer_history_resource_percentage: float
    load_balancer_bandwidth_in_resource_weight: float
    load_balancer_bandwidth_out_resource_weight: float
    load_balancer_bandwith_in_resource_weight: float
    load_balancer_bandwith_out_resource_weight: float
    load_balancer_cpu_resource_weight: float
    load_balancer_direct_memory_resource_weight: float
    load_balancer_bundle_unload_min_throughput_threshold: float
    load_balancer_resource_quota_update_interval_minutes: int
    load_balancer_auto_bundle_split_enabled: bool
    load_balancer_auto_unload_split_bundles_enabled: bool
    load_balancer_namespace_bundle_max_topics: int
    load_balancer_namespace_bundle_max_sessions: int
    load_balancer_namespace_bundle_max_msg_rate: int
    load_balancer_namespace_bundle_max_bandwidth_mbytes: int
    load_balancer_namespace_maximum_bundles: int
    load_manager_class_name: str
    supported_namespace_bundle_split_algorithms: tuple[str, ...]
    default_namespace_bundle_split_algorithm: str
    load_balancer_override_broker_nic_speed_gbps: float | None
    namespace_bundle_unloading_timeout_ms: int
    prefer_later_versions: bool
    magnetar_load_shedding_interval_seconds: int
    magnetar_zoo_keeper_password: str = field(repr=False)
    magnetar_jaas_config_path: str
    # End of what it writes.

    @property
    def session_timeout_ms(self) -> int:
        """The requested timeout of ZooKeeper sessions, in milliseconds."""
        older = self.zoo_keeper_session_timeout_millis
        return older if older > 0 else self.metadata_store_session_timeout_millis

    @property
    def local_store(self) -> str:
        """The address of the cluster's own metadata store; empty: not set."""
        return self.metadata_store_url or self.zookeeper_servers

    @property
    def configuration_store(self) -> str:
        """The address of the configuration store, which clusters share; empty: not set."""
        older = self.configuration_store_servers or self.global_zookeeper_servers
        return self.configuration_metadata_store_url or older


def quorum_problems(values: Mapping[str, Value]) -> Iterator[tuple[tuple[str, str], str]]:
    """Checks that the ensemble size, write quorum and ack quorum fit together.

    Yields the names of the two settings of each contradiction, and a description.
    """
    names = ("EnsembleSize", "WriteQuorum", "AckQuorum")
    ensemble, write, ack = (f"managedLedgerDefault{name}" for name in names)
    for less, more in ((write, ensemble), (ack, write)):
        few, many = values[less], values[more]
        if isinstance(few, int) and isinstance(many, int) and few > many:
            yield (less, more), f"{less} {few} must not exceed {more} {many}"
