"""A change that leaves a managed ledger or a cursor in a wrong state ends the owner of that state."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest
from world import Listener, World, append

from magnetar.invariants import BrokenInvariant
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.ending import FOLLOWING, State
from magnetar.managed_ledger.hot_ranges import EntryRanges
from magnetar.managed_ledger.position import EARLIEST

pytestmark = pytest.mark.plants


class Told(Listener):
    """Keeps the failure that is reported to it."""

    failure: Any = None

    def fail(self, error: BaseException) -> None:
        self.failure = error


class Violated:
    """A managed ledger with a cursor that has read three of five entries and consumed two."""

    def __init__(self) -> None:
        self.world = World()
        self.ledger, listener = self.world.open()
        self.cursor = self.world.run(self.world.managed.open_cursor(self.ledger, "s", EARLIEST, {}))
        self.world.publish(self.ledger, listener, 4)
        assert self.cursor.read_cached(3, 1 << 20) is not None or self.world.run(self.cursor.read(3, 1 << 20))
        self.id = self.ledger.last_confirmed[0]
        self.cursor.mark_delete_to((self.id, 1))
        self.listener = self.ledger.listener = Told()


def _append_elsewhere(found: Violated) -> None:
    found.ledger._current.entries -= 1
    append(found.ledger, 1)


def _no_writer(found: Violated) -> None:
    found.ledger._current.writer = None
    append(found.ledger, 1)


def _confirmed_again(found: Violated) -> None:
    assert found.ledger._current.summary is not None
    found.ledger._current.summary.entries -= 1
    found.ledger.on_durable(found.id, 3)


def _confirmed_without_append(found: Violated) -> None:
    found.ledger.on_durable(found.id, 7)


def _confirmed_out_of_order(found: Violated) -> None:
    append(found.ledger, 1)
    next(iter(found.ledger.appends)).first_entry_id -= 1
    found.ledger.on_durable(found.id, 4)


def _ledger_before_the_end(found: Violated) -> None:
    found.ledger.last_confirmed = (found.id + 100, 0)
    found.world.run(found.ledger.roll())


def _closed_and_open(found: Violated) -> None:
    found.ledger.state = State.CLOSED
    found.ledger.enter(State.OPEN)


def _open_without_writer(found: Violated) -> None:
    found.ledger.state = State.ROLLING
    found.ledger._current.writer = None
    found.ledger.enter(State.OPEN)


def _leap_back(found: Violated) -> None:
    found.cursor.leap_to((found.id, 0))


def _mark_back(found: Violated) -> None:
    ranges = found.cursor.state.ranges
    found.cursor.state.add_range(found.id, 3, 4)
    after = found.ledger.ledgers.after

    def backwards(position: tuple[int, int]) -> tuple[int, int]:
        return (found.id, 0) if position == (found.id, 1) else after(position)

    found.ledger.ledgers.after = backwards  # type: ignore[method-assign]
    ranges[found.id].add(0, 1)
    found.cursor._advance()


def _mark_beyond(found: Violated) -> None:
    found.cursor.state.move_mark_delete((found.id, 9))
    found.cursor._moved()


def _confirmed_beyond_the_appends(found: Violated) -> None:
    append(found.ledger, 1)
    found.ledger.on_durable(found.id, 7)


def _more_durable_than_appended(found: Violated) -> None:
    assert found.ledger._current.summary is not None
    append(found.ledger, 1)
    found.ledger._current.summary.size = 1 << 40
    found.ledger.on_durable(found.id, 4)


def _closed_before_the_end(found: Violated) -> None:
    assert found.ledger._current.summary is not None
    found.ledger._current.summary.entries += 1
    found.world.run(found.ledger.roll())


class _Overstating(EntryRanges):
    """Counts more entries than it is given."""

    def add_each(self, *_arguments: object) -> int:
        return 3


def _consumed_more_than_acknowledged(found: Violated) -> None:
    found.cursor.state.ranges[found.id] = _Overstating()
    found.cursor.delete_run(array("q", [found.id]), array("q", [3]), 1)


def _consumed_more_than_stored(found: Violated) -> None:
    found.cursor.state.ranges[found.id] = ranges = EntryRanges()
    ranges.add(0, 2)
    found.cursor.mark_delete_to((found.id, 2))


def _range_at_the_mark(found: Violated) -> None:
    found.cursor.state.ranges[found.id] = ranges = EntryRanges()
    ranges.add(1, 2)
    found.cursor._moved()


def _nothing_left_of_a_batch(found: Violated) -> None:
    found.cursor.state.batches[(found.id, 2)] = 0
    found.cursor.consume_batch_indexes(found.id, 2, 1, 2)


def _cached_elsewhere(found: Violated) -> None:
    (slot,) = found.ledger.cache._slots[found.id][:1]
    slot.run = EntryRun(found.id, 3, 1, b"x", array("q", [0]), array("q", [1]))
    found.ledger.cache.find(found.id, 2)


PLANTS: list[tuple[Callable[[Violated], None], str]] = [
    (_append_elsewhere, "first id of entries appended to ledger"),
    (_no_writer, "in state OPEN: expected a writer"),
    (_confirmed_again, "next durable entry of ledger"),
    (_ledger_before_the_end, "id of a new ledger: expected above that of"),
    (_confirmed_without_append, "next durable entry of ledger"),
    (_confirmed_beyond_the_appends, "durable entries and bytes of ledger"),
    (_more_durable_than_appended, "durable entries and bytes of ledger"),
    (_closed_before_the_end, "entries of closed ledger"),
    (
        _consumed_more_than_acknowledged,
        "entries that an acknowledgement consumed: expected at most 1, found 3",
    ),
    (_consumed_more_than_stored, "entries not consumed up to"),
    (_range_at_the_mark, "entries consumed individually: expected none at or before"),
    (_nothing_left_of_a_batch, "messages left of the batch at"),
    (_cached_elsewhere, "first entry of the cached run"),
    (_confirmed_out_of_order, "next durable entry of ledger"),
    (_closed_and_open, "in state CLOSED: expected CLOSED, FENCED, found OPEN"),
    (_open_without_writer, "in state OPEN: expected a writer, found None"),
    (_leap_back, "read position: expected one behind"),
    (_mark_back, "mark-delete position: expected one behind"),
    (_mark_beyond, "mark-delete position: expected at most"),
]


@pytest.mark.parametrize(("plant", "text"), PLANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_violation_is_found_at_the_change(plant: Callable[[Violated], None], text: str) -> None:
    found = Violated()
    with pytest.raises(BrokenInvariant, match=text) as raised:
        plant(found)
    assert found.listener.failure is raised.value
    assert "t/n/persistent/topic" in raised.value.what
    assert raised.value.expected is not None


def test_a_read_that_goes_back_is_found() -> None:
    found = Violated()
    run = found.world.run(found.ledger.reader.read((found.id, 0), (found.id, 0), 1, 1 << 20))
    with pytest.raises(BrokenInvariant, match="read position: expected one behind"):
        found.cursor._read(run)


def test_the_ends_of_a_managed_ledger_are_final() -> None:
    for state in (State.FENCED, State.CLOSED):
        assert FOLLOWING[state] == {State.FENCED, State.CLOSED}
    assert set(FOLLOWING) == set(State)


def test_an_unexpected_error_while_receipts_are_sent_is_told() -> None:
    found = Violated()
    error = RuntimeError("a defect")

    def broken(*_arguments: object) -> None:
        raise error

    found.listener.on_durable = broken  # type: ignore[method-assign]
    buffer, starts, ends = b"x", array("q", [0]), array("q", [1])
    found.ledger.append(buffer, starts, ends, 1, 1, None)
    with pytest.raises(RuntimeError, match="a defect"):
        found.ledger.on_durable(found.id, 4)
    assert found.listener.failure is error


@pytest.mark.parametrize("counter", ["used_bytes", "entries"])
def test_counts_of_the_entry_cache_that_fall_below_zero_are_taken_again(counter: str) -> None:
    found = Violated()
    cache = found.world.managed.cache
    cache.check()
    setattr(cache, counter, 0)
    with pytest.raises(BrokenInvariant, match="the entry cache counts"):
        cache.check()
    with pytest.raises(BrokenInvariant, match="in the entry cache: expected at least 0, found -"):
        found.ledger.cache.drop_ledger(found.id)
    cache.check()


def test_a_buffer_of_the_entry_cache_that_nothing_uses_is_found() -> None:
    found = Violated()
    cache = found.world.managed.cache
    cache._hold(b"unused")
    with pytest.raises(BrokenInvariant, match="the entry cache holds buffers"):
        cache.check()


@pytest.mark.parametrize("plant", ["dropped", "elsewhere", "twice"])
def test_a_run_that_is_cached_wrongly_is_found(plant: str) -> None:
    found = Violated()
    cache: Any = found.ledger.cache
    cache.check()
    slots, firsts = cache._slots[found.id], cache._firsts[found.id]
    if plant == "dropped":
        slots[0].run = None
    elif plant == "elsewhere":
        firsts[0] += 1
    else:
        slots.append(slots[0])
        firsts.append(firsts[0])
    with pytest.raises(BrokenInvariant):
        cache.check()
