"""New ledgers of a store that gives low ids, or none for a while."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from faulty_ledgers import FaultyLedgerStore, FaultyWriter
from world import SMALL, World, append

from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerOutOfOrder, LedgerStore, Quorums
from magnetar.managed_ledger.ending import State
from magnetar.managed_ledger.position import EARLIEST


class UnorderedStore(FaultyLedgerStore):
    """Hands out ledgers that were made long ago, when it is told to."""

    def __init__(self, inner: LedgerStore, loop: Loop) -> None:
        super().__init__(inner, loop)
        self.old: list[FaultyWriter] = []
        self.handing_out = 0
        self.asked = 0

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> FaultyWriter:
        self.asked += 1
        if self.handing_out:
            self.handing_out -= 1
            return self.old.pop(0)
        return await super().create(quorums, custom, high_priority=high_priority)


class Unordered:
    """A world with ``old`` ledgers that are older than all that is made in it."""

    def __init__(self, old: int) -> None:
        self.store: UnorderedStore
        self.world = World(settings=SMALL, wrap=self._wrap)
        for _ in range(old):
            self.store.old.append(self.world.run(self.store.create(Quorums(), {})))

    def _wrap(self, inner: LedgerStore, loop: Loop) -> LedgerStore:
        self.store = UnorderedStore(inner, loop)
        return self.store


def test_a_ledger_with_a_low_id_is_never_listed() -> None:
    unordered = Unordered(3)
    world = unordered.world
    low = [writer.ledger_id for writer in unordered.store.old]
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    unordered.store.handing_out = 3
    world.publish(ledger, listener, 12)
    assert listener.stored == sorted(listener.stored)
    assert not set(low) & {summary.ledger_id for summary in ledger.ledgers}
    assert not set(low) & set(world.run(world.store.ledger_ids()))
    again = World(world.crash())
    ledger, _ = again.open()
    assert again.drain(ledger.cursors[cursor.name]) == listener.stored


def test_a_store_that_gives_low_ids_only_fails_appends_and_later_ones_work() -> None:
    unordered = Unordered(20)
    world = unordered.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 4)
    unordered.store.handing_out = 5
    append(ledger, 4)
    world.wait(60)
    assert [type(error) for error in listener.failed] == [LedgerOutOfOrder]
    assert ledger.state is State.NEEDS_LEDGER
    append(ledger, 2)
    world.wait(60)
    assert len(listener.failed) == 1
    assert len(listener.stored) == 7


def test_an_empty_ledger_that_left_the_list_still_counts() -> None:
    """A cursor may stand before its first entry: what follows must not lie behind that."""
    unordered = Unordered(0)
    world = unordered.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 1)
    unordered.store.old.append(world.run(unordered.store.create(Quorums(), {})))
    world.run(ledger.roll())
    assert ledger.current_ledger is not None
    empty = ledger.current_ledger.ledger_id
    world.run(world.managed.close(ledger))
    unordered.store.handing_out = 1
    ledger, _ = world.open()
    assert ledger.current_ledger is not None
    assert ledger.current_ledger.ledger_id > empty


def test_publishes_do_not_ask_for_a_ledger_each() -> None:
    unordered = Unordered(0)
    world = unordered.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 4)
    for _ in range(1000):
        unordered.store.fail_next("create")
    asked = unordered.store.asked
    for number in range(400):
        append(ledger, 2, number)
        world.wait(0.1)
    # 0.1, 0.2, 0.4 ... seconds, then ten at most: of 400 publishes in 40 seconds few do.
    assert 5 < unordered.store.asked - asked < 15
    assert listener.failed
    assert ledger.state in (State.NEEDS_LEDGER, State.ROLLING)


@pytest.mark.parametrize("failures", [1, 4, 12])
def test_what_waits_for_the_pause_is_stored_when_the_store_works_again(failures: int) -> None:
    unordered = Unordered(0)
    world = unordered.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 4)
    for _ in range(failures):
        unordered.store.fail_next("create")
    while len(listener.failed) < failures:
        append(ledger, 2)
        world.wait(0.01)
    before = len(listener.stored)
    append(ledger, 3, "waiting")
    world.wait(10.5)
    assert len(listener.stored) == before + 3
    assert ledger.state is State.OPEN


def test_closing_fails_what_waits_for_the_pause() -> None:
    unordered = Unordered(0)
    world = unordered.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 4)
    unordered.store.fail_next("create")
    append(ledger, 2)
    world.wait(0.01)
    append(ledger, 1, "waiting")
    world.run(world.managed.close(ledger))
    assert len(listener.failed) == 2
    assert len(ledger.appends) == 0
    asked = unordered.store.asked
    world.wait(60)
    assert unordered.store.asked == asked
