"""A former owner does not write to a record that was created after its own and has the same version."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_metadata import Fault
from world import NAME, SMALL, World

from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.entry_cache import EntryCacheSettings
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import (
    LedgerSummary,
    ManagedLedgerRecord,
    decode_managed_ledger,
    encode_managed_ledger,
)
from magnetar.metadata.interface import Node


@pytest.fixture
def world() -> World:
    return World()


def node_at(world: World, path: str) -> Node:
    node = world.run(world.metadata.get(path))
    assert node is not None
    return node


def recreated(world: World, owner: ManagedLedgerFactory, version: int) -> Node:
    """The record, deleted by another owner and created again, when it has that version."""
    former = world.run(owner.open(NAME, create=False))
    world.run(owner.delete(former))
    ledger = world.run(owner.open(NAME, create=True))
    while node_at(world, ledger.path).version < version:
        world.run(ledger.set_properties({"a": str(node_at(world, ledger.path).version)}))
    node = node_at(world, ledger.path)
    assert node.version == version
    return node


def other_owner(world: World) -> ManagedLedgerFactory:
    io = world.simulation.io
    return ManagedLedgerFactory(
        io, TimerWheel(io.loop), world.store, world.metadata, SMALL, EntryCacheSettings()
    )


@pytest.mark.parametrize("ending", ["close", "delete", "disown"])
def test_a_managed_ledger_that_has_ended_does_not_write(world: World, ending: str) -> None:
    ledger, _ = world.open()
    for number in range(6):
        world.run(ledger.set_properties({"b": str(number)}))
    version = node_at(world, ledger.path).version
    if ending == "disown":
        ledger.disown()
    else:
        world.run(getattr(ledger, ending)())
    other = other_owner(world)
    if ending == "delete":
        world.run(other.open(NAME, create=True))
    node = recreated(world, other, version)
    with pytest.raises(ManagedLedgerFenced):
        world.run(ledger.set_properties({"b": "late"}))
    assert node_at(world, ledger.path) == node


def test_a_cursor_that_was_deleted_is_not_written_over_the_next_one(world: World) -> None:
    ledger, _ = world.open()
    former = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {})).storage
    assert former is not None
    world.run(ledger.cursors.delete("s"))
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {"of": "the next"}))
    node = node_at(world, f"{ledger.path}/s")
    with pytest.raises(ManagedLedgerFenced):
        world.run(former.set_cursor_properties({"of": "the former"}))
    assert node_at(world, node.path) == node


def test_an_owner_that_recovers_until_its_tenure_is_over_does_not_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the record, and sleeps while others delete the managed ledger and create it again."""
    ledger, listener = world.open()
    world.publish(ledger, listener, 3)
    world.run(world.managed.close(ledger))
    loop, recover = world.simulation.io.loop, world.managed._recover_last
    gate = loop.create_future()

    async def slow(name: str, record: Any) -> int | None:
        found = await recover(name, record)
        await gate
        return found

    monkeypatch.setattr(world.managed, "_recover_last", slow)
    tenure = Tenure(loop)
    opening = loop.create_task(world.managed.open(NAME, create=False, tenure=tenure))
    world.wait(1)
    version = node_at(world, ledger.path).version
    world.run(tenure.over())
    node = recreated(world, other_owner(world), version)
    gate.set_result(None)
    with pytest.raises(ManagedLedgerFenced):
        world.run(opening)
    assert node_at(world, ledger.path) == node


def test_a_tenure_is_over_when_its_writes_are_answered(world: World) -> None:
    """The one that is looked for might be made again after the next owner has begun."""
    ledger, _ = world.open()
    loop = world.simulation.io.loop
    world.faulty_metadata.disconnect()
    writing = loop.create_task(ledger.set_properties({"a": "b"}))
    world.wait(0.3)
    over = loop.create_task(ledger.stored_record.tenure.over())
    world.wait(0.3)
    assert not over.done()
    world.faulty_metadata.reconnect()
    world.run(over)
    world.wait(0)
    assert writing.done()
    assert decode_managed_ledger(node_at(world, ledger.path).value, ledger.path).properties == {"a": "b"}


def test_a_fenced_writer_knows_a_record_of_the_same_version_from_its_own(world: World) -> None:
    """Somebody has taken the managed ledger from a broker that still believes to own it."""
    ledger, listener = world.open()
    world.publish(ledger, listener, 2)
    current, version = ledger.current_ledger, node_at(world, ledger.path).version
    assert current is not None
    world.run(world.metadata.delete(ledger.path))
    next_one = encode_managed_ledger(ManagedLedgerRecord([LedgerSummary(current.ledger_id + 1)]))
    while (node := world.run(world.metadata.put(ledger.path, next_one))).version < version:
        pass
    world.run(world.store.open(current.ledger_id, recover=True))
    world.wait(5)
    assert listener.fenced
    assert node_at(world, ledger.path) == node


def test_a_deletion_that_is_not_answered_may_be_tried_again(world: World) -> None:
    ledger, _ = world.open()
    world.faulty_metadata.fail_next("change_together", Fault.BEFORE)
    world.run(ledger.delete())
    assert not world.run(world.metadata.exists(ledger.path))
