"""The settings of a broker, each honoured here; the names in configuration files are Pulsar's."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.broker.topic import TopicSettings


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
    keep_alive_seconds: float = 30.0
    liveness_seconds: float = 5.0
    auto_topics: bool = True
    auto_topic_partitions: int = 0
    """Partitions of topics made on use; 0 makes them without."""
    auto_subscriptions: bool = True
    subscription_types: tuple[str, ...] = ("Exclusive", "Shared", "Failover", "Key_Shared")
    key_shared_enabled: bool = True
    max_partitions: int = 0
    max_topics_per_namespace: int = 0
    max_topic_loads: int = 5_000
    topic_load_timeout_seconds: float = 60.0
    max_lookups: int = 50_000
    max_connections: int = 0
    max_connections_per_address: int = 0
    stats_seconds: float = 60.0
    retention_check_seconds: float = 120.0
    runtime: dict[str, str] = field(default_factory=dict)
    """Every setting in effect by Pulsar's name, as text."""
