"""What steers managed ledgers; the names in parentheses are Pulsar's settings."""

from __future__ import annotations

from dataclasses import field

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import Quorums


@dataclass(frozen=True)
class RetentionSettings:
    """How long acknowledged entries stay. Zero for either keeps none; -1 switches that bound off.

    A ledger goes when its time is exceeded or the retained size without it still reaches the limit.
    """

    time_ms: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class ManagedLedgerSettings:
    max_entries_per_ledger: int = 50_000
    """Roll at so many entries (managedLedgerMaxEntriesPerLedger)."""
    max_bytes_per_ledger: int = 2048 * 1024 * 1024
    """Roll at so many bytes (managedLedgerMaxSizePerLedgerMbytes)."""
    min_rollover_ms: int = 10 * 60_000
    """Not before, whatever entries and bytes say (managedLedgerMinLedgerRolloverTimeMinutes)."""
    max_rollover_ms: int = 240 * 60_000
    """At the latest, if it has entries (managedLedgerMaxLedgerRolloverTimeMinutes)."""
    cursor_max_entries_per_ledger: int = 50_000
    """(managedLedgerCursorMaxEntriesPerLedger)"""
    cursor_rollover_ms: int = 14_400_000
    """(managedLedgerCursorRolloverTimeInSeconds)"""
    max_unacked_ranges_to_persist: int = 10_000
    """(managedLedgerMaxUnackedRangesToPersist)"""
    holes_as_bits: bool = False
    """Holes are always written as a bit for each entry (managedLedgerPersistIndividualAckAsLongArray); else
    only more than ``max_unacked_ranges_to_persist`` of them, where the ledger store is the embedded one."""
    max_batch_indexes_to_persist: int = 10_000
    """(managedLedgerMaxBatchDeletedIndexToPersist)"""
    max_unacked_ranges_in_metadata: int = 1_000
    """(managedLedgerMaxUnackedRangesToPersistInMetadataStore)"""
    mark_delete_rate: float = 1.0
    """Cursor writes a second where the ledger store has no interval of its own
    (managedLedgerDefaultMarkDeleteRateLimit)."""
    cursor_flush_seconds: float = 60.0
    """A throttled cursor is written at the latest after this (managedLedgerCursorPositionFlushSeconds)."""
    quorums: Quorums = field(default_factory=Quorums)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    read_max_entries: int = 0
    """Most entries taken from the ledger store at once; 0 for no bound but bytes (magnetarReadMaxEntries)."""
    read_ahead_bytes: int = 1024 * 1024
    """Bytes asked of the ledger store at once."""
    skip_lost_data: bool = False
    """Whether cursors go on behind what is gone for good (autoSkipNonRecoverableData); it may be changed
    later."""
    backlogged_threshold: int = 1_000
    """A cursor so many entries behind is not served by keeping entries cached for it
    (managedLedgerCursorBackloggedThreshold)."""

    def room(self, entries: int, size: int, age_ms: int) -> int:
        """Entries that still go to a ledger of ``entries`` entries, ``size`` bytes and that age."""
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
    """(managedLedgerCacheSizeMB)"""
    watermark: float = 0.9
    """Share kept after an eviction (managedLedgerCacheEvictionWatermark)."""
    interval_seconds: float = 0.01
    """(managedLedgerCacheEvictionIntervalMs)"""
    max_age_seconds: float = 1.0
    """(managedLedgerCacheEvictionTimeThresholdMillis)"""
