"""Settings of managed ledgers; the names in parentheses are Pulsar's."""

from __future__ import annotations

from dataclasses import field

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import Quorums


@dataclass(frozen=True)
class RetentionSettings:
    """How long acknowledged entries are kept. If either limit is 0, acknowledged entries are not kept at all;
    a limit of -1 means no limit.

    A ledger with acknowledged entries only is deleted when it has been closed for more than ``time_ms``, or
    when the other ledgers still have at least ``size_bytes``.
    """

    time_ms: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class OffloadStorage:
    """A store to which ledgers are offloaded."""

    driver: str
    """The driver, one of the values of ``managedLedgerOffloadDriver``."""
    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The other settings of the driver, by Pulsar's names, including credentials."""


@dataclass(frozen=True)
class OffloadPolicy:
    """When and where ledgers of a managed ledger are offloaded."""

    storage: OffloadStorage
    threshold_bytes: int = -1
    """A ledger is offloaded if it and all younger ledgers together have more bytes than this; -1: never."""
    threshold_seconds: int = -1
    """The age in seconds, since its closing, at which a ledger is offloaded; -1: never."""
    deletion_lag_ms: int = 4 * 3600 * 1000
    """How long the copy in the ledger store is kept after the offload, in ms."""
    tiered_first: bool = True
    """Whether a ledger is read from tiered storage while the ledger store also has it."""
    on_load: bool = False
    """Whether due ledgers are offloaded as soon as the topic is loaded; otherwise when the next ledger is
    started or at the next regular check."""


@dataclass(frozen=True)
class ManagedLedgerSettings:
    max_entries_per_ledger: int = 50_000
    """A new ledger is started at this number of entries (managedLedgerMaxEntriesPerLedger)."""
    max_bytes_per_ledger: int = 2048 * 1024 * 1024
    """A new ledger is started at this size in bytes (managedLedgerMaxSizePerLedgerMbytes)."""
    min_rollover_ms: int = 10 * 60_000
    """The age in ms below which a ledger is not replaced by a new one, however full it is
    (managedLedgerMinLedgerRolloverTimeMinutes)."""
    max_rollover_ms: int = 240 * 60_000
    """The age in ms at which a ledger with entries is replaced by a new one, even if it is not full
    (managedLedgerMaxLedgerRolloverTimeMinutes)."""
    cursor_max_entries_per_ledger: int = 50_000
    """The maximum number of entries in a cursor's ledger (managedLedgerCursorMaxEntriesPerLedger)."""
    cursor_rollover_ms: int = 14_400_000
    """The age in ms at which a cursor starts a new ledger (managedLedgerCursorRolloverTimeInSeconds)."""
    max_unacked_ranges_to_persist: int = 10_000
    """The maximum number of ranges of individually deleted entries that a cursor stores as ranges
    (managedLedgerMaxUnackedRangesToPersist)."""
    holes_as_bits: bool = False
    """Whether individually deleted entries are always written as bits
    (managedLedgerPersistIndividualAckAsLongArray). If false, bits are used only with the embedded ledger
    store, and only for more than ``max_unacked_ranges_to_persist`` ranges."""
    max_batch_indexes_to_persist: int = 10_000
    """The maximum number of partly acknowledged batches that a cursor stores
    (managedLedgerMaxBatchDeletedIndexToPersist)."""
    max_unacked_ranges_in_metadata: int = 1_000
    """The maximum number of ranges of individually deleted entries that a closed cursor stores in metadata
    (managedLedgerMaxUnackedRangesToPersistInMetadataStore)."""
    mark_delete_rate: float = 1.0
    """The maximum number of writes of a cursor per second, unless the ledger store sets the interval
    (managedLedgerDefaultMarkDeleteRateLimit)."""
    cursor_flush_seconds: float = 60.0
    """The maximum delay of a throttled cursor write, in seconds (managedLedgerCursorPositionFlushSeconds)."""
    quorums: Quorums = field(default_factory=Quorums)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    read_max_entries: int = 0
    """The maximum number of entries per read from the ledger store; 0: only bytes are limited
    (magnetarReadMaxEntries)."""
    read_ahead_bytes: int = 1024 * 1024
    """The maximum number of bytes per read from the ledger store."""
    skip_lost_data: bool = False
    """Whether cursors skip lost data (autoSkipNonRecoverableData); may be changed while the broker runs."""
    backlogged_threshold: int = 1_000
    """Entries are not cached for a cursor with more entries than this left to read
    (managedLedgerCursorBackloggedThreshold)."""

    def room(self, entries: int, size: int, age_ms: int) -> int:
        """Returns how many more entries a ledger accepts.

        :param entries: the number of entries that the ledger has
        :param size: the total size of these entries, in bytes
        :param age_ms: the time since the ledger was created, in ms
        """
        if age_ms < self.min_rollover_ms:
            return 2**62
        if size >= self.max_bytes_per_ledger:
            return 0
        if entries and age_ms >= self.max_rollover_ms:
            return 0
        return max(0, self.max_entries_per_ledger - entries)


@dataclass(frozen=True)
class EntryCacheSettings:
    max_bytes: int = 64 * 1024 * 1024
    """The size of the cache, in bytes, above which entries are evicted (managedLedgerCacheSizeMB)."""
    watermark: float = 0.9
    """The fraction of ``max_bytes`` to which a cache that is too large is reduced
    (managedLedgerCacheEvictionWatermark)."""
    interval_seconds: float = 0.01
    """The time between two evictions by age, in seconds (managedLedgerCacheEvictionIntervalMs)."""
    max_age_seconds: float = 1.0
    """The age in seconds at which entries are evicted (managedLedgerCacheEvictionTimeThresholdMillis)."""
