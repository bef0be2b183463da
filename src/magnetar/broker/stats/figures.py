"""The figures of a broker at one moment, whoever shows them: plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication_counts import AuthenticationCounts

LATENCY_BOUNDS_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
ENTRY_SIZE_BOUNDS_BYTES = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)


@dataclass(slots=True)
class Histogram:
    """A distribution over the last full statistics period, as Pulsar gives it.

    The bounds are fixed by the metric: :data:`LATENCY_BOUNDS_MS`, :data:`ENTRY_SIZE_BOUNDS_BYTES`.
    """

    counts: Sequence[int]
    """Per bucket, not cumulative; one for each bound and one for what lies above the last."""
    total: int = 0
    """Sum of all values: microseconds for latencies (what Pulsar prints), bytes for sizes."""


@dataclass(slots=True)
class ConsumerMetrics:
    name: str
    consumer_id: int
    rate_out: float = 0.0
    throughput_out: float = 0.0
    rate_redeliver: float = 0.0
    ack_rate: float = 0.0
    unacked_messages: int = 0
    blocked_on_unacked: bool = False
    available_permits: int = 0
    bytes_out: int = 0
    messages_out: int = 0
    acknowledged: int = 0
    redelivered: int = 0


@dataclass(slots=True)
class ProducerMetrics:
    name: str
    producer_id: int
    access_mode: str = "Shared"
    """By the name of ``ProducerAccessMode``."""
    rate_in: float = 0.0
    throughput_in: float = 0.0
    average_message_size: float = 0.0
    bytes_in: int = 0
    messages_in: int = 0
    dropped: int = 0
    """Messages for a non-persistent topic that had no room."""


@dataclass(slots=True)
class SubscriptionMetrics:
    """One subscription; rates are per second, times in milliseconds since 1970."""

    name: str
    type: str = ""
    """By the name of ``SubType``; empty: nobody has subscribed yet."""
    backlog: int = 0
    backlog_no_delayed: int = 0
    delayed: int = 0
    """Entries that wait for their delivery time."""
    delay_index_bytes: int = 0
    filter_processed: int = 0
    filter_accepted: int = 0
    filter_rejected: int = 0
    filter_rescheduled: int = 0
    held_back: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    """How often its dispatch rates said no: whose (``Subscription``, ``Topic``, ``Broker``), and whether that
    on messages did, or that on bytes."""
    in_replay: int = 0
    rate_redeliver: float = 0.0
    ack_rate: float = 0.0
    unacked_messages: int = 0
    blocked_on_unacked: bool = False
    rate_out: float = 0.0
    throughput_out: float = 0.0
    bytes_out: int = 0
    messages_out: int = 0
    last_expire_ms: int = 0
    last_acked_ms: int = 0
    last_consumed_flow_ms: int = 0
    last_consumed_ms: int = 0
    last_mark_delete_advanced_ms: int = 0
    rate_expired: float = 0.0
    total_expired: int = 0
    drop_rate: float = 0.0
    """Messages of a non-persistent topic that no consumer took."""
    waits_for: str = ""
    """Why it is sent nothing, by the name of the reason; empty: all was delivered."""
    waits_seconds: float = 0.0
    consumer_count: int = 0
    consumers: Sequence[ConsumerMetrics] = ()
    """Empty unless ``exposeConsumerLevelMetricsInPrometheus``."""


@dataclass(slots=True)
class CompactionMetrics:
    """Compactions of one topic since it was loaded."""

    removed: int = 0
    """Messages left out."""
    succeeded: int = 0
    failed: int = 0
    duration_ms: int = 0
    """Of the last one."""
    read_throughput: float = 0.0
    """Bytes a second while it was compacted; so is the next."""
    write_throughput: float = 0.0
    read_bytes: int = 0
    """By all of them; so is the next."""
    written_bytes: int = 0
    entries: int = 0
    """In the ledger that the last one made; so are the bytes."""
    size: int = 0
    write_latency_ms: Histogram | None = None


@dataclass(frozen=True, slots=True)
class ReplicationMetrics:
    """The replication of one topic to one other cluster, or to one shadow topic; rates are per second."""

    remote: str
    """The cluster, or the full name of the shadow topic."""
    rate_in: float = 0.0
    """Of what that cluster replicates to this one."""
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0
    rate_expired: float = 0.0
    backlog: int = 0
    """Entries."""
    connected: bool = False
    delay_seconds: float = 0.0
    """Age of the oldest entry without a receipt."""
    lag_seconds: float = 0.0
    """Age of the oldest entry that is not confirmed, sent or not."""
    unreplicated: int = 0
    """Messages that left without being sent, since the topic was loaded."""


@dataclass(slots=True)
class TopicMetrics:
    """One topic (each partition is one); rates are per second, in entries for storage, else in messages."""

    name: str
    """Full name."""
    namespace: str
    subscriptions: Sequence[SubscriptionMetrics] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    """How often producers, or messages of theirs, were refused, by the name of the reason."""
    producer_count: int = 0
    consumer_count: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    average_message_size: float = 0.0
    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    """To all consumers there were; so are the messages."""
    messages_out: int = 0
    entries_written: int = 0
    entries_read: int = 0
    storage_size: int = 0
    """Bytes stored, all copies."""
    storage_logical_size: int = 0
    """Bytes stored, one copy."""
    backlog: int = 0
    """Entries not consumed, summed over the subscriptions, as Pulsar gives it."""
    backlog_bytes: int = 0
    offloaded_bytes: int = 0
    backlog_quota_bytes: int = -1
    backlog_quota_seconds: int = -1
    backlog_age_seconds: int = -1
    """As it was when quotas were last looked at; -1: none, or not known."""
    evictions_by_size: int = 0
    """How often the backlog was evicted because a quota was exceeded."""
    evictions_by_time: int = 0
    publish_rate_limited: int = 0
    write_rate: float = 0.0
    read_rate: float = 0.0
    read_cache_misses_rate: float = 0.0
    write_latency_ms: Histogram | None = None
    """Queueing included."""
    ledger_write_latency_ms: Histogram | None = None
    entry_size_bytes: Histogram | None = None
    replication: Sequence[ReplicationMetrics] = ()
    """By the other cluster."""
    shadows: Sequence[ReplicationMetrics] = ()
    """By the shadow topic."""
    compaction: CompactionMetrics | None = None
    """None: it was not compacted."""
    producers: Sequence[ProducerMetrics] = ()
    """Empty unless ``exposeProducerLevelMetricsInPrometheus``."""

    @property
    def subscription_count(self) -> int:
        return len(self.subscriptions)


@dataclass(slots=True)
class ManagedLedgerMetrics:
    """Managed ledgers of one namespace, summed; rates are per second, counts since the start."""

    namespace: str
    add_entry_rate: float = 0.0
    add_entry_bytes_rate: float = 0.0
    add_entry_succeeded: int = 0
    add_entry_errors: int = 0
    read_entries_rate: float = 0.0
    read_entries_bytes_rate: float = 0.0
    read_entries_succeeded: int = 0
    read_entries_errors: int = 0
    read_cache_misses_rate: float = 0.0
    mark_delete_rate: float = 0.0
    backlog: int = 0
    stored_bytes: int = 0


@dataclass(slots=True)
class CacheMetrics:
    """The entry cache of the broker."""

    used_bytes: int = 0
    entries: int = 0
    inserted_total: int = 0
    evicted_total: int = 0
    evictions: int = 0
    hits_rate: float = 0.0
    hits_throughput: float = 0.0
    misses_rate: float = 0.0
    misses_throughput: float = 0.0
    hits: int = 0
    """Entries, since the start; so are the next three."""
    misses: int = 0
    hit_bytes: int = 0
    missed_bytes: int = 0


@dataclass(slots=True)
class ConnectionMetrics:
    """Client connections of the binary protocol, counted since the start except ``active``."""

    active: int = 0
    created: int = 0
    closed: int = 0
    handshakes_succeeded: int = 0
    handshakes_failed: int = 0


@dataclass(slots=True)
class TimingMetrics:
    """Durations in milliseconds: quantile to value over the last minute, and the totals since the start."""

    count: int = 0
    total_ms: float = 0.0
    quantiles: Mapping[float, float] = field(default_factory=dict)


@dataclass(slots=True)
class SnapshotMetrics:
    """Snapshots of positions in all clusters, for replicated subscriptions; totals since the start."""

    pending: int
    timed_out: int
    taken: TimingMetrics


@dataclass(slots=True)
class DurationMetrics:
    """How long what ended in one way took, since the start."""

    bounds: Sequence[float]
    """Upper ones, in seconds."""
    counts: Sequence[int]
    """Per bucket, one more for what lies above the last bound."""
    seconds: float
    """All together."""


@dataclass(slots=True)
class LookupMetrics:
    answers: int = 0
    failures: int = 0
    redirects: int = 0
    pending: int = 0
    timing: TimingMetrics = field(default_factory=TimingMetrics)
    durations: Mapping[str, DurationMetrics] = field(default_factory=dict)
    """By how they ended: ``broker``, ``redirect``, ``failure``."""


@dataclass(slots=True)
class SchemaMetrics:
    """Of the schema registry in one namespace, since the start."""

    namespace: str
    operations: Sequence[tuple[str, bool, DurationMetrics]]
    """``get``, ``list``, ``put`` or ``delete``, and whether it succeeded."""
    compatible: int
    """Schemas that were compared with those before them, and may follow."""
    incompatible: int


@dataclass(slots=True)
class QuotaMetrics:
    """Backlog quotas of all topics: evictions since the start, and durations of looking at all of them."""

    evictions_by_size: int = 0
    evictions_by_time: int = 0
    check_bounds: Sequence[float] = ()
    """Upper bounds in seconds."""
    check_counts: Sequence[int] = (0,)
    """Per bucket, one more for what lies above the last bound."""
    check_seconds: float = 0.0
    """All together."""


@dataclass(slots=True)
class GroupMetrics:
    """What topics of one resource group used, of one kind (``Publish`` or ``Dispatch``), since the start."""

    name: str
    kind: str
    messages: int
    bytes: int
    updates: int
    """How often the group's rates were changed."""


