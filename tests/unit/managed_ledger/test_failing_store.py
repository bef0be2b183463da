"""Managed ledgers and cursors over a ledger store that goes wrong: what was told stays true, in order."""

from __future__ import annotations

import pytest
from world import World, append

from magnetar.io.interfaces import Loop
from magnetar.ledger.faulty import FaultyLedgerStore
from magnetar.ledger.interface import LedgerStore
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.managed_ledger import State
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import ManagedLedgerSettings, RetentionSettings

KEEP = ManagedLedgerSettings(
    max_entries_per_ledger=5, min_rollover_ms=0, retention=RetentionSettings(-1, -1), read_max_entries=3
)


class Faulty:
    """A world whose ledger store can be told to fail."""

    def __init__(self) -> None:
        self.store: FaultyLedgerStore
        self.world = World(settings=KEEP, wrap=self._wrap)

    def _wrap(self, inner: LedgerStore, loop: Loop) -> LedgerStore:
        self.store = FaultyLedgerStore(inner, loop)
        return self.store


@pytest.fixture
def faulty() -> Faulty:
    return Faulty()


@pytest.mark.parametrize("entry_id", [0, 2, 4])
def test_a_failed_append_goes_on_in_another_ledger(faulty: Faulty, entry_id: int) -> None:
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    assert ledger.current_ledger is not None
    failing = ledger.current_ledger.ledger_id
    faulty.store.fail_append(entry_id, failing)
    for number in range(12):
        append(ledger, 1, number)
    world.wait(2)
    assert [context for context, _first, _count in listener.contexts] == list(range(12))
    assert listener.stored == sorted(listener.stored)
    assert max((e for i, e in listener.stored if i == failing), default=-1) == entry_id - 1
    assert world.drain(cursor) == listener.stored
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == listener.stored


def test_a_run_that_fails_in_its_middle_is_told_in_two_parts(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    faulty.store.fail_append(2)
    append(ledger, 5, "run")
    world.wait(2)
    assert listener.contexts[0] == ("run", 0, 2)
    assert sum(count for _context, _first, count in listener.contexts) == 5
    assert sorted(first for _context, first, _count in listener.contexts)[0] == 0
    assert len(set(listener.stored)) == 5


def test_without_a_new_ledger_appends_fail_and_later_ones_work(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    faulty.store.fail_append(1)
    faulty.store.fail_next("create")
    for number in range(3):
        append(ledger, 1, number)
    world.wait(2)
    assert len(listener.stored) == 1
    assert listener.failed
    assert ledger.state is State.NEEDS_LEDGER
    append(ledger, 2, "later")
    world.wait(2)
    assert len(listener.stored) == 3
    assert ledger.state is State.OPEN


def test_a_cursor_ledger_that_fails_is_replaced(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    cursor.delete(*listener.stored[0])
    world.wait(1)
    assert cursor.storage is not None
    first = cursor.storage.ledger_id
    faulty.store.fail_append(1, first)
    cursor.delete(*listener.stored[1])
    world.wait(2)
    assert cursor.storage.ledger_id != first
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == listener.stored[2:]


def test_flushing_says_when_it_cannot(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    # Once for the write that the acknowledgement brings about, once for the one that is asked for.
    faulty.store.fail_next("create")
    faulty.store.fail_next("create")
    cursor.delete(*listener.stored[0])
    with pytest.raises(ManagedLedgerError):
        world.run(cursor.flush())
    world.wait(3)
    world.run(cursor.flush())
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == listener.stored[1:]


def test_slow_acknowledgements_change_nothing(faulty: Faulty) -> None:
    world = faulty.world
    faulty.store.durability_delay = 0.5
    ledger, listener = world.open()
    for number in range(20):
        append(ledger, 1, number)
    world.wait(10)
    assert [context for context, _first, _count in listener.contexts] == list(range(20))


def test_an_empty_ledger_that_cannot_be_deleted_stops_no_append(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    faulty.store.fail_append(0)
    faulty.store.fail_next("delete")
    for number in range(3):
        append(ledger, 1, number)
        world.wait(1)
    assert [context for context, _first, _count in listener.contexts] == [0, 1, 2]
    assert not listener.failed


def test_a_ledger_that_cannot_be_recovered_leaves_no_other_behind(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 1)
    faulty.store.fail_append(1)
    faulty.store.fail_next("open")
    append(ledger, 1)
    world.wait(1)
    assert listener.failed
    assert world.run(world.store.ledger_ids()) == [summary.ledger_id for summary in ledger.ledgers]


def test_terminating_while_an_append_fails_tells_its_producer(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    faulty.store.fail_append(2)
    append(ledger, 1)
    assert world.run(ledger.terminate()) == listener.stored[-1]
    assert ledger.pending_count == 0
    assert len(listener.failed) == 1
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert ledger.terminated == ledger.last_confirmed == listener.stored[-1]


def test_terminating_twice_at_once_ends_at_one_position(faulty: Faulty) -> None:
    world = faulty.world
    ledger, _listener = world.open()
    append(ledger, 2)
    both = [world.simulation.io.loop.create_task(ledger.terminate()) for _ in range(2)]
    assert world.run(both[0]) == world.run(both[1]) == ledger.last_confirmed
