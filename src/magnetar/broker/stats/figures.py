"""The metrics of a broker at one moment, as plain numbers that do not depend on a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication import AuthenticationCounts

LATENCY_BOUNDS_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
ENTRY_SIZE_BOUNDS_BYTES = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)


@dataclass(slots=True)
class Histogram:
    """A distribution over the last full statistics period, as in Pulsar.

    The bounds are :data:`LATENCY_BOUNDS_MS` for latencies, and :data:`ENTRY_SIZE_BOUNDS_BYTES` for sizes.
    """

    counts: Sequence[int]
    """The number of values in each bucket, not cumulative: one for each bound, and one for larger values."""
    total: int = 0
    """The sum of all values: microseconds for latencies (as Pulsar prints them), bytes for sizes."""


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
    """The name of a ``ProducerAccessMode``."""
    rate_in: float = 0.0
    throughput_in: float = 0.0
    average_message_size: float = 0.0
    bytes_in: int = 0
    messages_in: int = 0
    dropped: int = 0
    """The number of messages that a non-persistent topic dropped."""


@dataclass(frozen=True, slots=True)
class AckTransactionMetrics:
    """The numbers of transactions that acknowledged messages of a subscription and have ended since the
    subscription was first used."""

    committed: int
    aborted: int
    failed_commits: int
    failed_aborts: int
    commit_latency: TimingMetrics


@dataclass(slots=True)
class SubscriptionMetrics:
    """One subscription; rates are per second, times in milliseconds since 1970."""

    name: str
    type: str = ""
    """The name of a ``SubType``; empty until the first consumer has subscribed."""
    backlog: int = 0
    backlog_no_delayed: int = 0
    delayed: int = 0
    """The number of entries that wait for their delivery time."""
    delay_index_bytes: int = 0
    filter_processed: int = 0
    filter_accepted: int = 0
    filter_rejected: int = 0
    filter_rescheduled: int = 0
    held_back: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    """How often a dispatch rate delayed deliveries, by the owner of the rate (``Subscription``, ``Topic``,
    ``Broker``) and by the limit that was reached: True: messages, False: bytes."""
    transactions: AckTransactionMetrics | None = None
    """The transactions that acknowledged messages of the subscription; None: no transaction did."""
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
    """The rate of messages of a non-persistent topic that no consumer accepted."""
    waits_for: str = ""
    """The name of the reason why no message of the backlog is sent; empty: everything was delivered."""
    waits_seconds: float = 0.0
    consumer_count: int = 0
    consumers: Sequence[ConsumerMetrics] = ()
    """The consumers; empty unless ``exposeConsumerLevelMetricsInPrometheus``."""


@dataclass(slots=True)
class OffloadMetrics:
    """The data that a topic has written to tiered storage and read from it since it was loaded."""

    written_bytes: int = 0
    write_rate: float = 0.0
    """Bytes written per second, in the last minute."""
    write_errors: int = 0
    store_errors: int = 0
    """The number of writes to tiered storage that failed because of an error of tiered storage itself."""
    read_bytes: int = 0
    read_rate: float = 0.0
    """Bytes read per second, in the last minute."""
    read_errors: int = 0
    ledger_reads: TimingMetrics | None = None
    """The durations of reads from the ledger store for offloading; None: no such read took place."""
    index_reads: TimingMetrics | None = None
    """The durations of opening ledgers in tiered storage; None: none was opened."""
    data_reads: TimingMetrics | None = None
    """The durations of reads from tiered storage of data that was not in the cache; None: no such read took
    place."""


@dataclass(slots=True)
class OffloadDeletionMetrics:
    """Deletions of the offloaded ledgers of one topic; the topic itself may have been deleted."""

    namespace: str
    topic: str
    succeeded: int
    failed: int


@dataclass(slots=True)
class CompactionMetrics:
    """Compactions of one topic since it was loaded."""

    removed: int = 0
    """The number of messages that were left out."""
    succeeded: int = 0
    failed: int = 0
    duration_ms: int = 0
    """The duration of the last compaction, in milliseconds."""
    read_throughput: float = 0.0
    """Bytes read per second while compactions ran; ``write_throughput`` is the same for bytes written."""
    write_throughput: float = 0.0
    read_bytes: int = 0
    """The bytes that all compactions have read; ``written_bytes``: the bytes that all compactions have
    written.
    """
    written_bytes: int = 0
    entries: int = 0
    """The number of entries in the ledger of the last compaction; ``size`` is their size in bytes."""
    size: int = 0
    write_latency_ms: Histogram | None = None

    @property
    def duration_seconds(self) -> float:
        return self.duration_ms / 1000


@dataclass(frozen=True, slots=True)
class ReplicationMetrics:
    """The replication of one topic to one other cluster, or to one shadow topic; rates are per second."""

    remote: str
    """The cluster, or the full name of the shadow topic."""
    rate_in: float = 0.0
    """The rate of messages that the other cluster replicates to this cluster, per second."""
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0
    rate_expired: float = 0.0
    backlog: int = 0
    """The number of entries that must still be replicated."""
    connected: bool = False
    delay_seconds: float = 0.0
    """The age in seconds of the oldest entry that was sent and has no receipt yet."""
    lag_seconds: float = 0.0
    """The age in seconds of the oldest entry that the remote cluster has not confirmed, sent or not."""
    unreplicated: int = 0
    """The number of messages that were dropped, or expired or were skipped before they were sent, since the
    topic was loaded."""


@dataclass(slots=True)
class TopicMetrics:
    """A topic, or a partition; rates are per second; storage rates count entries, other rates count
    messages.
    """

    name: str
    """The full name of the topic."""
    namespace: str
    subscriptions: Sequence[SubscriptionMetrics] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    """How often producers or their messages were refused, by the name of the reason."""
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
    """The bytes sent to all consumers, including consumers that have left; ``messages_out`` is the number of
    messages."""
    messages_out: int = 0
    entries_written: int = 0
    entries_read: int = 0
    storage_size: int = 0
    """The stored bytes of all copies."""
    storage_logical_size: int = 0
    """The stored bytes of one copy."""
    backlog: int = 0
    """The number of unconsumed entries, summed over the subscriptions, as in Pulsar."""
    backlog_bytes: int = 0
    offloaded_bytes: int = 0
    open_transactions: int = 0
    aborted_transactions: int = 0
    """The number of aborted transactions since the topic was loaded; :attr:`committed_transactions` is the
    number of committed transactions.
    """
    committed_transactions: int = 0
    backlog_quota_bytes: int = -1
    backlog_quota_seconds: int = -1
    backlog_age_seconds: int = -1
    """The age of the oldest message in the backlog, in seconds, at the last check of quotas; -1: the topic
    has no backlog, or the age is unknown."""
    evictions_by_size: int = 0
    """How often messages were evicted from the backlog because its size exceeded the quota;
    ``evictions_by_time`` counts evictions because of its age.
    """
    evictions_by_time: int = 0
    publish_rate_limited: int = 0
    write_rate: float = 0.0
    read_rate: float = 0.0
    read_cache_misses_rate: float = 0.0
    write_latency_ms: Histogram | None = None
    """The latencies of writes, including the time that entries wait in the queue."""
    ledger_write_latency_ms: Histogram | None = None
    entry_size_bytes: Histogram | None = None
    replication: Sequence[ReplicationMetrics] = ()
    """The metrics of replication, one object for each remote cluster."""
    shadows: Sequence[ReplicationMetrics] = ()
    """The replication to each shadow topic."""
    compaction: CompactionMetrics | None = None
    """The compactions; None: the topic was not compacted."""
    offload: OffloadMetrics | None = None
    """The use of tiered storage; None: the topic does not use it."""
    producers: Sequence[ProducerMetrics] = ()
    """The producers; empty unless ``exposeProducerLevelMetricsInPrometheus``."""

    @property
    def subscription_count(self) -> int:
        return len(self.subscriptions)

    @property
    def subscription_bytes_out(self) -> int:
        """Returns the bytes sent to consumers of existing subscriptions."""
        return sum(each.bytes_out for each in self.subscriptions)

    @property
    def subscription_messages_out(self) -> int:
        return sum(each.messages_out for each in self.subscriptions)

    @property
    def ack_rate(self) -> float:
        return sum(each.ack_rate for each in self.subscriptions)

    @property
    def delayed(self) -> int:
        return sum(each.delayed for each in self.subscriptions)

    @property
    def delay_index_bytes(self) -> int:
        return sum(each.delay_index_bytes for each in self.subscriptions)

    @property
    def in_replay(self) -> int:
        return sum(each.in_replay for each in self.subscriptions)


@dataclass(slots=True)
class ManagedLedgerMetrics:
    """The sums over the managed ledgers of one namespace; rates are per second, and counts are since the
    managed ledgers were opened."""

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
    """The number of entries read from the cache since the start; ``misses``: the number of entries that the
    cache did not have; ``hit_bytes`` and ``missed_bytes``: their sizes.
    """
    misses: int = 0
    hit_bytes: int = 0
    missed_bytes: int = 0


@dataclass(slots=True)
class ConnectionMetrics:
    """Client connections of the binary protocol; counts since the start, except ``active``."""

    active: int = 0
    created: int = 0
    closed: int = 0
    handshakes_succeeded: int = 0
    handshakes_failed: int = 0


@dataclass(slots=True)
class TimingMetrics:
    """Durations in milliseconds: values by quantile over the last minute, and totals since the start."""

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
    """The distribution of the durations of operations that had the same outcome, since the start."""

    bounds: Sequence[float]
    """Upper bounds of the buckets of durations, in seconds."""
    counts: Sequence[int]
    """The number of values in each bucket, and one more number for values above the last bound."""
    seconds: float
    """The sum of all durations, in seconds."""


@dataclass(slots=True)
class LookupMetrics:
    answers: int = 0
    failures: int = 0
    redirects: int = 0
    pending: int = 0
    timing: TimingMetrics = field(default_factory=TimingMetrics)
    durations: Mapping[str, DurationMetrics] = field(default_factory=dict)
    """The durations of lookups by outcome: ``broker``, ``redirect``, ``failure``."""


@dataclass(slots=True)
class SchemaMetrics:
    """The schema registry's metrics for one namespace, since the start."""

    namespace: str
    operations: Sequence[tuple[str, bool, DurationMetrics]]
    """For each kind (``get``, ``list``, ``put``, ``delete``) and success of operations: the durations."""
    compatible: int
    """The number of comparisons with earlier versions that found the new schema compatible."""
    incompatible: int


