"""What is known of source positions: no loop, no disk."""

from __future__ import annotations

from array import array

from magnetar.broker.publishing.deduplication import DUPLICATE, FRESH, UNDECIDED, SourcePositions

NAME = "pulsar.repl.east-->here"


def known() -> SourcePositions:
    return SourcePositions("pulsar.repl", "here")


def admit_all(positions: SourcePositions, *wanted: tuple[int, int]) -> bool:
    ledgers, entries = array("q", [one[0] for one in wanted]), array("q", [one[1] for one in wanted])
    return positions.admit_all(NAME, ledgers, entries, len(wanted))


def store(positions: SourcePositions, *those: tuple[int, int]) -> None:
    positions.stored(NAME, [one[0] for one in those], [one[1] for one in those])


def test_ledgers_come_before_entries() -> None:
    positions = known()
    assert admit_all(positions, (7, 500), (8, 0))
    assert not admit_all(positions, (7, 501))
    assert not admit_all(positions, (8, 1), (8, 1))
    assert positions.admit(NAME, (8, 1)) == FRESH
    assert positions.last(NAME) is None
    store(positions, (7, 500), (8, 0))
    assert positions.last(NAME) == (8, 0)
    assert positions.admit(NAME, (7, 9)) == DUPLICATE
    assert positions.admit(NAME, (8, 1)) == UNDECIDED


def test_replicators_are_told_apart() -> None:
    positions = known()
    assert admit_all(positions, (7, 1))
    assert positions.admit("pulsar.repl.west-->here", (3, 0)) == FRESH


def test_snapshots_are_those_of_pulsar() -> None:
    positions = known()
    others = {"alpha": 5, "alpha_LID": 9, "pulsar.repl.x": 2}
    rest = positions.load(others | {f"{NAME}_LID": 7, f"{NAME}_EID": 3})
    assert rest == others
    assert positions.properties() == {f"{NAME}_LID": 7, f"{NAME}_EID": 3}
    assert positions.admit(NAME, (7, 3)) == DUPLICATE
    assert positions.admit(NAME, (7, 4)) == FRESH


def test_half_of_a_snapshot_loses_no_message() -> None:
    positions = known()
    positions.load({f"{NAME}_LID": 7})
    assert positions.admit(NAME, (6, 9)) == DUPLICATE
    assert positions.admit(NAME, (7, 0)) == FRESH
    positions = known()
    positions.load({f"{NAME}_EID": 7})
    assert positions.admit(NAME, (0, 0)) == FRESH


def test_what_failed_is_no_duplicate_behind_later_ones() -> None:
    positions = known()
    assert admit_all(positions, (7, 0), (7, 1), (7, 2))
    positions.refused(NAME, [(7, 1)])
    positions.failed([(NAME, (7, 2))])
    store(positions, (7, 0))
    store(positions, (7, 2))
    assert positions.last(NAME) == (7, 2)
    assert not admit_all(positions, (7, 3)), "each is looked at while something is missing"
    assert positions.admit(NAME, (7, 1)) == FRESH
    assert positions.admit(NAME, (7, 1)) == UNDECIDED, "it is on its way"
    store(positions, (7, 1))
    assert positions.admit(NAME, (7, 1)) == DUPLICATE
    assert positions.last(NAME) == (7, 2)
    assert admit_all(positions, (7, 3))


def test_what_failed_twice_may_come_a_third_time() -> None:
    positions = known()
    store(positions, (7, 2))
    positions.refused(NAME, [(7, 1)])
    assert positions.admit(NAME, (7, 1)) == FRESH
    positions.refused(NAME, [(7, 1)])
    positions.failed([])
    assert positions.admit(NAME, (7, 1)) == FRESH


def test_a_failure_leaves_what_is_still_on_its_way() -> None:
    positions = known()
    assert admit_all(positions, (7, 0), (7, 1), (7, 2))
    positions.refused(NAME, [(7, 1), (7, 2)])
    positions.failed([(NAME, (7, 0))])
    assert positions.admit(NAME, (7, 0)) == UNDECIDED
    assert [positions.admit(NAME, (7, each)) for each in (1, 2)] == [FRESH, FRESH]
    assert admit_all(positions, (7, 3))


def test_missing_positions_are_bounded() -> None:
    positions = known()
    store(positions, (1, 0))
    positions.refused(NAME, [(0, each) for each in range(10_001)])
    assert positions.admit(NAME, (0, 0)) == DUPLICATE
    assert positions.admit(NAME, (0, 1)) == FRESH


def test_what_was_dropped_since_something_was_stored_is_counted() -> None:
    positions = known()
    assert admit_all(positions, (7, 1), (7, 2))
    store(positions, (7, 1), (7, 2))
    assert positions.dropped == {}
    for position in ((3, 0), (3, 1)):
        assert positions.admit(NAME, position) == DUPLICATE
    assert positions.dropped == {NAME: 2}
    assert admit_all(positions, (7, 3))
    store(positions, (7, 3))
    assert positions.dropped == {}
