"""The settings of a broker, each honoured here; the names in configuration files are Pulsar's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from magnetar.broker.compaction.compactor import CompactionSettings
from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.replication.settings import ReplicationSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True)
class BrokerSettings:
    cluster: str
    service_url: str
    """``pulsar://host:port`` as clients are told."""
    http_url: str
    topic: TopicSettings
    broker_id: str = ""
    """``host:port`` of the HTTP interface."""
    max_message_size: int = 5 * 1024 * 1024
    max_publish_buffer: int = 64 * 1024 * 1024
    max_partial_frames: int = 64 * 1024 * 1024
    max_pending_publishes: int = 1_000
    max_publish_messages: int = 0
    """A second, over all topics; 0 for any number. So is the next, in bytes."""
    max_publish_bytes: int = 0
    dispatch_rate: DispatchRate = field(default_factory=DispatchRate)
    """Over all topics."""
    show_broker_entry_metadata: bool = False
    """Clients that take it are sent what was written in front of entries."""
    keep_alive_seconds: float = 30.0
    liveness_seconds: float = 5.0
    authentication_refresh_seconds: float = 60.0
    """A client is asked for new credentials before its present ones expire."""
    service_url_tls: str = ""
    """``pulsar+ssl://host:port``; empty: no TLS. Where only TLS is served, :attr:`service_url` is empty."""
    http_url_tls: str = ""
    listeners: Mapping[str, Addresses] = field(default_factory=dict)
    """The same by the name of a listener."""
    key_shared_enabled: bool = True
    policies: EffectivePolicies = field(default_factory=EffectivePolicies)
    """What counts where neither topic nor namespace says anything."""
    default_bundles: int = 4
    """Bundles of a new namespace, 1 … 65536."""
    alone: bool = True
    """There are no other brokers: who reached this one, by whatever address, reaches all topics there."""
    one_copy: bool = True
    """The ledger store keeps one copy of an entry, whatever quorums say."""
    persistent_topics: bool = True
    """Whether such topics are served; so with the next one."""
    non_persistent_topics: bool = True
    topic_policies: bool = True
    """Topics may have policies of their own."""
    max_tenants: int = 0
    """0 for any number; so is the next."""
    max_namespaces_per_tenant: int = 0
    force_delete_tenants: bool = False
    force_delete_namespaces: bool = False
    max_partitions: int = 0
    """Partitions of one topic, 0 for any number."""
    max_topics_per_tenant: int = 0
    """Each partition is one; 0 for any number."""
    max_topic_loads: int = 5_000
    topic_load_timeout_seconds: float = 60.0
    max_lookups: int = 50_000
    max_connections: int = 0
    max_connections_per_address: int = 0
    max_producers_per_connection: int = 0
    """0: as many as a client likes."""
    max_consumers_per_connection: int = 0
    stats_seconds: float = 60.0
    retention_check_seconds: float = 120.0
    deduplication_check_seconds: float = 120.0
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    compaction_check_seconds: float = 60.0
    expiry_check_seconds: float = 300.0
    backlog_quota_check: bool = True
    backlog_quota_check_seconds: float = 60.0
    precise_age_quota: bool = False
    """Ages of backlogs are read from messages; else told by when ledgers were closed."""
    max_backlog_scan_seconds: float = 120.0
    max_backlog_scan_entries: int = 10_000
    inactive_topics_check_seconds: float = 60.0
    subscription_expiry_check_seconds: float = 300.0
    delete_inactive_partitioned: bool = False
    """A partitioned topic goes with the last of its partitions that was inactive."""
    match_patterns: bool = True
    """Patterns of topics are matched here, and clients told when topics come and go."""
    max_pattern_length: int = 50
    max_unacked: int = 0
    """Messages outstanding on all shared subscriptions together; 0 for any number."""
    unacked_share_when_blocked: float = 0.16
    """The part of it that a subscription may have outstanding when it is reached."""
    max_read_plan_seconds: int = 3600
    """For which a read plan may be held; 0: there are none."""
    packages: bool = False
    """Packages are stored and given out."""
    package_copies: int = 1
    """Of each, where the ledger store keeps any number."""
    max_package_bytes: int = 100 << 20
    replication: ReplicationSettings = field(default_factory=lambda: ReplicationSettings(""))
    replication_buffer: int = 64 << 20
    """Bytes that all replicators together have on their way."""
    metadata_url: str = ""
    """Where the metadata lies, as operators are told."""
    runtime: dict[str, str] = field(default_factory=dict)
    """Every setting in effect by Pulsar's name, as text."""

    @property
    def addresses(self) -> Addresses:
        """Where clients reach this broker that name no listener."""
        return Addresses(
            self.service_url or None,
            self.service_url_tls or None,
            self.http_url or None,
            self.http_url_tls or None,
        )
