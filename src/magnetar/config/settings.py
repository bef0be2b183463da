"""The effective settings of a broker, typed; reads them from a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from magnetar.config.cluster import ClusterSettings, quorum_problems
from magnetar.config.reading import (
    COMMAND_LINE,
    ConfigurationError,
    Given,
    SettingsContradict,
    attribute_name,
    read_settings,
    typed,
)
from magnetar.config.table import Value, cluster_settings_table, settings_table
from magnetar.lazy_dataclass import dataclass

__all__ = [
    "COMMAND_LINE",
    "ConfigurationError",
    "Loaded",
    "Settings",
    "SettingsContradict",
    "attribute_name",
    "default_settings",
    "load",
]

_HOST = (
    re.compile(r"|\[?[-:%\w]{1,63}(\.[-:%\w]{0,63}){0,30}\]?", re.ASCII),
    "the name or address of a host",
)
_NAMES = {
    "clusterName": (re.compile(r"|[-=:.\w]+", re.ASCII), "letters, digits and -=:._"),
    "replicatorPrefix": (re.compile(r"[-=:.\w]+", re.ASCII), "letters, digits and -=:._"),
    "bindAddress": _HOST,
    "advertisedAddress": _HOST,
}
"""For settings with a special format: the pattern of valid values, and its description. An empty value means
the default, except that ``replicatorPrefix`` must not be empty.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The honoured settings, with Pulsar's names in snake case as attributes; for units, ranges and defaults
    see docs/settings.md.
    """

    # Written by tools/generate_settings.py.
    broker_service_port: int | None
    broker_service_port_tls: int | None
    web_service_port: int | None
    web_service_port_tls: int | None
    web_service_tls_protocols: tuple[str, ...]
    web_service_tls_ciphers: tuple[str, ...]
    bind_address: str
    advertised_address: str
    advertised_listeners: str
    internal_listener_name: str
    bind_addresses: str
    max_http_server_connections: int
    delayed_delivery_enabled: bool
    delayed_delivery_tick_time_millis: int
    is_delayed_delivery_deliver_at_time_strict: bool
    delayed_delivery_fixed_delay_detection_lookahead: int
    delayed_delivery_max_delay_in_millis: int
    acknowledgment_at_batch_index_level_enabled: bool
    web_socket_service_enabled: bool
    cluster_name: str
    max_tenants: int
    broker_shutdown_timeout_ms: int
    topic_load_timeout_seconds: int
    backlog_quota_check_enabled: bool
    precise_time_based_backlog_quota_check: bool
    backlog_quota_check_interval_in_seconds: int
    backlog_quota_default_limit_gb: float
    backlog_quota_default_limit_bytes: int
    backlog_quota_default_limit_second: int
    backlog_quota_default_retention_policy: str
    ttl_duration_default_in_seconds: int
    broker_delete_inactive_topics_enabled: bool
    broker_delete_inactive_partitioned_topic_metadata_enabled: bool
    broker_delete_inactive_topics_frequency_seconds: int
    broker_delete_inactive_topics_mode: str
    broker_delete_inactive_topics_max_inactive_duration_seconds: int | None
    force_delete_tenant_allowed: bool
    force_delete_namespace_allowed: bool
    max_pending_publish_requests_per_connection: int
    message_expiry_check_interval_in_minutes: int
    active_consumer_failover_delay_time_millis: int
    active_consumer_failover_consistent_hashing: bool
    subscription_backlog_scan_max_time_ms: int
    subscription_backlog_scan_max_entries: int
    subscription_expiration_time_minutes: int
    subscription_expiry_check_interval_in_minutes: int
    subscription_types_enabled: tuple[str, ...]
    subscription_key_shared_enable: bool
    subscription_key_shared_use_consistent_hashing: bool
    subscription_key_shared_consistent_hashing_replica_points: int
    broker_deduplication_enabled: bool
    broker_deduplication_max_number_of_producers: int
    broker_deduplication_snapshot_frequency_in_seconds: int
    broker_deduplication_snapshot_interval_seconds: int | None
    broker_deduplication_entries_interval: int
    broker_deduplication_producer_inactivity_timeout_minutes: int
    default_number_of_namespace_bundles: int
    max_namespaces_per_tenant: int
    max_topics_per_namespace: int
    broker_max_connections: int
    broker_max_connections_per_ip: int
    is_allow_auto_update_schema_enabled: bool
    status_file_path: str
    max_unacked_messages_per_consumer: int
    max_unacked_messages_per_subscription: int
    max_unacked_messages_per_broker: int
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: int
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: int
    max_unacked_messages_per_subscription_on_broker_blocked: float
    broker_publisher_throttling_max_message_rate: int
    broker_publisher_throttling_max_byte_rate: int
    dispatch_throttling_rate_in_msg: int
    dispatch_throttling_rate_in_byte: int
    max_publish_rate_per_topic_in_messages: int
    max_publish_rate_per_topic_in_bytes: int
    subscribe_throttling_rate_per_consumer: int
    subscribe_rate_period_per_consumer_in_second: int
    dispatch_throttling_rate_per_topic_in_msg: int
    dispatch_throttling_rate_per_topic_in_byte: int
    dispatch_throttling_on_batch_message_enabled: bool
    dispatch_throttling_rate_per_subscription_in_msg: int
    dispatch_throttling_rate_per_subscription_in_byte: int
    dispatch_throttling_rate_per_replicator_in_msg: int
    dispatch_throttling_rate_per_replicator_in_byte: int
    dispatch_throttling_rate_relative_to_publish_rate: bool
    dispatch_throttling_on_non_backlog_consumer_enabled: bool
    enable_broker_side_subscription_pattern_evaluation: bool
    subscription_pattern_max_length: int
    dispatcher_max_read_batch_size: int
    dispatch_throttling_for_filtered_entries_enabled: bool
    dispatcher_max_read_size_bytes: int
    dispatcher_entry_filter_rescheduled_message_delay: int
    dispatcher_max_round_robin_batch_size: int
    entry_filter_names: tuple[str, ...]
    allow_override_entry_filters: bool
    max_concurrent_lookup_request: int
    max_concurrent_topic_load_request: int
    max_concurrent_non_persistent_message_per_connection: int
    enable_persistent_topics: bool
    enable_non_persistent_topics: bool
    max_producers_per_topic: int
    max_same_address_producers_per_topic: int
    encryption_require_on_producer: bool
    max_consumers_per_topic: int
    max_same_address_consumers_per_topic: int
    max_subscriptions_per_topic: int
    max_consumers_per_subscription: int
    max_message_size: int
    enable_replicated_subscriptions: bool
    replicated_subscriptions_snapshot_frequency_millis: int
    replicated_subscriptions_snapshot_timeout_seconds: int
    replicated_subscriptions_snapshot_max_cached_per_subscription: int
    replication_start_at: str
    max_message_publish_buffer_size_in_mb: int
    retention_check_interval_in_seconds: int
    max_num_partitions_per_partitioned_topic: int
    system_topic_enabled: bool
    system_topic_schema_compatibility_strategy: str
    topic_level_policies_enabled: bool
    broker_entry_metadata_interceptors: tuple[str, ...]
    exposing_broker_entry_metadata_to_client_enabled: bool
    tls_enabled: bool
    tls_cert_refresh_check_duration_sec: int
    tls_certificate_file_path: str
    tls_key_file_path: str
    tls_trust_certs_file_path: str
    tls_allow_insecure_connection: bool
    tls_protocols: tuple[str, ...]
    tls_ciphers: tuple[str, ...]
    tls_require_trusted_client_cert_on_connect: bool
    authentication_enabled: bool
    authentication_providers: tuple[str, ...]
    authentication_refresh_check_seconds: int
    authorization_enabled: bool
    authorization_provider: str
    super_user_roles: tuple[str, ...]
    proxy_roles: tuple[str, ...]
    magnetar_replication_roles: tuple[str, ...]
    authenticate_original_auth_data: bool
    authorization_allow_wildcards_matching: bool
    anonymous_user_role: str
    http_max_request_size: int
    http_max_request_header_size: int
    managed_ledger_cursor_position_flush_seconds: int
    managed_ledger_cache_size_mb: int
    managed_ledger_max_reads_in_flight_size_in_mb: int
    managed_ledger_cache_eviction_watermark: float
    managed_ledger_cache_eviction_interval_ms: int
    managed_ledger_cache_eviction_time_threshold_millis: int
    managed_ledger_cursor_backlogged_threshold: int
    managed_ledger_default_mark_delete_rate_limit: float
    allow_auto_topic_creation: bool
    allow_auto_topic_creation_type: str
    allow_auto_subscription_creation: bool
    default_num_partitions: int
    managed_ledger_max_entries_per_ledger: int
    managed_ledger_min_ledger_rollover_time_minutes: int
    managed_ledger_max_ledger_rollover_time_minutes: int
    managed_ledger_max_size_per_ledger_mbytes: int
    managed_ledger_offload_deletion_lag_ms: int
    managed_ledger_offload_auto_trigger_size_threshold_bytes: int
    managed_ledger_offload_threshold_in_seconds: int
    managed_ledger_offload_threshold_in_bytes: int | None
    managed_ledger_offload_deletion_lag_in_millis: int | None
    trigger_offload_on_topic_load: bool
    managed_ledger_cursor_max_entries_per_ledger: int
    managed_ledger_cursor_rollover_time_in_seconds: int
    managed_ledger_max_unacked_ranges_to_persist: int
    managed_ledger_max_batch_deleted_index_to_persist: int
    managed_ledger_persist_individual_ack_as_long_array: bool
    managed_ledger_max_unacked_ranges_to_persist_in_metadata_store: int
    dispatcher_pause_on_ack_state_persistent_enabled: bool
    auto_skip_non_recoverable_data: bool
    managed_ledger_data_read_priority: str
    managed_ledger_offloaded_read_priority: str
    replication_metrics_enabled: bool
    replication_connections_per_broker: int
    replicator_prefix: str
    replication_producer_queue_size: int
    replication_policy_check_duration_seconds: int
    create_topic_to_remote_cluster_for_replication: bool
    default_retention_time_in_minutes: int
    default_retention_size_in_mb: int
    keep_alive_interval_seconds: int
    connection_liveness_check_timeout_millis: int
    broker_service_compaction_monitor_interval_in_seconds: int
    broker_service_compaction_threshold_in_bytes: int
    broker_service_compaction_phase_one_loop_time_in_seconds: int
    topic_compaction_retain_null_key: bool
    cluster_migration_check_duration_seconds: int
    cluster_migration_auto_resource_creation: bool
    is_schema_validation_enforced: bool
    schema_compatibility_strategy: str
    web_socket_session_idle_timeout_millis: int
    web_socket_ping_duration_seconds: int
    web_socket_max_text_frame_size: int
    authenticate_metrics_endpoint: bool
    expose_topic_level_metrics_in_prometheus: bool
    expose_consumer_level_metrics_in_prometheus: bool
    expose_producer_level_metrics_in_prometheus: bool
    expose_managed_ledger_metrics_in_prometheus: bool
    split_topic_and_partition_label_in_prometheus: bool
    expose_publisher_stats: bool
    stats_update_frequency_in_secs: int
    managed_ledger_offload_driver: str
    s3_managed_ledger_offload_region: str
    s3_managed_ledger_offload_bucket: str
    s3_managed_ledger_offload_service_endpoint: str
    s3_managed_ledger_offload_max_block_size_in_bytes: int
    s3_managed_ledger_offload_read_buffer_size_in_bytes: int
    s3_managed_ledger_offload_credential_id: str
    s3_managed_ledger_offload_credential_secret: str = field(repr=False)
    s3_managed_ledger_offload_role: str
    s3_managed_ledger_offload_role_session_name: str
    managed_ledger_offload_region: str
    managed_ledger_offload_bucket: str
    managed_ledger_offload_service_endpoint: str
    managed_ledger_offload_max_block_size_in_bytes: int | None
    managed_ledger_offload_read_buffer_size_in_bytes: int | None
    file_system_profile_path: str
    file_system_uri: str
    transaction_coordinator_enabled: bool
    transaction_buffer_snapshot_max_transaction_count: int
    transaction_buffer_snapshot_min_time_in_millis: int
    transaction_buffer_snapshot_segment_size: int
    transaction_buffer_segmented_snapshot_enabled: bool
    transaction_buffer_client_max_concurrent_requests: int
    transaction_buffer_client_operation_timeout_in_mills: int
    max_active_transactions_per_coordinator: int
    transaction_pending_ack_log_index_min_lag: int
    transaction_log_batched_write_enabled: bool
    transaction_log_batched_write_max_records: int
    transaction_log_batched_write_max_size: int
    transaction_log_batched_write_max_delay_in_millis: int
    transaction_pending_ack_batched_write_enabled: bool
    transaction_pending_ack_batched_write_max_records: int
    transaction_pending_ack_batched_write_max_size: int
    transaction_pending_ack_batched_write_max_delay_in_millis: int
    tls_enabled_with_key_store: bool
    tls_key_store_type: str
    tls_key_store: str
    tls_key_store_password: str = field(repr=False)
    tls_trust_store_type: str
    tls_trust_store: str
    tls_trust_store_password: str = field(repr=False)
    broker_client_authentication_plugin: str
    broker_client_authentication_parameters: str = field(repr=False)
    broker_client_tls_enabled: bool
    broker_client_trust_certs_file_path: str
    broker_client_key_file_path: str
    broker_client_certificate_file_path: str
    enable_packages_management: bool
    packages_replicas: int
    magnetar_segment_size_bytes: int
    magnetar_cache_size_bytes: int | None
    magnetar_read_max_entries: int | None
    magnetar_offload_cache_size_mb: int
    magnetar_cursor_write_interval_ms: int
    magnetar_read_plan_max_seconds: int
    magnetar_max_package_size_bytes: int
    magnetar_http_allowed_origins: tuple[str, ...]
    magnetar_http_allowed_hosts: tuple[str, ...]
    magnetar_dashboard_enabled: bool
    magnetar_audit_enabled: bool
    magnetar_max_http_connections_per_ip: int
    magnetar_max_producers_per_connection: int
    magnetar_max_consumers_per_connection: int
    magnetar_max_partitions_per_topic: int
    magnetar_max_topics_per_tenant: int
    magnetar_max_subscriptions_per_topic: int
    magnetar_max_admin_requests_per_second_per_role: int
    magnetar_max_concurrent_admin_requests_per_role: int
    magnetar_disk_reserve_bytes: int
    magnetar_orphaned_ledger_retention_hours: int
    magnetar_replication_buffer_bytes: int
    magnetar_metrics_max_series: int
    magnetar_min_ledger_rollover_seconds: float | None
    magnetar_delayed_messages_in_memory: int
    magnetar_message_expiry_check_interval_seconds: int
    compaction_rate_by_bytes: int
    compaction_rate_by_entries: int
    disk_check_interval: int
    disk_usage_lwm_threshold: float | None
    disk_usage_threshold: float
    disk_usage_warn_threshold: float | None
    gc_wait_time: int
    is_throttle_by_bytes: bool
    major_compaction_interval: int
    major_compaction_threshold: float
    min_usable_size_for_high_priority_writes: int
    minor_compaction_interval: int
    minor_compaction_threshold: float
    # End of what it writes.

    @property
    def cache_size_bytes(self) -> int:
        """The size of the entry cache in bytes."""
        if self.magnetar_cache_size_bytes is not None:
            return self.magnetar_cache_size_bytes
        return self.managed_ledger_cache_size_mb << 20

    @property
    def reads_in_flight_bytes(self) -> int:
        """The maximum total size, in bytes, of the reads in progress that fetch entries for dispatch."""
        return (self.managed_ledger_max_reads_in_flight_size_in_mb or 32) << 20

    @property
    def publish_buffer_bytes(self) -> int | None:
        """The total size of received publishes that are not durable yet, in bytes, at which the broker stops
        reading from connections; None: the broker never stops.
        """
        limit = self.max_message_publish_buffer_size_in_mb
        return limit << 20 if limit > 0 else None

    @property
    def min_ledger_rollover_seconds(self) -> float:
        """The minimum age, in seconds, at which a ledger is rolled over because of its size."""
        if self.magnetar_min_ledger_rollover_seconds is not None:
            return self.magnetar_min_ledger_rollover_seconds
        return self.managed_ledger_min_ledger_rollover_time_minutes * 60.0

    @property
    def expiry_check_seconds(self) -> float:
        """The interval of checks for expired messages, in seconds."""
        return (
            self.magnetar_message_expiry_check_interval_seconds
            or self.message_expiry_check_interval_in_minutes * 60.0
        )

    @property
    def backlog_quota_bytes(self) -> int:
        """The default backlog quota in bytes; -1: no quota.

        As in Pulsar, ``backlogQuotaDefaultLimitGB`` takes precedence over ``backlogQuotaDefaultLimitBytes``.
        """
        if self.backlog_quota_default_limit_gb > 0:
            return int(self.backlog_quota_default_limit_gb * (1 << 30))
        return self.backlog_quota_default_limit_bytes

    @property
    def http_body_limit_bytes(self) -> int:
        """The maximum size of the body of an HTTP request, in bytes."""
        return self.http_max_request_size if self.http_max_request_size >= 0 else 8 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of reading a configuration."""

    settings: Settings
    warnings: tuple[str, ...]
    """Warnings for the log, one sentence each."""
    texts: Mapping[str, str] = field(repr=False)
    """The effective value of every key of the table as text, with secrets masked."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All settings in the file and on the command line by name, including unknown ones; secrets are not
    masked.
    """
    cluster: ClusterSettings | None = None
    """The settings of the cluster; None: a standalone broker."""


