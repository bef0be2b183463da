"""Derives the settings of each part of a broker from the settings of a file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from magnetar.broker.compaction.compactor import CompactionSettings
from magnetar.broker.delays.tracker import DelaySettings
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import EntryFilter, FindFilters, UnknownFilter
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.offload import check_offload
from magnetar.broker.policies.values import (
    AutoTopics,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    Retention,
    SubscribeRate,
)
from magnetar.broker.publishing.broker_entry_metadata import BrokerEntryMetadataSettings
from magnetar.broker.publishing.deduplication import DeduplicationSettings
from magnetar.broker.replication.clusters import ReplicationSettings, SubscriptionSettings
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.config.settings import ConfigurationError, Settings, SettingsContradict
from magnetar.errors import PreconditionFailed
from magnetar.ledger.embedded.disk_guard import DiskGuardSettings
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.managed_ledger.settings import (
    EntryCacheSettings,
    ManagedLedgerSettings,
    OffloadStorage,
    RetentionSettings,
)
from magnetar.server.addresses import Advertised

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from magnetar.broker.transactions import TransactionSettings
    from magnetar.managed_ledger.tiered_storage import OpenDriver
    from magnetar.offload.cache import PieceCache
    from magnetar.offload.interface import OffloadDriver

_MIB = 1 << 20
_MINUTE_MS = 60_000
_INTERCEPTORS = {
    "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor": "timestamp",
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor": "index",
}
_NO_LIMIT = 1 << 62
log = logging.getLogger(__name__)
GROUP = "magnetar.entry_filters"
"""Entry point group of entry filters in installed packages, which settings can name."""


def embedded_settings(settings: Settings) -> EmbeddedSettings:
    segment = settings.magnetar_segment_size_bytes
    return EmbeddedSettings(
        segment_bytes=segment,
        first_segment_bytes=min(segment, EmbeddedSettings.first_segment_bytes),
        reserve_bytes=settings.min_usable_size_for_high_priority_writes,
        entry_free_bytes=settings.magnetar_disk_reserve_bytes,
        full_share=settings.disk_usage_threshold,
        reads_in_flight_bytes=settings.reads_in_flight_bytes,
        cursor_write_interval=settings.magnetar_cursor_write_interval_ms / 1000,
        gc_wait_seconds=settings.gc_wait_time / 1000,
        minor_compaction_threshold=settings.minor_compaction_threshold
        if settings.minor_compaction_interval
        else 0,
        minor_compaction_interval=settings.minor_compaction_interval,
        major_compaction_threshold=settings.major_compaction_threshold
        if settings.major_compaction_interval
        else 0,
        major_compaction_interval=settings.major_compaction_interval,
        compaction_bytes_per_second=settings.compaction_rate_by_bytes if settings.is_throttle_by_bytes else 0,
        compaction_entries_per_second=0
        if settings.is_throttle_by_bytes
        else settings.compaction_rate_by_entries,
    )


def disk_guard_settings(settings: Settings) -> DiskGuardSettings:
    """Returns the thresholds of the disk guard.

    :raises SettingsContradict: the thresholds contradict each other
    """
    full, warn, resume = (
        settings.disk_usage_threshold,
        settings.disk_usage_warn_threshold,
        settings.disk_usage_lwm_threshold,
    )
    try:
        return DiskGuardSettings(
            warn_share=max(full - 0.05, full / 2) if warn is None else warn,
            full_share=full,
            resume_share=max(full - 0.02, full / 2) if resume is None else resume,
            reserve_bytes=settings.magnetar_disk_reserve_bytes,
            interval_seconds=settings.disk_check_interval / 1000,
        )
    except ValueError as error:
        raise SettingsContradict(str(error)) from error


def managed_ledger_settings(settings: Settings) -> ManagedLedgerSettings:
    return ManagedLedgerSettings(
        max_entries_per_ledger=settings.managed_ledger_max_entries_per_ledger,
        max_bytes_per_ledger=settings.managed_ledger_max_size_per_ledger_mbytes * _MIB,
        min_rollover_ms=int(settings.min_ledger_rollover_seconds * 1000),
        max_rollover_ms=settings.managed_ledger_max_ledger_rollover_time_minutes * _MINUTE_MS,
        cursor_max_entries_per_ledger=settings.managed_ledger_cursor_max_entries_per_ledger,
        cursor_rollover_ms=settings.managed_ledger_cursor_rollover_time_in_seconds * 1000,
        max_unacked_ranges_to_persist=settings.managed_ledger_max_unacked_ranges_to_persist,
        max_batch_indexes_to_persist=settings.managed_ledger_max_batch_deleted_index_to_persist,
        holes_as_bits=settings.managed_ledger_persist_individual_ack_as_long_array,
        max_unacked_ranges_in_metadata=(
            settings.managed_ledger_max_unacked_ranges_to_persist_in_metadata_store
        ),
        mark_delete_rate=settings.managed_ledger_default_mark_delete_rate_limit,
        cursor_flush_seconds=settings.managed_ledger_cursor_position_flush_seconds,
        retention=retention_settings(settings),
        read_max_entries=settings.magnetar_read_max_entries or 0,
        skip_lost_data=settings.auto_skip_non_recoverable_data,
        backlogged_threshold=settings.managed_ledger_cursor_backlogged_threshold,
    )


def offload_fields(settings: Settings) -> Mapping[str, object]:
    """Returns the values of ``OffloadPolicies`` fields that neither the topic's nor the namespace's policies
    set.

    :raises SettingsContradict: the driver is not supported, or one of its settings is missing or invalid
    """
    driver = settings.managed_ledger_offload_driver
    stores = _of_stores(settings)
    found: dict[str, object] = {
        "managedLedgerOffloadThresholdInBytes": _general(
            settings.managed_ledger_offload_threshold_in_bytes,
            settings.managed_ledger_offload_auto_trigger_size_threshold_bytes,
        ),
        "managedLedgerOffloadThresholdInSeconds": settings.managed_ledger_offload_threshold_in_seconds,
        "managedLedgerOffloadDeletionLagInMillis": _general(
            settings.managed_ledger_offload_deletion_lag_in_millis,
            settings.managed_ledger_offload_deletion_lag_ms,
        ),
        "managedLedgerOffloadedReadPriority": (
            settings.managed_ledger_offloaded_read_priority or settings.managed_ledger_data_read_priority
        ),
        **stores,
    }
    if driver:
        found["managedLedgerOffloadDriver"] = driver
        try:
            check_offload(found)
        except PreconditionFailed as error:
            raise SettingsContradict(str(error)) from error
        _check_profile({name: str(value) for name, value in stores.items()}, driver)
    return found


def _check_profile(values: Mapping[str, str], driver: str) -> None:
    """Checks the Hadoop configuration if the driver uses it.

    :raises SettingsContradict: the file cannot be read, or its file system is not local or mounted
    """
    # Most brokers do not offload.
    from magnetar.offload.interface import OffloadMisconfigured
    from magnetar.offload.settings import FILE_SYSTEM, file_settings, local_path

    if driver.lower() != FILE_SYSTEM:
        return
    from magnetar.offload.file_store import configured_base

    try:
        local_path("fs.defaultFS", configured_base(file_settings(values)))
    except OffloadMisconfigured as error:
        raise SettingsContradict(str(error)) from error


def _general(general: int | None, own: int, default: int | None = None) -> int:
    """Returns ``general``, or ``own`` if ``general`` is None or ``own`` differs from its ``default``."""
    return own if general is None or default not in (None, own) else general


def _of_stores(settings: Settings) -> Mapping[str, object]:
    """Returns the storage settings of the drivers; unset values are omitted."""
    found: dict[str, object] = {
        "s3ManagedLedgerOffloadRegion": settings.s3_managed_ledger_offload_region,
        "s3ManagedLedgerOffloadBucket": settings.s3_managed_ledger_offload_bucket,
        "s3ManagedLedgerOffloadServiceEndpoint": settings.s3_managed_ledger_offload_service_endpoint,
        # The drivers look for these names after those with ``s3``, as in Pulsar.
        "managedLedgerOffloadRegion": settings.managed_ledger_offload_region,
        "managedLedgerOffloadBucket": settings.managed_ledger_offload_bucket,
        "managedLedgerOffloadServiceEndpoint": settings.managed_ledger_offload_service_endpoint,
        "s3ManagedLedgerOffloadMaxBlockSizeInBytes": _general(
            settings.managed_ledger_offload_max_block_size_in_bytes,
            settings.s3_managed_ledger_offload_max_block_size_in_bytes,
            64 << 20,
        ),
        "s3ManagedLedgerOffloadReadBufferSizeInBytes": _general(
            settings.managed_ledger_offload_read_buffer_size_in_bytes,
            settings.s3_managed_ledger_offload_read_buffer_size_in_bytes,
            1 << 20,
        ),
        "s3ManagedLedgerOffloadCredentialId": settings.s3_managed_ledger_offload_credential_id,
        "s3ManagedLedgerOffloadCredentialSecret": settings.s3_managed_ledger_offload_credential_secret,
        "s3ManagedLedgerOffloadRole": settings.s3_managed_ledger_offload_role,
        "s3ManagedLedgerOffloadRoleSessionName": settings.s3_managed_ledger_offload_role_session_name,
        "fileSystemProfilePath": settings.file_system_profile_path,
        "fileSystemURI": settings.file_system_uri,
    }
    return {name: value for name, value in found.items() if value != ""}


def offload_driver(settings: Settings) -> OpenDriver:
    """Returns a factory of offload drivers, which share a cache. Credentials come from the offload policies,
    the ledger's offload metadata or the settings, in this order.
    """
    known = {name: str(value) for name, value in _of_stores(settings).items()}
    caches: list[PieceCache] = []

    def open_driver(storage: OffloadStorage, recorded: Mapping[str, str] | None) -> OffloadDriver:
        # Most brokers do not offload.
        from magnetar.offload import driver_of
        from magnetar.offload.cache import PieceCache
        from magnetar.offload.settings import CLUSTER

        if not caches:
            caches.append(PieceCache(settings.magnetar_offload_cache_size_mb * _MIB))
        given = {**known, **dict(storage.values), CLUSTER: settings.cluster_name}
        return driver_of(storage.driver, recorded or {}, given, caches[0])

    return open_driver


def retention_settings(settings: Settings) -> RetentionSettings:
    """Returns the default retention. A limit of -1 does not apply; if one limit is 0, nothing is retained."""
    minutes, mebibytes = settings.default_retention_time_in_minutes, settings.default_retention_size_in_mb
    return RetentionSettings(
        time_ms=minutes * _MINUTE_MS if minutes >= 0 else -1,
        size_bytes=mebibytes * _MIB if mebibytes >= 0 else -1,
    )


def entry_cache_settings(settings: Settings) -> EntryCacheSettings:
    return EntryCacheSettings(
        max_bytes=settings.cache_size_bytes,
        watermark=settings.managed_ledger_cache_eviction_watermark,
        interval_seconds=settings.managed_ledger_cache_eviction_interval_ms / 1000,
        max_age_seconds=settings.managed_ledger_cache_eviction_time_threshold_millis / 1000,
    )


def broker_settings(
    settings: Settings, told: Advertised, broker_id: str, runtime: Mapping[str, str]
) -> BrokerSettings:
    """Returns the settings of the broker.

    :param told: the advertised addresses of the broker
    :param broker_id: ``host:port`` of the broker's HTTP address
    """
    main = told.main
    return BrokerSettings(
        cluster=settings.cluster_name,
        service_url=main.binary or "",
        service_url_tls=main.binary_tls or "",
        http_url=main.http or "",
        http_url_tls=main.http_tls or "",
        listeners=told.listeners,
        authentication_refresh_seconds=settings.authentication_refresh_check_seconds,
        broker_id=broker_id,
        topic=topic_settings(settings),
        max_message_size=settings.max_message_size,
        max_publish_buffer=settings.publish_buffer_bytes or _NO_LIMIT,
        max_pending_publishes=settings.max_pending_publish_requests_per_connection,
        keep_alive_seconds=settings.keep_alive_interval_seconds,
        liveness_seconds=settings.connection_liveness_check_timeout_millis / 1000,
        key_shared_enabled=settings.subscription_key_shared_enable,
        max_publish_messages=settings.broker_publisher_throttling_max_message_rate,
        max_publish_bytes=settings.broker_publisher_throttling_max_byte_rate,
        show_broker_entry_metadata=settings.exposing_broker_entry_metadata_to_client_enabled,
        dispatch_rate=DispatchRate(
            settings.dispatch_throttling_rate_in_msg, settings.dispatch_throttling_rate_in_byte
        ),
        policies=broker_policies(settings),
        topic_policies=settings.system_topic_enabled and settings.topic_level_policies_enabled,
        max_tenants=settings.max_tenants,
        max_namespaces_per_tenant=settings.max_namespaces_per_tenant,
        force_delete_tenants=settings.force_delete_tenant_allowed,
        force_delete_namespaces=settings.force_delete_namespace_allowed,
        default_bundles=settings.default_number_of_namespace_bundles,
        max_partitions=settings.max_num_partitions_per_partitioned_topic
        or settings.magnetar_max_partitions_per_topic,
        max_topics_per_tenant=settings.magnetar_max_topics_per_tenant,
        max_topic_loads=settings.max_concurrent_topic_load_request,
        topic_load_timeout_seconds=settings.topic_load_timeout_seconds,
        max_lookups=settings.max_concurrent_lookup_request,
        max_connections=settings.broker_max_connections,
        max_connections_per_address=settings.broker_max_connections_per_ip,
        max_producers_per_connection=settings.magnetar_max_producers_per_connection,
        max_consumers_per_connection=settings.magnetar_max_consumers_per_connection,
        persistent_topics=settings.enable_persistent_topics,
        non_persistent_topics=settings.enable_non_persistent_topics,
        stats_seconds=settings.stats_update_frequency_in_secs,
        retention_check_seconds=settings.retention_check_interval_in_seconds,
        expiry_check_seconds=settings.expiry_check_seconds,
        backlog_quota_check=settings.backlog_quota_check_enabled,
        backlog_quota_check_seconds=settings.backlog_quota_check_interval_in_seconds,
        precise_age_quota=settings.precise_time_based_backlog_quota_check,
        max_backlog_scan_seconds=settings.subscription_backlog_scan_max_time_ms / 1000,
        max_backlog_scan_entries=settings.subscription_backlog_scan_max_entries,
        compaction=CompactionSettings(
            retain_keyless=settings.topic_compaction_retain_null_key,
            read_timeout_seconds=settings.broker_service_compaction_phase_one_loop_time_in_seconds,
        ),
        compaction_check_seconds=settings.broker_service_compaction_monitor_interval_in_seconds,
        deduplication_check_seconds=settings.broker_deduplication_snapshot_frequency_in_seconds,
        inactive_topics_check_seconds=settings.broker_delete_inactive_topics_frequency_seconds,
        subscription_expiry_check_seconds=settings.subscription_expiry_check_interval_in_minutes * 60.0,
        delete_inactive_partitioned=settings.broker_delete_inactive_partitioned_topic_metadata_enabled,
        match_patterns=settings.enable_broker_side_subscription_pattern_evaluation,
        max_pattern_length=settings.subscription_pattern_max_length,
        max_unacked=settings.max_unacked_messages_per_broker,
        unacked_share_when_blocked=settings.max_unacked_messages_per_subscription_on_broker_blocked,
        max_read_plan_seconds=settings.magnetar_read_plan_max_seconds,
        packages=settings.enable_packages_management,
        package_copies=settings.packages_replicas,
        max_package_bytes=settings.magnetar_max_package_size_bytes,
        replication=ReplicationSettings(
            cluster=settings.cluster_name,
            queue_size=settings.replication_producer_queue_size,
            makes_topics=settings.create_topic_to_remote_cluster_for_replication,
            start_at_earliest=settings.replication_start_at == "earliest",
            check_seconds=settings.replication_policy_check_duration_seconds,
            subscriptions=SubscriptionSettings(
                enabled=settings.enable_replicated_subscriptions,
                snapshot_seconds=settings.replicated_subscriptions_snapshot_frequency_millis / 1000,
                timeout_seconds=settings.replicated_subscriptions_snapshot_timeout_seconds,
                cached=settings.replicated_subscriptions_snapshot_max_cached_per_subscription,
            ),
            migration_check_seconds=settings.cluster_migration_check_duration_seconds,
            makes_resources_of_moved=settings.cluster_migration_auto_resource_creation,
        ),
        replication_buffer=settings.magnetar_replication_buffer_bytes,
        runtime=dict(runtime),
    )


def broker_entry_metadata_settings(settings: Settings) -> BrokerEntryMetadataSettings:
    """Returns the settings of broker entry metadata.

    :raises ConfigurationError: an interceptor is unknown
    """
    names = settings.broker_entry_metadata_interceptors
    strange = [name for name in names if name not in _INTERCEPTORS]
    if strange:
        known = ", ".join(_INTERCEPTORS)
        raise ConfigurationError(
            f"brokerEntryMetadataInterceptors: unknown interceptor {name}; use one of {known}"
            for name in strange
        )
    return BrokerEntryMetadataSettings(**{_INTERCEPTORS[name]: True for name in names})


def topic_settings(settings: Settings) -> TopicSettings:
    dispatch = DispatchSettings(
        max_read_entries=settings.dispatcher_max_read_batch_size,
        max_read_bytes=settings.dispatcher_max_read_size_bytes,
        round_robin_entries=settings.dispatcher_max_round_robin_batch_size,
        failover_delay_seconds=settings.active_consumer_failover_delay_time_millis / 1000,
        failover_consistent_hashing=settings.active_consumer_failover_consistent_hashing,
        key_shared_points=(
            settings.subscription_key_shared_consistent_hashing_replica_points
            if settings.subscription_key_shared_use_consistent_hashing
            else 0
        ),
        filters=load_entry_filters(settings.entry_filter_names),
        throttle_filtered=settings.dispatch_throttling_for_filtered_entries_enabled,
        throttle_by_message=not settings.dispatch_throttling_on_batch_message_enabled,
        throttle_caught_up=settings.dispatch_throttling_on_non_backlog_consumer_enabled,
        filter_again_seconds=settings.dispatcher_entry_filter_rescheduled_message_delay / 1000,
        look_ahead_per_consumer=settings.key_shared_look_ahead_msg_in_replay_threshold_per_consumer,
        look_ahead_per_subscription=settings.key_shared_look_ahead_msg_in_replay_threshold_per_subscription,
        delays=DelaySettings(
            strict=settings.is_delayed_delivery_deliver_at_time_strict,
            look_ahead=settings.delayed_delivery_fixed_delay_detection_lookahead,
            in_memory=settings.magnetar_delayed_messages_in_memory,
        ),
    )
    return TopicSettings(
        dispatch=dispatch,
        max_non_persistent=settings.max_concurrent_non_persistent_message_per_connection,
        broker_entry_metadata=broker_entry_metadata_settings(settings),
        max_subscriptions=settings.magnetar_max_subscriptions_per_topic,
        max_same_address_producers=settings.max_same_address_producers_per_topic,
        max_same_address_consumers=settings.max_same_address_consumers_per_topic,
        override_filters=settings.allow_override_entry_filters,
        find_filters=find_filters(settings.entry_filter_names),
        cluster=settings.cluster_name,
        replicator_prefix=settings.replicator_prefix,
        batch_index_acks=settings.acknowledgment_at_batch_index_level_enabled,
        transactions=transaction_settings(settings),
        deduplication=DeduplicationSettings(
            snapshot_entries=settings.broker_deduplication_entries_interval,
            max_producers=settings.broker_deduplication_max_number_of_producers,
            inactivity_seconds=settings.broker_deduplication_producer_inactivity_timeout_minutes * 60.0,
        ),
    )


def transaction_settings(settings: Settings) -> TransactionSettings | None:
    """Returns the settings of transactions; None: transactions are disabled."""
    if not settings.transaction_coordinator_enabled:
        return None
    # Most brokers have no transactions.
    from magnetar.broker.transactions import BatchedWrites, TransactionSettings

    return TransactionSettings(
        snapshot_changes=settings.transaction_buffer_snapshot_max_transaction_count,
        snapshot_seconds=settings.transaction_buffer_snapshot_min_time_in_millis / 1000,
        segmented_snapshots=settings.transaction_buffer_segmented_snapshot_enabled,
        segment_bytes=settings.transaction_buffer_snapshot_segment_size,
        max_active=settings.max_active_transactions_per_coordinator,
        max_requests=settings.transaction_buffer_client_max_concurrent_requests,
        request_seconds=settings.transaction_buffer_client_operation_timeout_in_mills / 1000,
        log_writes=BatchedWrites(
            settings.transaction_log_batched_write_enabled,
            settings.transaction_log_batched_write_max_records,
            settings.transaction_log_batched_write_max_size,
            settings.transaction_log_batched_write_max_delay_in_millis / 1000,
        ),
        pending_ack_writes=BatchedWrites(
            settings.transaction_pending_ack_batched_write_enabled,
            settings.transaction_pending_ack_batched_write_max_records,
            settings.transaction_pending_ack_batched_write_max_size,
            settings.transaction_pending_ack_batched_write_max_delay_in_millis / 1000,
        ),
        pending_ack_index_lag=settings.transaction_pending_ack_log_index_min_lag,
    )


def _strategy(name: str, unset: str) -> str:
    return unset if name == "UNDEFINED" else name


def broker_policies(settings: Settings) -> EffectivePolicies:
    """Returns the policies that apply where neither the topic nor its namespace sets them."""
    partitioned = settings.allow_auto_topic_creation_type == "partitioned"
    return EffectivePolicies(
        retention=Retention(
            settings.default_retention_time_in_minutes, settings.default_retention_size_in_mb
        ),
        message_ttl_seconds=settings.ttl_duration_default_in_seconds,
        storage_quota=BacklogQuota(
            settings.backlog_quota_bytes,
            settings.backlog_quota_default_limit_second,
            settings.backlog_quota_default_retention_policy,
        ),
        age_quota=BacklogQuota(
            settings.backlog_quota_bytes,
            settings.backlog_quota_default_limit_second,
            settings.backlog_quota_default_retention_policy,
        ),
        deduplication=settings.broker_deduplication_enabled,
        compaction_threshold=settings.broker_service_compaction_threshold_in_bytes,
        offload=offload_fields(settings),
        offload_on_load=settings.trigger_offload_on_topic_load,
        deduplication_snapshot_seconds=(
            120
            if settings.broker_deduplication_snapshot_interval_seconds is None
            else settings.broker_deduplication_snapshot_interval_seconds
        ),
        max_producers=settings.max_producers_per_topic,
        max_consumers=settings.max_consumers_per_topic,
        max_consumers_per_subscription=settings.max_consumers_per_subscription,
        max_subscriptions=settings.max_subscriptions_per_topic,
        max_unacked_per_consumer=settings.max_unacked_messages_per_consumer,
        max_unacked_per_subscription=settings.max_unacked_messages_per_subscription,
        publish_rate=PublishRate(
            settings.max_publish_rate_per_topic_in_messages or -1,
            settings.max_publish_rate_per_topic_in_bytes or -1,
        ),
        dispatch_rate=DispatchRate(
            settings.dispatch_throttling_rate_per_topic_in_msg,
            settings.dispatch_throttling_rate_per_topic_in_byte,
            settings.dispatch_throttling_rate_relative_to_publish_rate,
        ),
        subscription_dispatch_rate=DispatchRate(
            settings.dispatch_throttling_rate_per_subscription_in_msg,
            settings.dispatch_throttling_rate_per_subscription_in_byte,
            settings.dispatch_throttling_rate_relative_to_publish_rate,
        ),
        replicator_dispatch_rate=DispatchRate(
            settings.dispatch_throttling_rate_per_replicator_in_msg,
            settings.dispatch_throttling_rate_per_replicator_in_byte,
        ),
        subscribe_rate=SubscribeRate(
            settings.subscribe_throttling_rate_per_consumer,
            settings.subscribe_rate_period_per_consumer_in_second,
        ),
        inactive_topics=InactiveTopics(
            settings.broker_delete_inactive_topics_enabled,
            settings.broker_delete_inactive_topics_max_inactive_duration_seconds
            or settings.broker_delete_inactive_topics_frequency_seconds,
            settings.broker_delete_inactive_topics_mode,
        ),
        subscription_expiration_minutes=settings.subscription_expiration_time_minutes,
        pause_on_ack_state=settings.dispatcher_pause_on_ack_state_persistent_enabled,
        encryption_required=settings.encryption_require_on_producer,
        subscription_types=settings.subscription_types_enabled,
        auto_topics=AutoTopics(
            settings.allow_auto_topic_creation, settings.default_num_partitions if partitioned else 0
        ),
        auto_subscriptions=settings.allow_auto_subscription_creation,
        schema_compatibility=_strategy(settings.schema_compatibility_strategy, "FULL"),
        system_schema_compatibility=_strategy(
            settings.system_topic_schema_compatibility_strategy, "ALWAYS_COMPATIBLE"
        ),
        schema_validation=settings.is_schema_validation_enforced,
        auto_update_schema=settings.is_allow_auto_update_schema_enabled,
        delayed_delivery=DelayedDelivery(
            settings.delayed_delivery_enabled,
            settings.delayed_delivery_tick_time_millis,
            settings.delayed_delivery_max_delay_in_millis,
        ),
        persistence=Persistence(mark_delete_rate=settings.managed_ledger_default_mark_delete_rate_limit),
        max_topics=settings.max_topics_per_namespace,
    )


def find_filters(named: tuple[str, ...]) -> FindFilters:
    """Returns a function that finds the entry filters that policies name.

    Policies can name only entry points of the group and filters in the broker's settings, so that a user who
    can set policies cannot make the broker load an arbitrary module.

    :param named: the names of the filters in the broker's settings (``entryFilterNames``)
    """

    def find(names: Sequence[str]) -> Sequence[EntryFilter]:
        for name in names:
            if name not in named and (":" in name or not _points(name)):
                raise UnknownFilter(name)
        try:
            return load_entry_filters(tuple(names))
        except ConfigurationError as error:
            log.error("cannot load an entry filter", extra={"error": str(error)})
            raise UnknownFilter(names[0]) from error

    return find


@cache
def load_entry_filters(names: tuple[str, ...]) -> tuple[EntryFilter, ...]:
    """Creates a filter for each name; called once per process.

    :param names: the names of entry points of the group, or ``module:Class``
    :raises ConfigurationError: a filter cannot be found or created; the message contains the filter's name
    """
    problems: list[str] = []
    found: list[EntryFilter] = []
    for name in names:
        try:
            made = _class_of(name)()
        except Exception as error:  # noqa: BLE001 - code of an operator; whatever it raises stops the start
            problems.append(f"entryFilterNames: {name} cannot be loaded: {error or type(error).__name__}")
            continue
        if callable(getattr(made, "filter_entry", None)):
            found.append(made)
        else:
            problems.append(f"entryFilterNames: {name} has no method filter_entry")
    if problems:
        raise ConfigurationError(problems)
    return tuple(found)


def _points(name: str) -> EntryPoints:
    # Most brokers have no filters, and importing the module takes 10 ms.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP, name=name)


def _class_of(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(import_module(module), attribute)
    points = _points(name)
    if not points:
        raise LookupError(f"no installed package has an entry point with this name in the group {GROUP}")
    return next(iter(points)).load()
