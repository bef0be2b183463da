"""Positions of a topic whose ledgers got other ids: the same is consumed, whatever it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.exporting.rewriting import Moved, MovedLedgers
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.position import EARLIEST, Position


@st.composite
def moved_ledgers(draw: st.DrawFn) -> list[Moved]:
    """Ledgers with gaps between their ids, some empty, some gone."""
    olds = sorted(draw(st.sets(st.integers(0, 60), max_size=8)))
    news = sorted(draw(st.sets(st.integers(0, 1 << 40), min_size=len(olds), max_size=len(olds))))
    sizes = draw(st.lists(st.integers(-1, 6), min_size=len(olds), max_size=len(olds)))
    return [Moved(*each) for each in zip(olds, news, sizes, strict=True)]


POSITIONS = st.tuples(st.integers(-1, 62), st.integers(-1, 8))


@st.composite
def states(draw: st.DrawFn) -> AcknowledgedState:
    """What a cursor may know, of ledgers that are there or not."""
    state = AcknowledgedState(draw(POSITIONS))
    for ledger_id, start, count in draw(
        st.lists(st.tuples(st.integers(0, 62), st.integers(0, 8), st.integers(1, 4)), max_size=12)
    ):
        state.add_range(ledger_id, start, start + count)
    for position in draw(st.lists(st.tuples(st.integers(0, 62), st.integers(0, 8)), max_size=6)):
        if not state.contains(*position):
            state.batches[position] = draw(st.integers(1, 255))
    return state


def entries(ledgers: list[Moved]) -> list[tuple[Position, Position]]:
    """Each entry before and after."""
    return [((each.old, i), (each.new, i)) for each in ledgers for i in range(each.entries)]


@given(moved_ledgers(), states())
def test_the_same_entries_are_consumed(ledgers: list[Moved], state: AcknowledgedState) -> None:
    found = MovedLedgers(ledgers).state(state)
    found.check()
    for old, new in entries(ledgers):
        assert found.contains(*new) == state.contains(*old)
        assert found.batches.get(new) == (None if state.contains(*old) else state.batches.get(old))
    there = {new for _, new in entries(ledgers)}
    assert set(found.batches) <= there
    assert sum(1 for new in there if found.contains(*new) and new > found.mark_delete) == (
        found.individually_deleted()
    )


@given(moved_ledgers(), st.lists(POSITIONS, max_size=6))
def test_the_order_of_marks_stays(ledgers: list[Moved], positions: list[Position]) -> None:
    places = MovedLedgers(ledgers)
    marks = [places.mark(position) for position in sorted(positions)]
    assert marks == sorted(marks)
    kept = {each.new: each.entries for each in ledgers if each.entries >= 0}
    for ledger_id, entry_id in marks:
        assert (ledger_id, entry_id) == EARLIEST or entry_id < max(kept[ledger_id], 0)


@given(moved_ledgers())
def test_messages_that_are_known_keep_their_order(ledgers: list[Moved]) -> None:
    places = MovedLedgers(ledgers)
    found = [places.exactly((each.old, entry)) for each in ledgers for entry in (0, 1, 7)]
    assert found == [(each.new, entry) for each in ledgers for entry in (0, 1, 7)]
    assert places.exactly((99, 0)) is None


def test_a_mark_in_a_ledger_that_is_gone_lies_before_the_next_one() -> None:
    places = MovedLedgers([Moved(2, 20, -1), Moved(3, 30, 5), Moved(7, 70, 2)])
    assert places.mark(EARLIEST) == (30, -1)
    assert places.mark((2, 4)) == (30, -1)
    assert places.mark((3, 4)) == (30, 4)
    assert places.mark((3, 9)) == (30, 4)
    assert places.mark((5, 1)) == (70, -1)
    assert places.mark((8, -1)) == (70, 1)
    assert MovedLedgers([]).mark((8, 3)) == EARLIEST
