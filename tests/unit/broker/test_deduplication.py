"""Deduplication alone: marks, batches, chunks, snapshots, and what is forgotten."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.broker.publishing.deduplication import (
    DUPLICATE,
    FRESH,
    UNDECIDED,
    Deduplication,
    DeduplicationSettings,
    SourcePositions,
)


class _Storage:
    def __init__(self, properties: dict[str, int]) -> None:
        self.properties = properties


class _Cursor:
    """What deduplication asks of its cursor."""

    def __init__(self, properties: dict[str, int]) -> None:
        self.storage = _Storage(properties)
        self.marks: list[tuple[int, int]] = []

    def describe_properties(self) -> dict[str, int]:
        return self.storage.properties

    def rewind(self) -> None:
        pass

    def has_more(self) -> bool:
        return False

    def mark_delete_to(self, position: tuple[int, int]) -> None:
        self.marks.append(position)


class _Ledger:
    last_confirmed = (7, 41)


def deduplication(
    properties: dict[str, int] | None = None, connected: Sequence[str] = (), **settings: Any
) -> Deduplication:
    cursor: Any = _Cursor(properties or {})
    ledger: Any = _Ledger()
    return Deduplication(
        ledger,
        cursor,
        DeduplicationSettings(**settings),
        dict.fromkeys(connected),
        SourcePositions("pulsar.repl", "here"),
    )


def ids(*values: int) -> array[int]:
    return array("q", values)


def test_at_or_below_what_is_durable_is_a_duplicate() -> None:
    known = deduplication()
    assert known.admit("p", 5, -1) == FRESH
    known.stored("p", 5, -1, 1)
    assert [known.admit("p", number, -1) for number in (4, 5, 6)] == [DUPLICATE, DUPLICATE, FRESH]


def test_above_it_but_on_its_way_is_undecided() -> None:
    known = deduplication()
    known.admit("p", 5, -1)
    assert known.admit("p", 5, -1) == UNDECIDED
    assert known.admit("p", 3, -1) == UNDECIDED


def test_after_a_failed_write_the_mark_falls_back() -> None:
    known = deduplication()
    known.admit("p", 5, -1)
    known.stored("p", 5, -1, 1)
    known.admit("p", 6, -1)
    known.failed([])
    assert known.admit("p", 6, -1) == FRESH


def test_after_a_failed_write_the_mark_stays_where_former_ones_are_on_their_way() -> None:
    known = deduplication()
    for number in (5, 6, 7):
        known.admit("p", number, -1)
    known.stored("p", 5, -1, 1)
    known.failed([("p", 5), ("p", 6), ("q", 3)])
    assert [known.admit("p", number, -1) for number in (5, 6, 7)] == [DUPLICATE, UNDECIDED, FRESH]
    assert [known.admit("q", number, -1) for number in (3, 4)] == [UNDECIDED, FRESH]


def test_a_batch_is_judged_by_its_first_and_moves_the_mark_to_its_highest() -> None:
    known = deduplication()
    assert known.admit("p", 10, 19) == FRESH
    known.stored("p", 10, 19, 1)
    assert known.last_sequence_id("p") == 19
    assert known.admit("p", 15, 25) == DUPLICATE
    assert known.admit("p", 20, 25) == FRESH


@pytest.mark.parametrize(
    ("first", "highest", "admitted"),
    [
        ((1, 2, 3), (-1, -1, -1), True),
        ((1, 5), (4, 9), True),
        ((1, 4), (4, 9), False),
        ((2, 2), (-1, -1), False),
    ],
)
def test_a_run_is_taken_whole_or_not_at_all(
    first: tuple[int, ...], highest: tuple[int, ...], admitted: bool
) -> None:
    known = deduplication()
    assert known.admit_all("p", ids(*first), ids(*highest), len(first)) is admitted
    assert known.admit("p", first[0], -1) == (UNDECIDED if admitted else FRESH)


def test_what_a_snapshot_says_counts_from_the_start() -> None:
    known = deduplication({"p": 8})
    assert known.last_sequence_id("p") == 8
    assert known.admit("q", 8, -1) == FRESH


def test_a_snapshot_has_what_is_durable_and_moves_the_cursor() -> None:
    known = deduplication(snapshot_entries=3)
    for number in (1, 2, 3):
        assert not known.full()
        known.admit("p", number, -1)
        known.stored("p", number, -1, 1)
    known.admit("p", 4, -1)
    assert known.full()
    known.snapshot(10.0)
    cursor: Any = known.cursor
    assert cursor.storage.properties == {"p": 3}
    assert cursor.marks == [(7, 41)]
    assert not known.full()


def test_a_snapshot_is_due_only_when_something_was_stored() -> None:
    known = deduplication()
    assert not known.due(1000.0, 120)
    known.stored("p", 1, -1, 1)
    assert not known.due(100.0, 120)
    assert known.due(120.0, 120)


def test_producers_that_are_gone_for_long_are_forgotten() -> None:
    known = deduplication(inactivity_seconds=60)
    for name in ("gone", "back", "here"):
        known.admit(name, 1, -1)
        known.stored(name, 1, -1, 1)
    known.left("gone", 0.0)
    known.left("back", 0.0)
    known.came("back")
    known.snapshot(61.0)
    cursor: Any = known.cursor
    assert cursor.storage.properties == {"back": 1, "here": 1}
    assert known.last_sequence_id("gone") == -1


def test_a_producer_that_left_before_its_first_receipt_is_forgotten() -> None:
    known = deduplication(inactivity_seconds=60)
    known.came("gone")
    known.admit("gone", 1, -1)
    known.left("gone", 0.0)
    known.stored("gone", 1, -1, 1)
    known.snapshot(30.0)
    assert known.last_sequence_id("gone") == 1
    known.snapshot(91.0)
    assert known.last_sequence_id("gone") == -1


def test_a_connected_producer_is_not_forgotten_however_long_it_says_nothing() -> None:
    known = deduplication({"here": 7}, connected=["here"], inactivity_seconds=60)
    known.came("here")
    for now in (30.0, 100.0, 1000.0):
        known.snapshot(now)
    assert known.last_sequence_id("here") == 7


def test_a_snapshot_without_room_for_all_keeps_the_connected_and_the_most_recent() -> None:
    known = deduplication(connected=["oldest", "idle"], max_producers=4)
    for name in ("oldest", "idle", "gone early", "gone", "gone late"):
        known.stored(name, 1, -1, 1)
    for number in range(2, 5):
        known.stored("gone early", number, -1, 1)
        known.stored("oldest", number, -1, 1)
    known.snapshot(1.0)
    cursor: Any = known.cursor
    assert cursor.storage.properties == {"oldest": 4, "idle": 1, "gone late": 1, "gone early": 4}


def test_of_too_many_connected_producers_those_that_published_last_are_kept() -> None:
    known = deduplication(connected=["a", "b", "c"], max_producers=2)
    for name in ("a", "b", "c"):
        known.stored(name, 1, -1, 1)
    known.stored("a", 2, -1, 1)
    known.snapshot(1.0)
    cursor: Any = known.cursor
    assert cursor.storage.properties == {"a": 2, "c": 1}


def test_a_snapshot_names_a_bounded_number_of_producers() -> None:
    known = deduplication(max_producers=2)
    for name in ("a", "b", "c"):
        known.stored(name, 1, -1, 1)
    known.snapshot(1.0)
    cursor: Any = known.cursor
    assert len(cursor.storage.properties) == 2
