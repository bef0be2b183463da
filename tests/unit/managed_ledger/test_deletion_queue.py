"""Ledgers that could not be deleted when they were let go are deleted later, in this life or the next."""

from __future__ import annotations

import pytest
from faulty_ledgers import FaultyLedgerStore
from faulty_metadata import Fault
from world import SMALL, World

from magnetar.broker.schemas.data import SchemaData, SchemaType, StoredSchema
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerStore, Quorums
from magnetar.managed_ledger.deletion_queue import ROOT
from magnetar.managed_ledger.position import EARLIEST


class Undeletable:
    """A world whose ledger store can be told to delete nothing."""

    def __init__(self) -> None:
        self.store: FaultyLedgerStore
        self.world = World(settings=SMALL, wrap=self._wrap)

    def _wrap(self, inner: LedgerStore, loop: Loop) -> LedgerStore:
        self.store = FaultyLedgerStore(inner, loop)
        return self.store

    def trim(self) -> set[int]:
        """Lets ledgers go, which fails; returns them."""
        world = self.world
        ledger, listener = world.open()
        cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
        world.publish(ledger, listener, 22)
        before = {summary.ledger_id for summary in ledger.ledgers}
        for _ in range(4):
            self.store.fail_next("delete")
        cursor.mark_delete_to(listener.stored[19])
        world.wait(1)
        return before - {summary.ledger_id for summary in ledger.ledgers}


def exist(world: World) -> set[int]:
    return set(world.run(world.store.ledger_ids()))


def test_they_are_deleted_later() -> None:
    undeletable = Undeletable()
    world = undeletable.world
    gone = undeletable.trim()
    assert len(gone) == 4
    assert gone <= exist(world)
    assert {int(name) for name in world.run(world.metadata.children(ROOT))} == gone
    world.wait(60)
    assert not gone & exist(world)
    assert world.run(world.metadata.children(ROOT)) == []
    assert len(world.managed.deletions) == 0


def test_they_are_deleted_after_a_restart() -> None:
    undeletable = Undeletable()
    gone = undeletable.trim()
    again = World(undeletable.world.crash(), scan=False)
    assert gone <= exist(again)
    again.run(again.managed.deletions.resume())
    assert not gone & exist(again)
    assert again.run(again.metadata.children(ROOT)) == []
    again.open()


@pytest.mark.parametrize("fault", list(Fault))
def test_what_could_not_be_noted_is_deleted_all_the_same(fault: Fault) -> None:
    undeletable = Undeletable()
    world = undeletable.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 3)
    undeletable.store.fail_next("delete")
    undeletable.store.fail_next("delete")
    lost = world.run(undeletable.store.create(SMALL.quorums, {})).ledger_id
    world.faulty_metadata.draw = lambda call: fault if call == "put" else None
    world.run(world.managed.deletions.delete(lost))
    world.faulty_metadata.draw = lambda _call: None
    world.wait(15)
    assert world.run(world.metadata.children(ROOT)) == [str(lost)]
    world.wait(120)
    assert lost not in exist(world)
    assert world.run(world.metadata.children(ROOT)) == []


def test_nothing_is_attempted_once_it_is_stopped() -> None:
    undeletable = Undeletable()
    gone = undeletable.trim()
    undeletable.world.managed.deletions.stop()
    undeletable.store.fail_next("delete")
    undeletable.world.run(undeletable.world.managed.deletions.delete(min(gone)))
    undeletable.world.wait(3600)
    assert gone <= exist(undeletable.world)


@pytest.mark.parametrize("restarted", [False, True])
def test_ledgers_of_schemas_are_deleted_later_too(restarted: bool) -> None:
    undeletable = Undeletable()
    world = undeletable.world
    storage = SchemaStorage(
        world.simulation.loop, undeletable.store, world.metadata, Quorums(), world.managed.deletions
    )
    for version in range(3):
        index, record = world.run(storage.index("t/n/x"))
        schema = StoredSchema(version, SchemaData(SchemaType.STRING, b""), 1, False)
        world.run(storage.append("t/n/x", schema, index, record))
    gone = world.run(storage.ledger_ids())
    assert len(gone) == 3
    for _ in gone:
        undeletable.store.fail_next("delete")
    assert world.run(storage.delete("t/n/x")) == 3
    assert {int(name) for name in world.run(world.metadata.children(ROOT))} == gone <= exist(world)
    if restarted:
        # Without a look for ledgers that nothing names: notes alone say what is left.
        world = World(world.crash(), settings=SMALL, scan=False)
        world.run(world.managed.deletions.resume())
    world.wait(60)
    assert not gone & exist(world)
    assert world.run(world.metadata.children(ROOT)) == []
