"""Managed ledgers and cursors over a ledger store that goes wrong: what was told stays true, in order."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from faulty_ledgers import FaultyLedgerStore, InjectedFault
from faulty_metadata import Fault
from world import SMALL, Listener, World, append

from magnetar.invariants import BrokenInvariant
from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import EntryTooLarge, LedgerError, LedgerFenced, LedgerStore, StoreFull
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.ending import State
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced, ManagedLedgerTerminated
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import ManagedLedgerSettings, RetentionSettings
from magnetar.metadata.interface import MetadataError

KEEP = ManagedLedgerSettings(
    max_entries_per_ledger=5, min_rollover_ms=0, retention=RetentionSettings(-1, -1), read_max_entries=3
)


class Faulty:
    """A world whose ledger store can be told to fail."""

    def __init__(self, settings: ManagedLedgerSettings = KEEP) -> None:
        self.store: FaultyLedgerStore
        self.world = World(settings=settings, wrap=self._wrap)

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


def test_entries_that_no_ledger_stores_fail_and_ledgers_are_not_made_without_end(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store = faulty.world, faulty.store
    ledger, listener = world.open()
    made: list[float] = []
    create = store.create

    async def counted(*arguments: Any, **options: Any) -> Any:
        made.append(world.simulation.io.loop.time())
        return await create(*arguments, **options)

    monkeypatch.setattr(store, "create", counted)
    with monkeypatch.context() as refusing:
        refusing.setattr(store, "failing_entry", lambda _ledger_id: 0)
        append(ledger, 2, "refused")
        world.wait(2)
        assert isinstance(listener.failed[0], InjectedFault)
        assert len(made) == 2, "the third ledger that stores nothing is the last one"
        for _ in range(40):
            append(ledger, 1, "again")
            world.wait(0.5)
        # Pauses double up to 10 s.
        assert len(made) < 12
        assert not ledger.appends.written
    world.wait(20)
    append(ledger, 1, "later")
    world.wait(1)
    ledger.check()
    assert listener.contexts[-1] == ("later", 0, 1)
    assert world.run(store.ledger_ids()) == [summary.ledger_id for summary in ledger.ledgers]


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


def sized(ledger: ManagedLedger, sizes: list[int], context: object) -> None:
    """One append of entries of these sizes."""
    ends = array("q", accumulate(sizes))
    starts = array("q", [0, *ends[:-1]])
    ledger.append(bytes(ends[-1]), starts, ends, len(sizes), ends[-1], context)


class Told(Listener):
    """Remembers the order in which appends became durable or failed."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[object, int, int, bool]] = []

    def on_durable(self, appends: Sequence[Append]) -> None:
        super().on_durable(appends)
        self.order += [(one.context, one.first, one.count, True) for one in appends]

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        super().on_failed(appends, error)
        self.order += [(one.context, one.first, one.count, False) for one in appends]


def test_an_entry_that_is_too_large_fails_alone_and_in_order(faulty: Faulty) -> None:
    world = faulty.world
    faulty.store.max_entry_bytes = 10
    ledger, _ = world.open()
    listener = ledger.listener = Told()
    sized(ledger, [10, 10], "before")
    sized(ledger, [10, 11, 10, 11], "run")
    sized(ledger, [11], "alone")
    sized(ledger, [10], "behind")
    assert not listener.order, "not from within the call that appends"
    world.wait(2)
    ledger.check()
    assert listener.order == [
        ("before", 0, 2, True),
        ("run", 0, 1, True),
        ("run", 1, 1, False),
        ("run", 2, 1, True),
        ("run", 3, 1, False),
        ("alone", 0, 1, False),
        ("behind", 0, 1, True),
    ]
    assert all(isinstance(error, EntryTooLarge) for error in listener.failed)
    sized(ledger, [11], "with nothing under way")
    world.wait(1)
    assert listener.order[-1] == ("with nothing under way", 0, 1, False)