@dataclass(slots=True)
class QuotaMetrics:
    """Backlog quotas of all topics: evictions since the start, and durations of the checks."""

    evictions_by_size: int = 0
    evictions_by_time: int = 0
    check_bounds: Sequence[float] = ()
    """Upper bounds of the buckets of durations, in seconds."""
    check_counts: Sequence[int] = (0,)
    """The number of checks in each bucket, and one more number for checks above the last bound."""
    check_seconds: float = 0.0
    """The sum of all durations, in seconds."""


@dataclass(slots=True)
class GroupMetrics:
    """The messages and bytes that the topics of one resource group have published (kind ``Publish``) or
    dispatched (``Dispatch``) since the start."""

    name: str
    kind: str
    messages: int
    bytes: int
    updates: int
    """How often the group's rates were changed."""


@dataclass(slots=True)
class MetadataMetrics:
    """The metrics of a metadata store since the process started."""

    name: str
    bounds_ms: Sequence[float]
    """Upper bounds of the buckets, in milliseconds."""
    operations: Sequence[tuple[str, str, Sequence[int], float]]
    """For each kind and outcome of operations: the number of operations in each bucket (one more number for
    longer durations), and the sum of the durations in milliseconds."""
    put_bytes: int


@dataclass(slots=True)
class LoadMetrics:
    """The load balancing metrics of a broker in a cluster."""

    usage: Mapping[str, float]
    """The usage of each resource in percent: ``cpu``, ``memory``, ``directMemory``, ``bandwidth_in``,
    ``bandwidth_out``."""
    relieved_brokers: int
    """How often brokers were relieved of bundles while this broker led the cluster, since this broker
    started; in the same period, ``moved_bundles`` bundles were moved, and ``split_bundles`` were split.
    """
    moved_bundles: int
    split_bundles: int


