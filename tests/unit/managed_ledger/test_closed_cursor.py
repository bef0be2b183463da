"""Where a cursor leaves its state when it is closed."""

from __future__ import annotations

import pytest
from world import NAME, World, append

from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import decode_cursor


@pytest.mark.parametrize("part_of_a_batch", [False, True])
def test_what_is_acknowledged_of_batches_is_left_in_a_ledger_and_all_else_in_the_metadata(
    part_of_a_batch: bool,
) -> None:
    world = World()
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    append(ledger, 4)
    world.wait(1)
    assert cursor.delete(*listener.stored[2])
    if part_of_a_batch:
        cursor.consume_batch_indexes(*listener.stored[1], 0b101, 3)
    world.run(world.managed.close(ledger))
    path = f"/managed-ledgers/{NAME}/s"
    node = world.run(world.metadata.get(path))
    assert node is not None
    assert (decode_cursor(node.value, path).ledger_id >= 0) == part_of_a_batch
    ledger, _listener = world.open()
    again = ledger.cursors["s"]
    assert again.is_consumed(*listener.stored[2])
    assert again.state.batches == cursor.state.batches
    assert bool(again.state.batches) == part_of_a_batch


def test_a_cursor_is_not_written_when_its_owner_changed_during_its_deletion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    ledger, _ = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    assert cursor.storage is not None
    world.faulty_metadata.disconnect()
    loop = world.simulation.io.loop
    writing = loop.create_task(cursor.storage.set_cursor_properties({"a": "b"}))
    deleting = loop.create_task(ledger.cursors.delete("s"))
    world.wait(0)
    ledger.disown()
    world.faulty_metadata.reconnect()
    world.run(writing)
    with pytest.raises(ManagedLedgerFenced):
        world.run(deleting)
    caplog.clear()
    world.run(cursor.close())
    assert not caplog.records
