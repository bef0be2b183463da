"""A writer that somebody fenced: who owns the record goes on, who does not ends."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from faulty_ledgers import FaultyLedgerStore, FaultyWriter
from faulty_metadata import Fault
from world import SMALL, World, append

from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerStore, Quorums
from magnetar.managed_ledger.ending import State
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST


class CountingStore(FaultyLedgerStore):
    """Knows how many ledgers were asked for."""

    made = 0

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> FaultyWriter:
        self.made += 1
        return await super().create(quorums, custom, high_priority=high_priority)


class Fencing:
    """A world whose ledgers are fenced by somebody else."""

    def __init__(self) -> None:
        self.store: CountingStore
        self.world = World(settings=SMALL, wrap=self._wrap)

    def _wrap(self, inner: LedgerStore, loop: Loop) -> LedgerStore:
        self.store = CountingStore(inner, loop)
        return self.store

    def fence(self, ledger: ManagedLedger) -> None:
        assert ledger.current_ledger is not None
        self.world.run(self.store.open(ledger.current_ledger.ledger_id, recover=True))


@pytest.mark.parametrize("under_way", [0, 3])
def test_who_owns_the_record_goes_on_in_a_new_ledger(under_way: int) -> None:
    fencing = Fencing()
    world = fencing.world
    ledger, listener = world.open()
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 2)
    former = ledger.current_ledger
    for number in range(under_way):
        append(ledger, 1, number)
    fencing.fence(ledger)
    append(ledger, 2, "later")
    world.wait(5)
    assert not listener.fenced
    assert not listener.failed
    assert ledger.state is State.OPEN
    assert ledger.current_ledger is not former
    assert len(listener.stored) == len(set(listener.stored)) == 4 + under_way
    assert listener.stored == sorted(listener.stored)
    again = World(world.crash())
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == listener.stored


def test_who_does_not_own_it_any_more_makes_no_ledger() -> None:
    fencing = Fencing()
    world = fencing.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    node = world.run(world.metadata.get(ledger.path))
    assert node is not None
    node = world.run(world.metadata.put(node.path, node.value))
    made = fencing.store.made
    append(ledger, 1)
    fencing.fence(ledger)
    world.wait(60)
    assert listener.fenced
    assert ledger.state is State.FENCED
    assert len(ledger.appends) == 0
    # It was stored before the ledger was fenced, or its producer hears that it was not.
    assert len(listener.stored) == 3 or isinstance(listener.failed[0], ManagedLedgerFenced)
    assert fencing.store.made == made
    assert world.run(world.metadata.get(ledger.path)) == node


def test_without_an_answer_it_asks_again() -> None:
    fencing = Fencing()
    world = fencing.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    world.faulty_metadata.draw = lambda _call: Fault.BEFORE
    fencing.fence(ledger)
    world.wait(30)
    assert not listener.fenced
    assert ledger.state is not State.OPEN
    world.faulty_metadata.draw = lambda _call: None
    append(ledger, 1)
    world.wait(60)
    assert ledger.state is State.OPEN
    assert len(listener.stored) == 3


def test_whoever_takes_over_is_not_fought() -> None:
    fencing = Fencing()
    world = fencing.world
    loser, told = world.open()
    world.publish(loser, told, 2)
    made = fencing.store.made
    owner, listener = world.open()
    world.wait(60)
    assert told.fenced
    assert fencing.store.made == made + 1
    world.publish(owner, listener, 1)
    assert not listener.fenced


def test_it_finds_out_whose_it_is_though_nobody_appends() -> None:
    fencing = Fencing()
    world = fencing.world
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    world.faulty_metadata.draw = lambda _call: Fault.BEFORE
    fencing.fence(ledger)
    world.wait(30)
    world.faulty_metadata.draw = lambda _call: None
    world.wait(30)
    assert ledger.state is State.OPEN
    assert not listener.fenced


def test_appends_of_a_managed_ledger_that_was_lost_and_closed_are_still_told_of() -> None:
    world = World()
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    append(ledger, 3)
    ledger.disown()
    world.run(world.managed.close(ledger))
    world.wait(5)
    assert len(listener.stored) + len(listener.failed) == 5
    assert not len(ledger.appends)