@dataclass(slots=True)
class MetadataMetrics:
    """A metadata store since the start."""

    name: str
    bounds_ms: Sequence[float]
    """Upper bounds of buckets."""
    operations: Sequence[tuple[str, str, Sequence[int], float]]
    """Kind and outcome, how many by bucket (one more for what lies above), milliseconds of all together."""
    put_bytes: int


@dataclass(slots=True)
class LoadMetrics:
    """Of a broker that has others beside it."""

    usage: Mapping[str, float]
    """Percent, by ``cpu``, ``memory``, ``directMemory``, ``bandwidth_in``, ``bandwidth_out``."""
    relieved_brokers: int
    """Since the start, while it led; so are the next two."""
    moved_bundles: int
    split_bundles: int


@dataclass(slots=True)
class MetricsSnapshot:
    """Everything ``/metrics`` prints, taken at one moment."""

    cluster: str
    broker: str
    """The advertised host."""
    started_seconds: float = 0.0
    """Seconds since 1970 when the counters began."""
    topics: list[TopicMetrics] = field(default_factory=list)
    managed_ledgers: Sequence[ManagedLedgerMetrics] = ()
    managed_ledger_count: int = 0
    cache: CacheMetrics = field(default_factory=CacheMetrics)
    connections: ConnectionMetrics = field(default_factory=ConnectionMetrics)
    lookups: LookupMetrics = field(default_factory=LookupMetrics)
    schemas: Sequence[SchemaMetrics] = ()
    publish_latency: TimingMetrics = field(default_factory=TimingMetrics)
    topic_load: TimingMetrics = field(default_factory=TimingMetrics)
    topic_loads_pending: int = 0
    quotas: QuotaMetrics = field(default_factory=QuotaMetrics)
    resource_groups: Sequence[GroupMetrics] = ()
    load: LoadMetrics | None = None
    """None: the broker is alone."""
    snapshots: SnapshotMetrics | None = None
    """Of replicated subscriptions; None: nothing is replicated to other clusters."""
    authentication_counts: Sequence[AuthenticationCounts] = ()
    """Of those who were asked who they are."""
    metadata: Sequence[MetadataMetrics] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    """Gauges of Magnetar's own, by full name (``magnetar_...``), without labels."""