def load(
    path: str | Path | None,
    accept: Iterable[str] = (),
    overrides: Mapping[str, str] | None = None,
    *,
    cluster: bool = False,
) -> Loaded:
    """Reads a Pulsar property file; if ``path`` is None, all settings have their defaults.

    :param accept: unsupported keys that the file may set nevertheless
    :param overrides: settings from the command line, which take precedence over the file
    :param cluster: whether to load the settings of a broker on ZooKeeper and BookKeeper
    :raises ConfigurationError: the file cannot be read, a value is malformed or out of range, a setting
        requires a missing feature of security, durability or isolation and is not in ``accept``, or
        ``accept`` contains an unknown key
    """
    read = read_settings(path, cluster_settings_table() if cluster else settings_table(), accept, overrides)
    values, given, problems = read.values, read.given, read.problems
    _close_ports(values, given)
    _check_names(given, problems)
    _check_together(values, given, problems)
    if cluster:
        for keys, problem in quorum_problems(values):
            origin = next((given[key].origin for key in keys if key in given), "defaults")
            problems.append(f"{origin}: {problem}")
    if problems:
        raise ConfigurationError(problems)
    in_cluster = typed(ClusterSettings, values) if cluster else None
    return Loaded(typed(Settings, values), tuple(read.warnings), read.texts, read.everything, in_cluster)


