"""A segment is in exactly one state, and goes from one to the next in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulated_io import SimulatedDisk

from magnetar.invariants import BrokenInvariant
from magnetar.ledger.embedded.checkpoint import SealedSegment
from magnetar.ledger.embedded.segment_supply import LogSegment
from magnetar.ledger.embedded.segment_table import SegmentState, SegmentTable

pytestmark = pytest.mark.plants


def figures(segment_id: int) -> SealedSegment:
    return SealedSegment(segment_id, 0, 1000, 900, 3)


def log_segment(segment_id: int) -> LogSegment:
    file = SimulatedDisk(1).open(f"segment-{segment_id}", create=True)
    return LogSegment(segment_id, file, 1 << 16)


def table() -> SegmentTable:
    """One segment in each state; their ids ascend on the way, but for the first two: the log goes on."""
    made = SegmentTable(1)
    for _ in SegmentState:
        made.take_id()
    made.begin(log_segment(1))
    made.fill(1, 17)
    made.begin(log_segment(2))
    made.rewritten(figures(3))
    for segment_id in (4, 5, 6):
        made.seal(figures(segment_id))
    for segment_id in (5, 6):
        made.leave(segment_id)
    made.die(6)
    return made


def test_each_state_has_its_segments() -> None:
    made = table()
    made.check()
    assert [list(made.of(state)) for state in SegmentState] == [[2], [1], [3], [4], [5], [6]]
    assert [made.may_grow(number) for number in range(1, 8)] == [True, True, *[False] * 5]
    assert made.end_of(6) == 900
    made.seal(figures(1))
    made.remove(6)
    made.check()
    assert list(made.of(SegmentState.SEALED)) == [4, 1]
    assert made.get(6) is None


STEPS: list[Callable[[SegmentTable, int], None]] = [
    lambda made, segment_id: made.begin(log_segment(segment_id)),
    lambda made, segment_id: made.fill(segment_id, 1),
    lambda made, segment_id: made.rewritten(figures(segment_id)),
    lambda made, segment_id: made.seal(figures(segment_id)),
    lambda made, segment_id: made.leave(segment_id),
    lambda made, segment_id: made.die(segment_id),
    lambda made, segment_id: made.remove(segment_id),
]
ALLOWED = {1: (3,), 2: (1,), 3: (3,), 4: (4,), 5: (5,), 6: (6,)}


@pytest.mark.parametrize("segment_id", list(ALLOWED))
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_no_state_is_left_out(segment_id: int, step: int) -> None:
    made = table()
    if step in ALLOWED[segment_id]:
        STEPS[step](made, segment_id)
        made.check()
    else:
        with pytest.raises(BrokenInvariant):
            STEPS[step](made, segment_id)


def _two_states(made: SegmentTable) -> None:
    made._by_state[SegmentState.DEAD][4] = made._rows[4]


def _no_state(made: SegmentTable) -> None:
    del made._by_state[SegmentState.SEALED][4]


def _another_state(made: SegmentTable) -> None:
    made._rows[4].state = SegmentState.DEAD


def _two_that_grow(made: SegmentTable) -> None:
    made.take_id()
    made.begin(log_segment(7))


def _index_gone(made: SegmentTable) -> None:
    made._rows[1].log = None


def _without_figures(made: SegmentTable) -> None:
    made._rows[4].sealed = None


def _id_to_come(made: SegmentTable) -> None:
    made.next_id = 4


@pytest.mark.parametrize(
    "plant",
    [
        _two_states,
        _no_state,
        _another_state,
        _two_that_grow,
        _index_gone,
        _without_figures,
        _id_to_come,
    ],
)
def test_a_contradiction_is_found(plant: Callable[[SegmentTable], None]) -> None:
    made = table()
    plant(made)
    with pytest.raises(BrokenInvariant):
        made.check()
