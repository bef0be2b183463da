"""All segments that hold entries, and the state of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from magnetar.invariants import must
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.checkpoint import SealedSegment
from magnetar.ledger.embedded.segment_supply import LogSegment


class SegmentState(Enum):
    """Where a segment is on its way. Before it there is a file made ready, behind it one kept for later use:
    neither holds entries, and neither is in the table."""

    GROWING = "growing"
    """The log writes to it; its index is in memory."""
    FULL = "full"
    """The log has gone on; its index is still in memory only."""
    REWRITTEN = "rewritten"
    """A compaction wrote it, and ledgers are being pointed to it."""
    SEALED = "sealed"
    """Its index is beside it, and checkpoints name it."""
    LEAVING = "leaving"
    """Nobody wants anything of it, and a checkpoint that does not name it is being written."""
    DEAD = "dead"
    """No checkpoint names it: it goes as soon as nobody reads it."""


_FOLLOWING: Mapping[SegmentState | None, frozenset[SegmentState | None]] = {
    None: frozenset((SegmentState.GROWING, SegmentState.REWRITTEN, SegmentState.SEALED, SegmentState.DEAD)),
    SegmentState.GROWING: frozenset((SegmentState.FULL,)),
    SegmentState.FULL: frozenset((SegmentState.SEALED,)),
    SegmentState.REWRITTEN: frozenset((SegmentState.SEALED,)),
    SegmentState.SEALED: frozenset((SegmentState.LEAVING,)),
    SegmentState.LEAVING: frozenset((SegmentState.DEAD,)),
    SegmentState.DEAD: frozenset((None,)),
}
"""What may come after a state; None: the segment is not in the table."""
_IN_MEMORY = (SegmentState.GROWING, SegmentState.FULL)


@dataclass(slots=True)
class Segment:
    """One row of the table."""

    segment_id: int
    state: SegmentState | None = None
    log: LogSegment | None = None
    """While its index is in memory."""
    next_sequence: int = 0
    """Of the first group behind it, once it is full."""
    sealed: SealedSegment | None = None
    """What checkpoints say of it, once it has its index beside it."""
    damaged: bool = False
    """It did not read back when it was to be rewritten, and stays as it is."""


class SegmentTable:
    """Each segment is in exactly one state, and goes from one to the next here only.

    :param next_id: of the segment that is made next
    """

    def __init__(self, next_id: int) -> None:
        self.next_id = next_id
        self._rows: dict[int, Segment] = {}
        self._by_state: dict[SegmentState, dict[int, Segment]] = {state: {} for state in SegmentState}

    def take_id(self) -> int:
        """An id that no segment had before."""
        segment_id = self.next_id
        self.next_id += 1
        return segment_id

    def get(self, segment_id: int) -> Segment | None:
        return self._rows.get(segment_id)

    def of(self, state: SegmentState) -> Mapping[int, Segment]:
        """The segments in a state by their ids, in the order in which they came to it."""
        return self._by_state[state]

    def begin(self, log: LogSegment) -> None:
        """The log writes to ``log`` from now on."""
        self._move(Segment(log.segment_id, log=log), SegmentState.GROWING)

    def fill(self, segment_id: int, next_sequence: int) -> None:
        """The log has gone on."""
        segment = self._rows[segment_id]
        segment.next_sequence = next_sequence
        self._move(segment, SegmentState.FULL)

    def rewritten(self, sealed: SealedSegment) -> None:
        """A compaction has written it: it is durable, with its index."""
        self._move(Segment(sealed.segment_id, sealed=sealed), SegmentState.REWRITTEN)

    def seal(self, sealed: SealedSegment) -> None:
        """Its index is beside it, and no part of a ledger in it grows or is still to be put in its place."""
        segment = self._rows.get(sealed.segment_id) or Segment(sealed.segment_id)
        segment.sealed = sealed
        segment.log = None
        self._move(segment, SegmentState.SEALED)

    def leave(self, segment_id: int) -> None:
        """A checkpoint is being written that does not name it."""
        self._move(self._rows[segment_id], SegmentState.LEAVING)

    def die(self, segment_id: int) -> None:
        """No checkpoint names it any more."""
        self._move(self._rows[segment_id], SegmentState.DEAD)

    def add_leftovers(self, segment_ids: Iterable[int]) -> None:
        """Takes note of files that a former life left and that nothing will name."""
        for segment_id in segment_ids:
            self._move(Segment(segment_id), SegmentState.DEAD)

    def remove(self, segment_id: int) -> None:
        """Its file goes."""
        self._move(self._rows[segment_id], None)

    def may_grow(self, segment_id: int) -> bool:
        """Whether parts of ledgers in it may still grow, or have no index beside them yet."""
        segment = self._rows.get(segment_id)
        return segment is not None and segment.log is not None

    def end_of(self, segment_id: int) -> int:
        """Where the last group of a segment ends that has its index beside it."""
        sealed = self._rows[segment_id].sealed
        if sealed is None:
            raise AssertionError(f"where segment {segment_id} ends is not known")
        return sealed.end

    def sealed(self) -> list[SealedSegment]:
        """What checkpoints say of all sealed ones."""
        return [each.sealed for each in self._by_state[SegmentState.SEALED].values() if each.sealed]

    def stored_bytes(self) -> int:
        """Of the files of all that are not being written, as far as their size is known."""
        return sum(
            row.log.end if row.log is not None else row.sealed.size if row.sealed is not None else 0
            for row in self._rows.values()
            if row.state is not SegmentState.GROWING
        )

    def check(self) -> None:
        """:raises BrokenInvariant: a segment is not in exactly one state, or lacks what its state asks for"""
        listed = sum(map(len, self._by_state.values()))
        must(listed == len(self._rows), len(self._rows), "segments are in", listed, "states")
        must(len(self.of(SegmentState.GROWING)) <= 1, "the log writes to several segments")
        for state, rows in self._by_state.items():
            for segment_id, row in rows.items():
                must(self._rows.get(segment_id) is row, "segment", segment_id, "is not the table's")
                must(row.state is state, "segment", segment_id, "is", row.state, "and listed as", state)
                must(row.segment_id == segment_id < self.next_id, "segment", segment_id, "has another's id")
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