def default_settings(**changes: Any) -> Settings:
    """Returns the default settings, changed by ``changes`` (by attribute name); values are not checked."""
    values = {attribute_name(key): row.parse("") for key, row in settings_table().items()}
    known = {entry.name: values[entry.name] for entry in fields(Settings)}
    return Settings(**{**known, **changes})


def _close_ports(values: dict[str, Value], given: Mapping[str, Given]) -> None:
    """Removes each plain listener whose port is given as empty while the port of its TLS listener is set, as
    Pulsar does; without the TLS port, the plain listener keeps its default port.
    """
    for plain, secured in (
        ("brokerServicePort", "brokerServicePortTls"),
        ("webServicePort", "webServicePortTls"),
    ):
        item = given.get(plain)
        if item is not None and not item.text.strip() and values[secured] is not None:
            values[plain] = None


def _check_names(given: Mapping[str, Given], problems: list[str]) -> None:
    """Checks names that become metadata paths, and hosts that are looked up or advertised."""
    for key, (form, wanted) in _NAMES.items():
        item = given.get(key)
        if item is not None and not form.fullmatch(item.text.strip()):
            problems.append(f"{item.origin}: {key} must be {wanted}, not {item.text.strip()!r}")


def _check_together(values: Mapping[str, Value], given: Mapping[str, Given], problems: list[str]) -> None:
    """Checks settings that depend on each other."""
    low, high = "managedLedgerMinLedgerRolloverTimeMinutes", "managedLedgerMaxLedgerRolloverTimeMinutes"
    shortest, longest = values[low], values[high]
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        item = given.get(low) or given[high]
        problems.append(f"{item.origin}: {low} {shortest} must not exceed {high} {longest}")
    limit, quantity = "maxNumPartitionsPerPartitionedTopic", "defaultNumPartitions"
    if not values[limit]:
        limit = "magnetarMaxPartitionsPerTopic"
    most, usual = values[limit], values[quantity]
    if isinstance(most, int) and isinstance(usual, int) and 0 < most < usual:
        item = given.get(quantity) or given[limit]
        problems.append(f"{item.origin}: {quantity} {usual} must not exceed {limit} {most}")
