"""Settings of a simulated broker: as shipped, or so small that every limit is met within a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from simulated_io.worker import LONGEST_DELAY

from magnetar.broker.flow import outgoing
from magnetar.broker.flow.connection import KeepAlive
from magnetar.broker.policies.values import Retention
from magnetar.config.settings import Settings, default_settings
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings, RetentionSettings
from magnetar.server import serving, standalone
from magnetar.server.settings import broker_settings
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.offloading import Tiered

BROKER_PORT = 6650
FOREVER = RetentionSettings(time_ms=-1, size_bytes=-1)

_METADATA_RESERVE_BYTES = 64 << 10
_STORES = (
    EmbeddedSettings(segment_bytes=256 << 10, first_segment_bytes=64 << 10, reserve_bytes=256 << 10),
    EmbeddedSettings(
        segment_bytes=64 << 10,
        first_segment_bytes=16 << 10,
        segment_runs=60,
        group_bytes=4096,
        run_bytes=1024,
        commit_bytes=16 << 10,
        zero_fill_bytes=16 << 10,
        idle_seconds=0.02,
        reads_in_flight_bytes=16 << 10,
        coalesce_gap_bytes=512,
        index_cache_bytes=2000,
        open_segments=2,
        free_segments=2,
        reserve_bytes=0,
        sort_behind=2,
        sorted_run_bytes=2048,
        small_segments=3,
    ),
)


@dataclass
class Limits:
    """What one seed's broker is started with, each time."""

    settings: Settings
    store: EmbeddedSettings
    ledgers: ManagedLedgerSettings
    cache: EntryCacheSettings
    broker: dict[str, Any] = field(default_factory=dict)
    """Fields of ``BrokerSettings`` that are not as the settings say."""
    outgoing_bytes: int = outgoing.MESSAGES_HIGH_WATER
    """Unsent bytes of a connection beyond which it gets no messages; eight times that, and it is not read."""

    disk_seconds: float = LONGEST_DELAY
    """How long a job of the disk, or another worker's, takes at most."""
    at_hand: float = 0.7
    """Share of reads that need not wait for the disk."""

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever trimmed."""
        return self.ledgers.retention == FOREVER

    @property
    def cursor_interval(self) -> float:
        """Seconds within which an acknowledgement is on its way to the disk."""
        return self.store.cursor_write_interval


def draw(random: Random) -> Limits:
    """One seed in three runs as shipped, but for sizes of files."""
    limits = _draw(random)
    limits.disk_seconds = random.choice((LONGEST_DELAY, LONGEST_DELAY, 0.02, 0.1))
    limits.at_hand = random.choice((0.0, 0.7, 1.0))
    return limits


def deduplicating(limits: Limits, random: Random) -> Limits:
    """The same with a broker that stores each entry once; three seeds in ten, others stay as they are."""
    if random.random() > 0.3:
        return limits
    settings = replace(
        limits.settings,
        broker_deduplication_enabled=True,
        broker_deduplication_entries_interval=random.choice((1, 2, 5, 20, 1000)),
        broker_deduplication_snapshot_frequency_in_seconds=random.choice((1, 120)),
        broker_deduplication_snapshot_interval_seconds=random.choice((1, 120)),
    )
    store = replace(limits.store, cursor_write_interval=random.choice((0.001, 0.02, 0.1)))
    seconds = random.choice((limits.disk_seconds, 0.02, 0.1))
    return replace(limits, settings=settings, store=store, disk_seconds=seconds)


def rated(limits: Limits, random: Random) -> Limits:
    """The same with rates of dispatch, marks in front of entries, and pauses; half of the seeds have none.

    The rates are so high that all is delivered in the time there is, and so low that most runs wait for them.
    """
    if random.random() < 0.5:
        return limits
    marks = random.choice(((), ("Index",), ("BrokerTimestamp",), ("Index", "BrokerTimestamp")))
    settings = replace(
        limits.settings,
        dispatch_throttling_rate_in_msg=random.choice((0, 0, 200)),
        dispatch_throttling_rate_per_topic_in_msg=random.choice((0, 50, 500)),
        dispatch_throttling_rate_per_topic_in_byte=random.choice((0, 0, 50_000)),
        dispatch_throttling_rate_per_subscription_in_msg=random.choice((0, 30, 300)),
        dispatch_throttling_rate_per_subscription_in_byte=random.choice((0, 0, 20_000)),
        dispatch_throttling_rate_relative_to_publish_rate=random.random() < 0.3,
        dispatch_throttling_on_batch_message_enabled=random.random() < 0.3,
        dispatch_throttling_on_non_backlog_consumer_enabled=random.random() < 0.7,
        dispatcher_pause_on_ack_state_persistent_enabled=random.random() < 0.3,
        broker_entry_metadata_interceptors=tuple(
            f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor" for name in marks
        ),
    )
    return replace(limits, settings=settings)


def indebted(limits: Limits, random: Random) -> Limits:
    """The same with a rate of publishing, in one seed of eight: a batch is a debt of several keep-alives."""
    if random.random() > 0.125:
        return limits
    settings = replace(
        limits.settings,
        max_publish_rate_per_topic_in_messages=random.choice((10, 20)),
        keep_alive_interval_seconds=1,
    )
    return replace(limits, settings=settings)


def delaying(limits: Limits, random: Random) -> Limits:
    """The same with a broker that keeps few delivery times in memory."""
    settings = replace(
        limits.settings,
        delayed_delivery_tick_time_millis=random.choice((1, 100, 1000)),
        delayed_delivery_fixed_delay_detection_lookahead=random.choice((0, 3, 50_000)),
        magnetar_delayed_messages_in_memory=random.choice((1, 4, 20, 100_000)),
    )
    return replace(limits, settings=settings)


def transactional(limits: Limits, random: Random) -> Limits:
    """The same with transactions, whose state is stored often."""
    batched = random.random() < 0.3
    settings = replace(
        limits.settings,
        transaction_coordinator_enabled=True,
        transaction_buffer_snapshot_max_transaction_count=random.choice((1, 3, 1000)),
        transaction_buffer_snapshot_min_time_in_millis=random.choice((100, 5000)),
        transaction_buffer_segmented_snapshot_enabled=random.random() < 0.5,
        transaction_buffer_snapshot_segment_size=random.choice((55, 60, 1000)),
        transaction_pending_ack_log_index_min_lag=random.choice((1, 5, 500)),
        transaction_log_batched_write_enabled=batched,
        transaction_pending_ack_batched_write_enabled=batched,
    )
    return replace(limits, settings=settings)


def _draw(random: Random) -> Limits:
    settings = default_settings(
        broker_service_port=BROKER_PORT,
        min_usable_size_for_high_priority_writes=_METADATA_RESERVE_BYTES * 4,
        default_number_of_namespace_bundles=4,
        acknowledgment_at_batch_index_level_enabled=random.random() < 0.6,
        keep_alive_interval_seconds=random.choice((2, 5, 30)),
    )
    managed = ManagedLedgerSettings()
    retention = FOREVER if random.random() < 0.3 else RetentionSettings()
    if random.random() < 0.33:
        managed = replace(managed, retention=retention)
        return Limits(settings, random.choice(_STORES), managed, EntryCacheSettings())
    few = random.random() < 0.15
    managed = ManagedLedgerSettings(
        max_entries_per_ledger=random.choice((3, 7, 20)),
        min_rollover_ms=random.choice((0, 0, 50)),
        cursor_max_entries_per_ledger=random.choice((3, 20)),
        max_unacked_ranges_to_persist=2 if few else 10_000,
        max_unacked_ranges_in_metadata=random.choice((0, 2, 1000)),
        read_max_entries=random.choice((0, 1, 3)),
        read_ahead_bytes=random.choice((1, 2048, 1 << 20)),
        backlogged_threshold=random.choice((0, 5, 1000)),
        retention=retention,
    )
    cache = EntryCacheSettings(
        max_bytes=random.choice((0, 4 << 10, 64 << 10)), max_age_seconds=random.choice((0.02, 1.0))
    )
    settings = replace(
        settings,
        max_pending_publish_requests_per_connection=random.choice((1, 3, 1000)),
        max_unacked_messages_per_consumer=random.choice((0, 4, 30, 50_000)),
        max_unacked_messages_per_subscription=random.choice((0, 6, 200_000)),
        dispatcher_max_read_batch_size=random.choice((1, 5, 100)),
        dispatcher_max_read_size_bytes=random.choice((100, 5000, 5 << 20)),
        dispatcher_max_round_robin_batch_size=random.choice((1, 3, 20)),
        stats_update_frequency_in_secs=1,
        retention_check_interval_in_seconds=1,
    )
    own = {"max_publish_buffer": random.choice((1, 5000, 1 << 20)), "max_partial_frames": 50_000}
    return Limits(settings, random.choice(_STORES), managed, cache, own, random.choice((2000, 1 << 20)))


@contextmanager
def in_effect(limits: Limits, tiered: Tiered | None = None) -> Iterator[None]:
    """Standalone brokers that start meanwhile take these limits for those of their settings file.

    :param tiered: what they offload, and where to; None: nothing
    """

    def own_settings(*args: Any) -> Any:
        made = replace(broker_settings(*args), **limits.broker)
        retention = Retention(-1, -1) if limits.keeps_all else Retention()
        policies = replace(made.policies, retention=retention)
        if tiered is not None:
            policies = replace(policies, offload=tiered.policies)
        return replace(made, policies=policies)

    check = KeepAlive._check

    def checked(self: KeepAlive) -> None:
        """A client that the broker does not read because of a rate is not dead."""
        connection: Any = self._connection
        owes = connection.publishing.slowed > 0 and not connection.closed
        check(self)
        if owes and connection.closed:
            raise Violation(f"{connection.address} is closed as silent, and is not read because of a rate")

    changed: dict[Any, dict[str, Any]] = {
        KeepAlive: {"_check": checked},
        standalone: {
            "embedded_settings": lambda _settings: limits.store,
            "managed_ledger_settings": lambda _settings: limits.ledgers,
            "entry_cache_settings": lambda _settings: limits.cache,
        },
        serving: {"broker_settings": own_settings},
        outgoing: {
            "MESSAGES_HIGH_WATER": limits.outgoing_bytes,
            "REQUESTS_HIGH_WATER": 8 * limits.outgoing_bytes,
        },
    }
    if tiered is not None:
        bucket = tiered.bucket
        changed[standalone]["offload_driver"] = lambda _settings: bucket.open_driver
    before = {module: {name: getattr(module, name) for name in names} for module, names in changed.items()}
    try:
        for module, values in changed.items():
            for name, value in values.items():
                setattr(module, name, value)
        yield
    finally:
        for module, values in before.items():
            for name, value in values.items():
                setattr(module, name, value)
