"""All segments with entries, and their states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from magnetar.invariants import must, violated
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.checkpoint import SealedSegment
from magnetar.ledger.embedded.segment_supply import LogSegment


class SegmentState(Enum):
    """The states of a segment. A prepared file, and a file kept for reuse, have no entries and are not in the
    table."""

    GROWING = "growing"
    """The log writes to the segment; the segment's index is in memory."""
    FULL = "full"
    """The log has continued in the next segment; the index is still in memory only."""
    REWRITTEN = "rewritten"
    """A compaction wrote the segment, and ledgers are being switched to it."""
    SEALED = "sealed"
    """The segment has an index file, and checkpoints name it."""
    LEAVING = "leaving"
    """None of its entries is needed, and a checkpoint that does not name it is being written."""
    DEAD = "dead"
    """No checkpoint names the segment, which is removed as soon as it has no readers."""


_FOLLOWING: Mapping[SegmentState | None, frozenset[SegmentState | None]] = {
    None: frozenset((SegmentState.GROWING, SegmentState.REWRITTEN, SegmentState.SEALED, SegmentState.DEAD)),
    SegmentState.GROWING: frozenset((SegmentState.FULL,)),
    SegmentState.FULL: frozenset((SegmentState.SEALED,)),
    SegmentState.REWRITTEN: frozenset((SegmentState.SEALED,)),
    SegmentState.SEALED: frozenset((SegmentState.LEAVING,)),
    SegmentState.LEAVING: frozenset((SegmentState.DEAD,)),
    SegmentState.DEAD: frozenset((None,)),
}
"""The states that may follow a state; None: the segment is not in the table."""
_IN_MEMORY = (SegmentState.GROWING, SegmentState.FULL)


@dataclass(slots=True)
class Segment:
    """A segment and its state: one row of :class:`SegmentTable`."""

    segment_id: int
    state: SegmentState | None = None
    log: LogSegment | None = None
    """The segment of the log, while its index is in memory; None: the index is in a file."""
    next_sequence: int = 0
    """The sequence number of the first group of the next segment, once this one is full."""
    sealed: SealedSegment | None = None
    """The segment's row in checkpoints, once it has an index file."""
    damaged: bool = False
    """Whether the segment could not be read to be rewritten, so that it is kept unchanged."""


class SegmentTable:
    """The segments. Each is in exactly one state, which only the methods of this class change.

    :param next_id: the id of the next new segment
    """

    def __init__(self, next_id: int) -> None:
        self.next_id = next_id
        self._rows: dict[int, Segment] = {}
        self._by_state: dict[SegmentState, dict[int, Segment]] = {state: {} for state in SegmentState}

    def take_id(self) -> int:
        """Returns an id that no segment has had."""
        segment_id = self.next_id
        self.next_id += 1
        return segment_id

    def get(self, segment_id: int) -> Segment | None:
        return self._rows.get(segment_id)

    def of(self, state: SegmentState) -> Mapping[int, Segment]:
        """Returns the segments in a state by id, in the order in which they entered it."""
        return self._by_state[state]

    def begin(self, log: LogSegment) -> None:
        """Adds the segment to which the log now writes."""
        self._move(Segment(log.segment_id, log=log), SegmentState.GROWING)

    def fill(self, segment_id: int, next_sequence: int) -> None:
        """Records that the log has continued in the next segment."""
        segment = self._rows[segment_id]
        segment.next_sequence = next_sequence
        self._move(segment, SegmentState.FULL)
        growing = self._by_state[SegmentState.GROWING]
        if len(growing) > 1:
            violated(None, "segments to which the log writes", "one", list(growing))

    def rewritten(self, sealed: SealedSegment) -> None:
        """Adds a segment that a compaction has written, durably, with its index."""
        self._move(Segment(sealed.segment_id, sealed=sealed), SegmentState.REWRITTEN)

    def seal(self, sealed: SealedSegment) -> None:
        """Records that a segment has its index file, and that its parts of ledgers no longer change."""
        segment = self._rows.get(sealed.segment_id) or Segment(sealed.segment_id)
        segment.sealed = sealed
        segment.log = None
        self._move(segment, SegmentState.SEALED)

    def leave(self, segment_id: int) -> None:
        """Records that a checkpoint without the segment is being written."""
        self._move(self._rows[segment_id], SegmentState.LEAVING)

    def die(self, segment_id: int) -> None:
        """Records that no checkpoint names the segment any more."""
        self._move(self._rows[segment_id], SegmentState.DEAD)

    def add_leftovers(self, segment_ids: Iterable[int]) -> None:
        """Adds files that an earlier process left and that no checkpoint will name."""
        for segment_id in segment_ids:
            self._move(Segment(segment_id), SegmentState.DEAD)

    def remove(self, segment_id: int) -> None:
        """Removes a segment whose file is being removed."""
        self._move(self._rows[segment_id], None)

    def may_grow(self, segment_id: int) -> bool:
        """Whether parts of ledgers in a segment may still grow, or have no index file yet."""
        segment = self._rows.get(segment_id)
        return segment is not None and segment.log is not None

    def end_of(self, segment_id: int) -> int:
        """Returns the end of the last group of a segment with an index file."""
        sealed = self._rows[segment_id].sealed
        if sealed is None:
            raise AssertionError(f"segment {segment_id} has no end yet")
        return sealed.end

    def sealed(self) -> list[SealedSegment]:
        """Returns the rows of all sealed segments for a checkpoint."""
        return [each.sealed for each in self._by_state[SegmentState.SEALED].values() if each.sealed]

    def stored_bytes(self) -> int:
        """Returns the bytes of the files of all segments that are not being written, if their size is
        known."""
        return sum(
            row.log.end if row.log is not None else row.sealed.size if row.sealed is not None else 0
            for row in self._rows.values()
            if row.state is not SegmentState.GROWING
        )

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: a segment is not in exactly one state, or lacks what its state requires
        """
        listed = sum(map(len, self._by_state.values()))
        must(listed == len(self._rows), len(self._rows), "segments are in", listed, "states")
        must(len(self.of(SegmentState.GROWING)) <= 1, "the log writes to several segments")
        for state, rows in self._by_state.items():
            for segment_id, row in rows.items():
                must(self._rows.get(segment_id) is row, "segment", segment_id, "has another row in the table")
                must(row.state is state, "segment", segment_id, "is", row.state, "and listed as", state)
                must(row.segment_id == segment_id < self.next_id, "segment", segment_id, "has a wrong id")
                in_memory = state in _IN_MEMORY
                must((row.log is not None) is in_memory, "segment", segment_id, state, "and its index")
                known = row.sealed is not None or in_memory or state is SegmentState.DEAD
                must(known, "segment", segment_id, state, "without its figures")
        full = list(self.of(SegmentState.FULL))
        must(sorted(full) == full, "full segments", full, "are not in the order of the log")

    def _move(self, segment: Segment, state: SegmentState | None) -> None:
        before, segment_id = segment.state, segment.segment_id
        must(state in _FOLLOWING[before], "segment", segment_id, "goes from", before, "to", state)
        if before is None:
            must(segment_id not in self._rows, "segment", segment_id, "is there twice")
            self._rows[segment_id] = segment
        else:
            del self._by_state[before][segment_id]
        segment.state = state
        if state is None:
            del self._rows[segment_id]
        else:
            self._by_state[state][segment_id] = segment
