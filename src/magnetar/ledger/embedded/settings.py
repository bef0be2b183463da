"""Sizes and thresholds of the embedded store."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.segment_header import SEGMENT_HEADER_BYTES

_MAX_SEGMENT_BYTES = 1 << 31


@dataclass(frozen=True)
class EmbeddedSettings:
    """All sizes in bytes."""

    segment_bytes: int = 64 << 20
    """Of a segment file; an entry that is larger gets a segment of its own."""
    first_segment_bytes: int = 1 << 20
    """Of the first segment after a start, which must be there before the store serves."""
    segment_runs: int = 100_000
    """A segment is sealed after so many runs even when there is room: it bounds the time of a replay and the
    memory of the index that is not yet on disk."""
    group_bytes: int = 4 << 20
    """A group is ended at about this size."""
    run_bytes: int = 256 << 10
    """A run is ended at about this size: a read takes in whole runs."""
    commit_bytes: int = 16 << 20
    """Groups written and synced together."""
    zero_fill_bytes: int = 1 << 20
    """Step in which a new segment is filled with zeros, so that commits get their turn at the device."""
    idle_seconds: float = 0.05
    """So long after the last group the log is idle and an empty group confirms it."""
    reader_workers: int = 2
    reads_in_flight_bytes: int = 32 << 20
    """What readers may have asked for and not yet got, all together."""
    coalesce_gap_bytes: int = 16 << 10
    """Two runs of a ledger with less than this between them are read at once."""
    index_cache_bytes: int = 16 << 20
    """Indexes of sealed segments kept in memory."""
    open_segments: int = 64
    """Sealed segments kept open for reading."""
    free_segments: int = 2
    """Dead segments kept to be used again; more are removed."""
    read_plans: int = 1000
    """Plans that may be held at the same time."""
    reserve_bytes: int = 64 << 20
    """Kept for a full device: for cursors, changes of ledgers, indexes and checkpoints."""
    entry_free_bytes: int = 0
    """A segment for entries leaves at least so much of the device free."""
    full_share: float = 1.0
    """Of the device's bytes: a segment for entries never takes its use above this."""
    gc_wait_seconds: float = 0.0
    """At least so much time lies between two looks for segments to rewrite."""
    minor_compaction_threshold: float = 0.2
    """A sealed segment of which less than this share is wanted is rewritten by a minor compaction."""
    minor_compaction_interval: float = 0.0
    """Seconds between minor compactions; 0: whenever there is something to do."""
    major_compaction_threshold: float = 0.5
    major_compaction_interval: float = 0.0
    compaction_share: float = 0.1
    """Of the time, at most, that is spent on rewriting."""
    compaction_group_bytes: int = 64 << 10
    """Groups of rewritten segments are ended at about this size; the log gets its turn between two."""
    compaction_bytes_per_second: float = 0.0
    """Rewritten at most; 0: only the share bounds it."""
    compaction_entries_per_second: float = 0.0
    sort_behind: int = 4
    """A segment of the log with so many sealed after it is rewritten once, sorted by ledger, unless its runs
    are long already."""
    sorted_run_bytes: int = 64 << 10
    """Runs of this length on average are long."""
    small_segments: int = 8
    """So many sealed segments under half the size are merged."""
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
