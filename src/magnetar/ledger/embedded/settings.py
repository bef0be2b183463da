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
    """The number of runs at which a segment is sealed even if it has room. This number limits the time of a
    replay, and the memory of the index that is not yet on disk."""
    group_bytes: int = 4 << 20
    """The approximate size at which a group ends."""
    run_bytes: int = 256 << 10
    """The approximate size at which a run (consecutive entries of one ledger in a group) ends; a read takes
    whole runs."""
    commit_bytes: int = 16 << 20
    """The maximum number of bytes in groups that are written and synced together."""
    zero_fill_bytes: int = 1 << 20
    """The number of bytes of a new segment that are filled with zeros at a time; between two such steps,
    commits can use the device."""
    idle_seconds: float = 0.05
    """The time without a commit after which the log counts as idle, and writes an empty group that declares
    the last group durable."""
    reader_workers: int = 2
    reads_in_flight_bytes: int = 32 << 20
    """The maximum number of bytes that all readers together have requested and not yet received."""
    coalesce_gap_bytes: int = 16 << 10
    """The gap in bytes below which two runs of a ledger are read together."""
    index_cache_bytes: int = 16 << 20
    """The maximum size of cached indexes of sealed segments."""
    open_segments: int = 64
    """The maximum number of sealed segments that are kept open for reading."""
    free_segments: int = 2
    """The number of dead segments that are kept for reuse; further ones are removed."""
    read_plans: int = 1000
    """The maximum number of read plans at the same time."""
    reserve_bytes: int = 64 << 20
    """The space that is reserved for cursors, changes of ledgers, indexes and checkpoints when the device is
    full."""
    entry_free_bytes: int = 0
    """The bytes of the device that a new segment for entries must leave free."""
    full_share: float = 1.0
    """The used share of the device above which no new segment for entries is created."""
    gc_wait_seconds: float = 0.0
    """The minimum time in seconds between two searches for segments to rewrite."""
    minor_compaction_threshold: float = 0.2
    """The share of live bytes, 0 to 1, below which a minor compaction rewrites a sealed segment."""
    minor_compaction_interval: float = 0.0
    """Seconds between minor compactions; 0: whenever a segment is due."""
    major_compaction_threshold: float = 0.5
    major_compaction_interval: float = 0.0
    compaction_share: float = 0.1
    """The maximum share of time for rewriting segments, 0 to 1."""
    compaction_group_bytes: int = 64 << 10
    """The approximate size at which groups of rewritten segments end; the log can write between two
    groups."""
    compaction_bytes_per_second: float = 0.0
    """The maximum number of bytes that are rewritten per second; 0: only the share of time is limited."""
    compaction_entries_per_second: float = 0.0
    sort_behind: int = 4
    """A segment of the log is rewritten once, sorted by ledger, when this many sealed segments follow it,
    unless its runs are already long (see ``sorted_run_bytes``)."""
    sorted_run_bytes: int = 64 << 10
    """The runs of a segment count as long if their average length is at least this number of bytes."""
    small_segments: int = 8
    """Sealed segments below half the normal size are merged when there are at least this many of them."""
    cursor_write_interval: float = 0.1
    """The seconds between two writes of a changed cursor; see ``LedgerStore.cursor_write_interval``."""

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