def reported(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What is reported as a defect from now on; the simulation would end with it."""
    found: list[Exception] = []
    loop = faulty.world.simulation.loop
    monkeypatch.setattr(loop, "call_exception_handler", lambda context: found.append(context["exception"]))
    return found


@pytest.mark.parametrize(
    "error", [EntryTooLarge("too large", 0), LedgerError("defective"), ValueError("bug")]
)
def test_what_cannot_be_written_after_a_roll_stops_nothing_behind_it(
    faulty: Faulty, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = faulty.world
    ledger, _ = world.open()
    listener = ledger.listener = Told()
    sized(ledger, [10] * 5, "full")
    sized(ledger, [10], "refused")
    sized(ledger, [10], "behind")
    # The ledger is full: these wait for the next one.
    raised = reported(faulty, monkeypatch)
    faulty.store.fail_next_append(error)
    world.wait(2)
    ledger.check()
    assert [(context, good) for context, _first, _count, good in listener.order] == [
        ("full", True),
        ("refused", False),
        ("behind", True),
    ]
    assert listener.failed == [error]
    assert raised == ([error] if isinstance(error, ValueError) else [])


def test_a_roll_that_fails_by_a_defect_is_reported_and_tried_again(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = faulty.world
    ledger, listener = world.open()
    error = RuntimeError("a defect")

    async def fail() -> None:
        raise error

    raised = reported(faulty, monkeypatch)
    with monkeypatch.context() as defect:
        defect.setattr(ledger, "roll", fail)
        append(ledger, 5, "full")
        append(ledger, 1, "waits")
        world.wait(0.05)
    assert listener.failed[0] is error
    assert set(raised) == {error}
    ledger.check()
    append(ledger, 1, "later")
    world.wait(2)
    assert listener.contexts == [("full", 0, 5), ("later", 0, 1)]


@pytest.mark.plants
def test_an_open_ledger_with_appends_that_wait_for_nothing_is_found(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 1)
    append(ledger, 1)
    ledger.appends.waiting.append(ledger.appends.written.pop())
    with pytest.raises(BrokenInvariant, match="appends wait for nothing"):
        ledger.check()


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
    assert len(ledger.appends) == 0
    assert len(listener.failed) == 1
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert ledger.terminated == ledger.last_confirmed == listener.stored[-1]


def break_closing(faulty: Faulty) -> None:
    """The current ledger fails, and recovering it fails."""
    faulty.store.fail_append(2)
    faulty.store.fail_next("open")


def break_metadata_before(faulty: Faulty) -> None:
    faulty.world.faulty_metadata.fail_next("put", Fault.BEFORE)


def break_metadata_after(faulty: Faulty) -> None:
    """The record is written, and the answer is lost."""
    faulty.world.faulty_metadata.fail_next("put", Fault.AFTER)


@pytest.mark.parametrize("damage", [break_closing, break_metadata_before, break_metadata_after])
def test_a_topic_that_cannot_be_terminated_goes_on(
    faulty: Faulty, damage: Callable[[Faulty], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = faulty.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    # The store that resolves lost answers would hide that one was lost.
    monkeypatch.setattr(ledger._record.stored, "_metadata", world.faulty_metadata)
    damage(faulty)
    append(ledger, 1, "before")
    ending = world.simulation.io.loop.create_task(ledger.terminate())
    world.wait(0.0001)
    assert ledger.terminated is None
    append(ledger, 1, "meanwhile")
    with pytest.raises((LedgerError, MetadataError)):
        world.run(ending)
    assert ledger.terminated is None
    append(ledger, 1, "later")
    world.wait(2)
    ledger.check()
    assert not listener.failed
    assert [context for context, _first, _count in listener.contexts] == [
        None,
        "before",
        "meanwhile",
        "later",
    ]
    assert ledger.state is State.OPEN
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert ledger.terminated is None
    assert ledger.last_confirmed >= listener.stored[-1]
    end = again.run(ledger.terminate())
    assert again.run(ledger.terminate()) == end == ledger.terminated


def test_an_append_while_a_topic_is_terminated_is_told_of_its_end(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    ending = world.simulation.io.loop.create_task(ledger.terminate())
    world.wait(0.00001)
    append(ledger, 1, "meanwhile")
    assert not listener.failed
    assert world.run(ending) == listener.stored[-1] == ledger.terminated
    [error] = listener.failed
    assert isinstance(error, ManagedLedgerTerminated)
    with pytest.raises(ManagedLedgerTerminated):
        append(ledger, 1)


def test_terminating_twice_at_once_ends_at_one_position(faulty: Faulty) -> None:
    world = faulty.world
    ledger, _listener = world.open()
    append(ledger, 2)
    both = [world.simulation.io.loop.create_task(ledger.terminate()) for _ in range(2)]
    assert world.run(both[0]) == world.run(both[1]) == ledger.last_confirmed


def test_what_is_acknowledged_while_the_cursor_ledger_is_switched_is_written_too(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    faulty.store.durability_delay = 0.5
    cursor.delete(*listener.stored[0])
    world.wait(0.4)
    cursor.delete(*listener.stored[1])
    world.wait(5)
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == listener.stored[2:]


def test_a_cursor_that_fails_to_close_keeps_no_other_from_being_written(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    for name in ("a", "b"):
        cursor = world.run(world.managed.open_cursor(ledger, name, EARLIEST, {}))
        world.publish(ledger, listener, 1)
        cursor.delete(*listener.stored[0])
        world.wait(1)
    ledger.cursors["b"].delete(*listener.stored[1])
    node = world.run(world.metadata.get(f"{ledger.path}/a"))
    assert node is not None
    world.run(world.metadata.put(node.path, node.value))
    faulty.store.fail_next("delete")
    world.run(world.managed.close(ledger))
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["b"]) == []


def test_a_cursor_lost_to_somebody_else_makes_no_more_ledgers(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 2)
    node = world.run(world.metadata.get(f"{ledger.path}/s"))
    assert node is not None
    world.run(world.metadata.put(node.path, node.value))
    before = world.run(world.store.ledger_ids())
    cursor.delete(*listener.stored[0])
    world.wait(30)
    assert world.run(world.store.ledger_ids()) == before
    with pytest.raises(ManagedLedgerFenced):
        world.run(cursor.flush())


def test_whoever_lost_a_managed_ledger_leaves_its_cursors_alone(faulty: Faulty) -> None:
    world = faulty.world
    loser, listener = world.open()
    cursor = world.run(world.managed.open_cursor(loser, "s", EARLIEST, {}))
    world.publish(loser, listener, 4)
    cursor.delete(*listener.stored[0])
    world.wait(1)
    owner, _ = world.open()
    cursor.delete(*listener.stored[1])
    world.wait(5)
    assert listener.fenced
    owner.cursors["s"].delete(*listener.stored[1])
    world.run(owner.cursors["s"].flush())
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == listener.stored[2:]


def test_properties_of_a_cursor_may_change_while_its_ledger_is_switched(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    storage = cursor.storage
    assert storage is not None
    loop = world.simulation.io.loop
    cursor.delete(*listener.stored[0])
    changes = [loop.create_task(storage.set_cursor_properties({"n": str(n)})) for n in range(20)]
    for change in changes:
        world.run(change)
    world.wait(1)
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    recovered = ledger.cursors["s"]
    assert recovered.storage is not None
    assert recovered.storage.cursor_properties == {"n": "19"}
    assert again.drain(recovered) == listener.stored[1:]


def test_a_ledger_that_cannot_be_deleted_keeps_no_other_from_it() -> None:
    faulty = Faulty(SMALL)
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 22)
    first, *_, last = [summary.ledger_id for summary in ledger.ledgers]
    faulty.store.fail_next("delete")
    cursor.mark_delete_to(listener.stored[19])
    world.wait(1)
    assert cursor.storage is not None
    assert world.run(world.store.ledger_ids()) == [first, last, cursor.storage.ledger_id]
    again = World(world.crash())
    assert again.orphans == 1


def test_a_cursor_ledger_that_fails_at_the_end_does_not_cost_the_last_state() -> None:
    """With more holes than the metadata takes, a clean stop writes to the cursor's ledger."""
    faulty = Faulty(replace(KEEP, max_unacked_ranges_in_metadata=1))
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    cursor.delete(*listener.stored[1])
    world.wait(1)
    assert cursor.storage is not None
    faulty.store.fail_append(1, cursor.storage.ledger_id)
    cursor.delete(*listener.stored[3])
    world.run(cursor.storage.close())
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == [listener.stored[0], listener.stored[2]]


def test_what_a_former_writer_says_late_changes_nothing(faulty: Faulty) -> None:
    world = faulty.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 7)
    former, current = [summary.ledger_id for summary in ledger.ledgers]
    confirmed = ledger.last_confirmed
    ledger.on_failed(former, 5, LedgerFenced("late"))
    ledger.on_durable(former, 9)
    assert ledger.last_confirmed == confirmed
    world.publish(ledger, listener, 1)
    assert ledger.last_confirmed == (current, 2)
    assert not listener.fenced


def test_a_cursor_that_cannot_be_written_says_so_once(
    faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    world = faulty.world
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    for _ in range(5):
        faulty.store.fail_next("create", StoreFull("no room"))
    cursor.mark_delete_to(listener.stored[2])
    world.wait(10.0)
    told = [record for record in caplog.records if record.getMessage().startswith("cannot write the cursor")]
    assert len(told) == 1
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert ledger.cursors["s"].mark_delete == listener.stored[2]
