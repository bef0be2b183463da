"""An unexpected error in a task of the client of bookies ends what the task belongs to, and is not lost."""

from __future__ import annotations

from typing import Any

import pytest
from writing_world import World, add

from magnetar.invariants import BrokenInvariant
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.interface import LedgerClosed, LedgerState, Quorums

pytestmark = pytest.mark.plants


class Defect(Exception):
    """An error that nothing expects."""


async def defective(*_arguments: object) -> Any:
    raise Defect("a defect")


def reported(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Returns what is reported to the loop from now on; the simulation would end with it."""
    found: list[Exception] = []
    monkeypatch.setattr(
        world.loop, "call_exception_handler", lambda context: found.append(context["exception"])
    )
    return found


def test_a_change_of_bookies_with_an_unexpected_error_ends_the_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(4)
    found = reported(world, monkeypatch)
    writer, listener = world.writer(Quorums(3, 3, 2))
    other, other_listener = world.writer(Quorums(3, 3, 2))
    add(writer, 5)
    add(other, 5)
    world.wait()
    assert listener.last == 4
    monkeypatch.setattr(writer, "_write_record", defective)
    world.ensemble(writer)[0].kill()
    add(writer, 5)
    add(other, 5)
    world.wait(3.0)
    assert [type(error) for error in found] == [Defect]
    first, reason = listener.failed
    assert first == listener.last + 1
    assert "the change of its bookies failed because of an internal error: a defect" in str(reason)
    with pytest.raises(LedgerClosed):
        add(writer, 1)
    assert other_listener.last == 9, "another ledger on the same bookies goes on"
    reader = world.run(world.store.open(writer.ledger_id, recover=True))
    assert reader.metadata.state is LedgerState.CLOSED
    assert reader.metadata.last_entry_id >= listener.last


def test_a_connection_with_an_unexpected_error_loses_its_requests_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(4)
    found = reported(world, monkeypatch)
    connect = Bookie._connect
    monkeypatch.setattr(Bookie, "_connect", defective)
    writer, listener = world.writer(Quorums(3, 3, 2))
    add(writer, 1)
    world.wait(0.1)
    monkeypatch.setattr(Bookie, "_connect", connect)
    assert {type(error) for error in found} == {Defect}
    assert listener.last == -1
    world.wait(10.0)
    again, listener = world.writer(Quorums(3, 3, 2))
    add(again, 3)
    world.wait(3.0)
    assert listener.last == 2


def test_pending_bytes_below_zero_end_the_connection_to_one_bookie(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(4)
    reported(world, monkeypatch)
    writer, listener = world.writer(Quorums(3, 3, 2))
    add(writer, 1)
    world.wait()
    for server in world.servers:
        server.model.delay = 0.5
    add(writer, 1)
    world.wait(0.1)
    writer._places[0].bookie.pending_bytes = 0
    with pytest.raises(BrokenInvariant, match="bytes that wait for an answer of bookie localhost"):
        world.wait(3.0)
    world.wait(3.0)
    assert listener.last == 1
    assert listener.failed is None
    add(writer, 1)
    world.wait(3.0)
    assert listener.last == 2
