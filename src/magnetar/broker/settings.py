"""The settings of a broker. All of them have an effect; their names in configuration files are Pulsar's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from magnetar.broker.compaction.compactor import CompactionSettings
from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import CHANGE_EVENTS
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.replication.clusters import ReplicationSettings
from magnetar.broker.topics.base import TopicSettings
from magnetar.errors import NamespaceNotFound, NotAllowed
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.namespace_name import heartbeat_of
from magnetar.naming.topic_name import TopicName


@dataclass(frozen=True)
class BrokerSettings:
    cluster: str
    service_url: str
    """The service URL that clients get, ``pulsar://host:port``."""
    http_url: str
    topic: TopicSettings
    broker_id: str = ""
    """The broker's id, ``host:port`` of its HTTP interface."""
    max_message_size: int = 5 * 1024 * 1024
    max_publish_buffer: int = 64 * 1024 * 1024
    max_partial_frames: int = 64 * 1024 * 1024
    max_pending_publishes: int = 1_000
    max_publish_messages: int = 0
    """The maximum number of messages published per second, over all topics; 0: no limit. The next setting is
    the same for bytes."""
    max_publish_bytes: int = 0
    dispatch_rate: DispatchRate = field(default_factory=DispatchRate)
    """The dispatch rate of the broker, for all topics together."""
    show_broker_entry_metadata: bool = False
    """Whether broker entry metadata is sent to clients that support it."""
    keep_alive_seconds: float = 30.0
    liveness_seconds: float = 5.0
    authentication_refresh_seconds: float = 60.0
    """The time in seconds, before a client's credentials expire, at which the client is asked for new
    credentials.
    """
    service_url_tls: str = ""
    """The TLS service URL, ``pulsar+ssl://host:port``; empty: no TLS. If only TLS is served,
    :attr:`service_url` is empty."""
    http_url_tls: str = ""
    listeners: Mapping[str, Addresses] = field(default_factory=dict)
    """The addresses of each advertised listener, by its name."""
    key_shared_enabled: bool = True
    policies: EffectivePolicies = field(default_factory=EffectivePolicies)
    """The policies that apply where neither the topic nor the namespace sets a policy."""
    default_bundles: int = 4
    """The number of bundles of a new namespace, 1 to 65536."""
    alone: bool = True
    """Whether the broker is standalone, so that a client at any of its addresses reaches all topics."""
    one_copy: bool = True
    """Whether the ledger store keeps one copy of each entry, whatever the quorums are."""
    persistent_topics: bool = True
    """Whether persistent topics are served; ``non_persistent_topics`` is the same for non-persistent
    topics.
    """
    non_persistent_topics: bool = True
    topic_policies: bool = True
    """Whether topics may have policies of their own."""
    max_tenants: int = 0
    """The maximum number of tenants; 0: no limit, also for the next setting."""
    max_namespaces_per_tenant: int = 0
    force_delete_tenants: bool = False
    force_delete_namespaces: bool = False
    max_partitions: int = 0
    """The maximum number of partitions of a topic; 0: no limit."""
    max_topics_per_tenant: int = 0
    """The maximum number of topics of a tenant, each partition counted as one; 0: no limit."""
    max_topic_loads: int = 5_000
    topic_load_timeout_seconds: float = 60.0
    max_lookups: int = 50_000
    max_connections: int = 0
    max_connections_per_address: int = 0
    max_producers_per_connection: int = 0
    """The maximum number of producers on one connection; 0: no limit."""
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
    """Whether the age of a backlog is read from messages; otherwise it is estimated from the closing times of
    ledgers."""
    max_backlog_scan_seconds: float = 120.0
    max_backlog_scan_entries: int = 10_000
    inactive_topics_check_seconds: float = 60.0
    subscription_expiry_check_seconds: float = 300.0
    delete_inactive_partitioned: bool = False
    """Whether a partitioned topic is deleted with its last inactive partition."""
    match_patterns: bool = True
    """Whether the broker matches patterns of topics, and notifies clients when topics are created and
    deleted."""
    max_pattern_length: int = 50
    max_unacked: int = 0
    """The maximum number of unacknowledged messages of all shared subscriptions together; 0: no limit."""
    unacked_share_when_blocked: float = 0.16
    """The fraction of :attr:`max_unacked` that one subscription may have once ``max_unacked`` is reached."""
    max_read_plan_seconds: int = 3600
    """The maximum time in seconds for which a read plan is held; 0: read plans are disabled."""
    packages: bool = False
    """Whether the broker stores and serves packages."""
    package_copies: int = 1
    """The number of copies of each package; without effect if the ledger store keeps one copy of each
    entry."""
    max_package_bytes: int = 100 << 20
    replication: ReplicationSettings = field(default_factory=lambda: ReplicationSettings(""))
    replication_buffer: int = 64 << 20
    """The maximum number of bytes that all replicators together may have sent without a receipt."""
    metadata_url: str = ""
    """The address of the metadata store, as reported to operators."""
    runtime: dict[str, str] = field(default_factory=dict)
    """All settings in effect as strings, by Pulsar's name."""

    @property
    def addresses(self) -> Addresses:
        """Returns the addresses for clients that do not name a listener."""
        return Addresses(
            self.service_url or None,
            self.service_url_tls or None,
            self.http_url or None,
            self.http_url_tls or None,
        )

    def check_served(self, name: TopicName) -> None:
        """Checks that this broker serves topics of that kind.

        :raises NotAllowed: this broker does not serve topics of that kind
        :raises NamespaceNotFound: the namespace belongs to another broker's health checks
        """
        if heartbeat_of(name.namespace_name) not in (None, self.broker_id):
            raise NamespaceNotFound("Namespace not found")
        if name.persistent and not self.persistent_topics and name.local != CHANGE_EVENTS:
            raise NotAllowed("Broker is unable to load persistent topic")
        if not name.persistent and not self.non_persistent_topics:
            raise NotAllowed("Broker is unable to load non-persistent topic")