@dataclass(slots=True)
class CoordinatorMetrics:
    """The numbers of transactions of a coordinator since the coordinator was loaded."""

    number: int
    active: int
    """The number of transactions that have not ended."""
    begun: int
    committed: int
    aborted: int
    timed_out: int
    """The number of transactions that timed out; they count as aborted, too."""
    appended: int
    """The number of records written to the coordinator's log."""
    latency_counts: Sequence[int]
    """The number of transactions by duration, for each bucket of
    :data:`magnetar.broker.flow.rates.TRANSACTION_BOUNDS_MS`, and one more number for longer durations."""


@dataclass(frozen=True, slots=True)
class TransactionEndMetrics:
    """The requests with which this broker's coordinators told a topic and its subscriptions of commits, or of
    aborts."""

    topic: str
    commit: bool
    failed: int
    took: TimingMetrics


@dataclass(frozen=True, slots=True)
class LogBatchMetrics:
    """The batches of records that were written to all logs of one kind."""

    kind: str
    """The kind in the names of metrics: ``tc`` or ``pending_ack_store``."""
    flushes: Mapping[str, int]
    """The number of batches by the reason for writing them; the reason is the suffix of the metric's name."""
    distributions: Sequence[tuple[str, Sequence[float], Sequence[int], float]]
    """Each distribution: the suffix of the metric's name, the bounds, the counts (one more than bounds), and
    the sum of the values."""


@dataclass(slots=True)
class MetricsSnapshot:
    """All metrics in ``/metrics``, as taken by one request."""

    cluster: str
    broker: str
    """The advertised host of the broker."""
    started_seconds: float = 0.0
    """The time when the counts began, in seconds since 1970."""
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
    coordinators: Sequence[CoordinatorMetrics] = ()
    transaction_ends: Sequence[TransactionEndMetrics] = ()
    transaction_ends_pending: int | None = None
    """The number of topics and subscriptions that are being notified of the end of a transaction; None:
    transactions are disabled."""
    log_batches: Sequence[LogBatchMetrics] = ()
    load: LoadMetrics | None = None
    """The metrics of load balancing; None: the broker is standalone."""
    snapshots: SnapshotMetrics | None = None
    """The metrics of replicated subscriptions; None: no topic is replicated to other clusters."""
    offload_deletions: Sequence[OffloadDeletionMetrics] = ()
    """The deletions of offloaded ledgers in the last hour."""
    authentication_counts: Sequence[AuthenticationCounts] = ()
    """Authentications of clients."""
    metadata: Sequence[MetadataMetrics] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    """Magnetar's own gauges by full name (``magnetar_...``), without labels."""
