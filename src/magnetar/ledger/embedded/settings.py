"""Sizes and thresholds of the embedded store."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.segment_header import SEGMENT_HEADER_BYTES

_MAX_SEGMENT_BYTES = 1 << 31


@dataclass(frozen=True)
class EmbeddedSettings:
    """Settings of the embedded ledger store; all sizes are in bytes."""

    segment_bytes: int = 64 << 20
    """The size of a segment file; a larger entry gets its own segment."""
    first_segment_bytes: int = 1 << 20
    """The size of the first segment after a start, which must be ready before the store serves."""
    segment_runs: int = 100_000
    """A segment is sealed after this many runs even if there is room: this limits the time of a replay, and
    the memory of the index that is not yet on disk."""
    group_bytes: int = 4 << 20
    """A group is ended at about this size."""
    run_bytes: int = 256 << 10
    """A run is ended at about this size: a read takes whole runs."""
    commit_bytes: int = 16 << 20
    """The most bytes of groups that are written and synced together."""
    zero_fill_bytes: int = 1 << 20
    """The step in which a new segment is filled with zeros, so that commits get their turn at the device."""
    idle_seconds: float = 0.05
    """After this time without a commit the log counts as idle, and writes an empty group, which declares the
    last one durable."""
    reader_workers: int = 2
    reads_in_flight_bytes: int = 32 << 20
    """The limit of requested and not yet returned bytes of all readers together."""
    coalesce_gap_bytes: int = 16 << 10
    """Two runs of a ledger with a smaller gap between them are read together."""
    index_cache_bytes: int = 16 << 20
    """Indexes of sealed segments that are kept in memory."""
    open_segments: int = 64
    """Sealed segments that are kept open for reading."""
    free_segments: int = 2
    """Dead segments that are kept for reuse; further ones are removed."""
    read_plans: int = 1000
    """The most read plans at the same time."""
    reserve_bytes: int = 64 << 20
    """Reserved for a full device: for cursors, changes of ledgers, indexes and checkpoints."""
    entry_free_bytes: int = 0
    """A segment for entries leaves at least this much of the device free."""
    full_share: float = 1.0
    """The share of the device's bytes above which no new segment for entries may take the device's use."""
    gc_wait_seconds: float = 0.0
    """The shortest time between two searches for segments to rewrite."""
    minor_compaction_threshold: float = 0.2
    """A sealed segment with a smaller live share is rewritten by a minor compaction."""
    minor_compaction_interval: float = 0.0
    """Seconds between minor compactions; 0: whenever there is something to do."""
    major_compaction_threshold: float = 0.5
    major_compaction_interval: float = 0.0
    compaction_share: float = 0.1
    """The largest share of time for rewriting."""
    compaction_group_bytes: int = 64 << 10
    """Groups of rewritten segments are ended at about this size; the log gets its turn between two groups."""
    compaction_bytes_per_second: float = 0.0
    """The limit for rewriting; 0: only the share limits it."""
    compaction_entries_per_second: float = 0.0
    sort_behind: int = 4
    """A segment of the log with this many sealed segments after it is rewritten once, sorted by ledger,
    unless its runs are long already."""
    sorted_run_bytes: int = 64 << 10
    """The average length from which on runs count as long."""
    small_segments: int = 8
    """The number of sealed segments below half the size at which they are merged."""
    cursor_write_interval: float = 0.1
    """Seconds; see ``LedgerStore.cursor_write_interval``."""

    def __post_init__(self) -> None:
        smallest = 4 * SEGMENT_HEADER_BYTES
        for name in ("segment_bytes", "first_segment_bytes"):
            value = getattr(self, name)
            if not smallest <= value <= _MAX_SEGMENT_BYTES:
                raise ValueError(f"{name} must be from {smallest} to {_MAX_SEGMENT_BYTES}, not {value}")
        for name in ("minor_compaction_threshold", "major_compaction_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")
        if not 0 < self.compaction_share <= 1:
            raise ValueError(f"compaction_share must be above 0 and at most 1, not {self.compaction_share}")
        for name in (
            "segment_runs",
            "group_bytes",
            "run_bytes",
            "commit_bytes",
            "zero_fill_bytes",
            "compaction_group_bytes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
