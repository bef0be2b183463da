"""Whoever has lost a managed ledger without knowing it yet changes nothing of the new owner's."""

from __future__ import annotations

import pytest
from world import Listener, World, append

from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST
from magnetar.metadata.interface import Node


def deposed(world: World) -> tuple[ManagedLedger, Listener, Node]:
    """A managed ledger with six entries and a cursor; its record, as somebody else wrote it since."""
    ledger, listener = world.open()
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 6)
    node = world.run(world.metadata.get(ledger.path))
    assert node is not None
    return ledger, listener, world.run(world.metadata.put(node.path, node.value))


@pytest.mark.parametrize("times", [1, 2])
def test_it_does_not_delete_it(times: int) -> None:
    world = World()
    loser, listener, node = deposed(world)
    for _ in range(times):
        with pytest.raises(ManagedLedgerFenced):
            world.run(loser.delete())
    assert listener.fenced
    assert world.run(world.metadata.get(loser.path)) == node
    again = World(world.crash())
    ledger, _ = again.open(create=False)
    assert again.drain(ledger.cursors["s"]) == listener.stored


def test_a_deletion_that_was_not_completed_is_completed_by_the_next() -> None:
    world = World()
    ledger, listener = world.open()
    world.publish(ledger, listener, 6)
    world.run(world.metadata.delete(ledger.path))
    world.run(ledger.delete())
    assert world.run(world.store.ledger_ids()) == []


def test_setting_properties_tells_it() -> None:
    world = World()
    loser, listener, node = deposed(world)
    with pytest.raises(ManagedLedgerFenced):
        world.run(loser.set_properties({"a": "b"}))
    assert listener.fenced
    assert world.run(world.metadata.get(loser.path)) == node


def test_it_makes_no_cursor() -> None:
    """The new owner would not have known of it, and a consumer there have found that it exists."""
    world = World()
    loser, listener, _node = deposed(world)
    with pytest.raises(ManagedLedgerFenced):
        world.run(world.managed.open_cursor(loser, "late", EARLIEST, {}))
    assert listener.fenced
    assert "late" not in loser.cursors
    assert world.run(world.metadata.children(loser.path)) == ["s"]


def test_it_deletes_no_cursor() -> None:
    world = World()
    loser, listener, _node = deposed(world)
    with pytest.raises(ManagedLedgerFenced):
        world.run(loser.cursors.delete("s"))
    assert listener.fenced
    again = World(world.crash())
    ledger, _ = again.open(create=False)
    assert again.drain(ledger.cursors["s"]) == listener.stored


@pytest.mark.parametrize("cursors", [1, 20])
def test_cursors_come_and_go_while_ledgers_are_begun(cursors: int) -> None:
    world = World()
    ledger, listener = world.open()
    loop = world.simulation.io.loop
    names = [f"s{number}" for number in range(cursors)]
    for _ in range(3):
        append(ledger, 12)
        making = [loop.create_task(world.managed.open_cursor(ledger, name, EARLIEST, {})) for name in names]
        world.wait(3)
        assert all(task.done() and task.result().durable for task in making)
        append(ledger, 12)
        going = [loop.create_task(ledger.cursors.delete(name)) for name in names]
        world.wait(3)
        assert all(task.done() and task.exception() is None for task in going)
    assert not ledger.cursors
    assert world.run(world.metadata.children(ledger.path)) == []
    assert not listener.failed


def test_a_cursor_of_a_topic_that_is_gone_is_not_made() -> None:
    world = World()
    loser, listener, node = deposed(world)
    for child in world.run(world.metadata.children(loser.path)):
        world.run(world.metadata.delete(f"{loser.path}/{child}"))
    world.run(world.metadata.delete(node.path))
    with pytest.raises(ManagedLedgerFenced):
        world.run(world.managed.open_cursor(loser, "late", EARLIEST, {}))
    assert listener.fenced
    assert not world.run(world.metadata.exists(loser.path))


def test_terminating_tells_it() -> None:
    world = World()
    loser, listener, node = deposed(world)
    with pytest.raises(ManagedLedgerFenced):
        world.run(loser.terminate())
    assert listener.fenced
    assert loser.terminated is None
    assert world.run(world.metadata.get(loser.path)) == node
