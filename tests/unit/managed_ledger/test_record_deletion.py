"""A managed ledger goes with all its cursors at once, or stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from faulty_metadata import Fault
from world import World

from magnetar.managed_ledger import ledgers_record
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST
from magnetar.metadata.interface import (
    MetadataStore,
    MetadataUnavailable,
    Node,
    NodeNotEmpty,
    Put,
    Step,
    step_bytes,
)
from magnetar.metadata.passing_on import PassingOnStore

CURSORS = ("a", "b", "c", "d", "e")


def opened(world: World) -> ManagedLedger:
    """With entries, and cursors of which some have ledgers of their own."""
    ledger, listener = world.open()
    for name in CURSORS:
        cursor = world.run(world.managed.open_cursor(ledger, name, EARLIEST, {}))
    world.publish(ledger, listener, 6)
    for name in CURSORS[:2]:
        cursor = ledger.cursors[name]
        cursor.delete(*listener.stored[1])
        assert cursor.storage is not None
        world.run(cursor.storage.flush())
    world.managed.open_reader_cursor(ledger, "reader", EARLIEST)
    return ledger


def nothing_left(world: World, ledger: ManagedLedger) -> bool:
    there = world.run(world.metadata.exists(ledger.path))
    return not there and not world.run(world.store.ledger_ids()) and not ledger.cursors


class Requests(PassingOnStore):
    """Notes what is deleted together, and lets somebody else come before one of them."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.seen: list[Sequence[Step]] = []
        self.taken_before = -1
        self.stale: Node | None = None
        """As an old owner may still read it."""

    async def get(self, path: str) -> Node | None:
        if self.stale is not None and self.stale.path == path:
            return self.stale
        return await super().get(path)

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        if any(isinstance(step, Put) for step in steps):
            # A cursor is made.
            return await super().change_together(steps)
        if len(self.seen) == self.taken_before:
            record = await self.inner.get(steps[-1].path)
            assert record is not None
            await self.inner.put(record.path, record.value, record.version)
        self.seen.append(steps)
        return await super().change_together(steps)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def requests(world: World) -> Requests:
    made = world.metadata.inner = Requests(world.faulty_metadata)
    return made


def test_all_of_it_goes_with_one_request(world: World, requests: Requests) -> None:
    ledger = opened(world)
    world.run(ledger.delete())
    assert nothing_left(world, ledger)
    assert [[step.path for step in steps] for steps in requests.seen] == [
        [*(f"{ledger.path}/{name}" for name in CURSORS), ledger.path]
    ]


def test_who_reads_late_that_it_is_anothers_takes_nothing_from_them(world: World, requests: Requests) -> None:
    ledger = opened(world)
    record = requests.stale = world.run(world.metadata.get(ledger.path))
    assert record is not None
    world.run(world.faulty_metadata.put(ledger.path, record.value, record.version))
    before = world.run(world.store.ledger_ids())
    with pytest.raises(ManagedLedgerFenced, match="is owned by another broker"):
        world.run(ledger.delete())
    assert world.run(world.metadata.children(ledger.path)) == list(CURSORS)
    assert world.run(world.store.ledger_ids()) == before


@pytest.mark.parametrize("taken_before", [-1, 0, 1, 2])
def test_more_cursors_than_a_request_holds_go_in_several_while_it_is_owned(
    world: World, requests: Requests, monkeypatch: pytest.MonkeyPatch, taken_before: int
) -> None:
    ledger = opened(world)
    two = 2 * step_bytes(ledgers_record.Delete(f"{ledger.path}/a"))
    monkeypatch.setattr(ledgers_record, "_MOST_BYTES", two)
    requests.taken_before = taken_before
    if taken_before < 0:
        world.run(ledger.delete())
        assert nothing_left(world, ledger)
    else:
        with pytest.raises(ManagedLedgerFenced):
            world.run(ledger.delete())
        # What had gone before somebody else came was this owner's.
        assert world.run(world.metadata.children(ledger.path)) == list(CURSORS[2 * taken_before :])
    assert [len(steps) for steps in requests.seen] == [3, 3, 2][: taken_before + 1 or None]
    assert {steps[-1].path for steps in requests.seen} == {ledger.path}


@pytest.mark.parametrize("fault", list(Fault))
def test_an_answer_that_was_lost_is_looked_for(world: World, fault: Fault) -> None:
    ledger = opened(world)
    world.faulty_metadata.fail_next("change_together", fault)
    world.run(ledger.delete())
    assert nothing_left(world, ledger)


def test_cursors_that_are_gone_already_are_fine(world: World, requests: Requests) -> None:
    ledger = opened(world)
    for name in CURSORS[1:3]:
        world.run(world.metadata.delete(f"{ledger.path}/{name}"))
    world.run(ledger.delete())
    assert nothing_left(world, ledger)
    assert len(requests.seen) == 2


def test_what_somebody_else_has_deleted_is_gone(world: World) -> None:
    ledger = opened(world)
    for name in CURSORS:
        world.run(world.metadata.delete(f"{ledger.path}/{name}"))
    world.run(world.metadata.delete(ledger.path))
    world.run(ledger.delete())
    assert nothing_left(world, ledger)


def _away(world: World, _ledger: ManagedLedger) -> None:
    world.faulty_metadata.draw = lambda call: Fault.BEFORE if call == "change_together" else None


def _another_cursor(world: World, ledger: ManagedLedger) -> None:
    node = world.run(world.metadata.get(f"{ledger.path}/a"))
    assert node is not None
    world.run(world.metadata.put(f"{ledger.path}/z", node.value))


@pytest.mark.parametrize(
    ("trouble", "error"), [(_away, MetadataUnavailable), (_another_cursor, NodeNotEmpty)]
)
def test_what_cannot_be_deleted_is_whole(trouble: Any, error: type[Exception]) -> None:
    world = World()
    ledger = opened(world)
    trouble(world, ledger)
    ledger.cursors["d"].mark_delete_to(ledger.last_confirmed)
    with pytest.raises(error):
        world.run(ledger.delete())
    world.faulty_metadata.draw = lambda _call: None
    kept = world.run(world.store.ledger_ids())
    world.wait(60)
    assert world.run(world.store.ledger_ids()) == kept, "whoever loads it next has the cursors to write"
    again = World(world.crash())
    whole, listener = again.open(create=False)
    assert {*CURSORS} <= {*whole.cursors}
    assert len(again.drain(whole.cursors["c"])) == 6
    assert len(again.drain(whole.cursors["a"])) == 5
    again.run(whole.delete())
    assert nothing_left(again, whole)
    assert not listener.fenced
