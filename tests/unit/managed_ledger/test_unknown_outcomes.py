"""Records whose write was not answered: it may have happened, and nothing is lost either way."""

from __future__ import annotations

import pytest
from faulty_metadata import Fault
from world import SMALL, World, append

from magnetar.broker.schemas.data import SchemaData, SchemaType, StoredSchema
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import decode_cursor, decode_managed_ledger
from magnetar.metadata.interface import BadVersion, MetadataUnavailable

BOTH = pytest.mark.parametrize("fault", list(Fault))


def lose_answers(world: World, fault: Fault) -> None:
    """From now on no change is answered, nor told of."""

    def draw(call: str) -> Fault:
        return fault if call in ("put", "delete") else Fault.BEFORE

    world.faulty_metadata.draw = draw


def answer(world: World) -> None:
    world.faulty_metadata.draw = lambda _call: None


@BOTH
def test_a_ledger_that_may_be_named_is_not_deleted(fault: Fault) -> None:
    world = World()
    ledger, listener = world.open()
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    lose_answers(world, fault)
    append(ledger, 2)
    world.wait(60)
    answer(world)
    world.wait(60)
    append(ledger, 2)
    world.wait(5)
    assert not listener.fenced
    assert len(listener.failed) == 1
    assert len(listener.stored) == 7
    named = [summary.ledger_id for summary in ledger.ledgers]
    assert world.run(world.store.ledger_ids()) == named
    again = World(world.crash())
    ledger, _ = again.open()
    assert again.orphans == 0
    assert again.drain(ledger.cursors["s"]) == listener.stored


@BOTH
def test_a_schema_that_may_be_named_is_not_deleted(fault: Fault) -> None:
    world = World()
    storage = SchemaStorage(
        world.simulation.loop, world.store, world.metadata, Quorums(), world.managed.deletions
    )
    schema = StoredSchema(0, SchemaData(SchemaType.STRING, b""), 1, False)
    lose_answers(world, fault)
    with pytest.raises(MetadataUnavailable):
        world.run(storage.append("t/n/x", schema, [], -1))
    answer(world)
    found, _record = world.run(storage.index("t/n/x"))
    assert len(found) == (1 if fault is Fault.AFTER else 0)
    for entry in found:
        assert world.run(storage.read(entry)).data.type is SchemaType.STRING


@BOTH
def test_cursors_survive(fault: Fault) -> None:
    world = World()
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    lose_answers(world, fault)
    cursor.delete(*listener.stored[0])
    world.wait(30)
    answer(world)
    cursor.delete(*listener.stored[1])
    world.wait(60)
    assert cursor.storage is not None
    world.run(cursor.flush())
    named = {summary.ledger_id for summary in ledger.ledgers} | {cursor.storage.ledger_id}
    assert set(world.run(world.store.ledger_ids())) == named
    again = World(world.crash())
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == listener.stored[2:]


@BOTH
def test_ledgers_that_may_still_be_listed_are_trimmed_later(fault: Fault) -> None:
    world = World(settings=SMALL)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 12)
    cursor.mark_delete_to(listener.stored[6])
    lose_answers(world, fault)
    ledger.trimmer.schedule()
    world.wait(60)
    answer(world)
    cursor.mark_delete_to(listener.stored[10])
    world.wait(60)
    world.publish(ledger, listener, 1)
    ledger.trimmer.schedule()
    world.wait(60)
    assert cursor.storage is not None
    world.run(cursor.flush())
    assert len(ledger.ledgers) == 1
    named = {summary.ledger_id for summary in ledger.ledgers} | {cursor.storage.ledger_id}
    assert set(world.run(world.store.ledger_ids())) == named


def overtake_next(world: World) -> None:
    """The next change is made and not answered."""
    world.faulty_metadata.fail_next("put", Fault.AFTER)
    # It is looked for a while later.
    world.faulty_metadata.fail_next("get", Fault.BEFORE)


def overtake(world: World, path: str) -> bytes:
    """Somebody else goes on from there before it is looked for; what was found there."""
    world.wait(0.05)
    inner = world.faulty_metadata.inner
    node = world.run(inner.get(path))
    assert node is not None
    return world.run(inner.put(path, node.value, node.version)).value


def test_a_ledger_that_the_next_owner_has_read_of_is_not_deleted() -> None:
    world = World()
    ledger, listener = world.open()
    world.publish(ledger, listener, 4)
    overtake_next(world)
    append(ledger, 2)
    record = decode_managed_ledger(overtake(world, ledger.path), ledger.path)
    world.wait(5)
    assert listener.fenced
    assert len(record.ledgers) == 2
    assert {each.ledger_id for each in record.ledgers} <= set(world.run(world.store.ledger_ids()))
    again = World(world.crash())
    ledger, _ = again.open(create=False)
    assert ledger.last_confirmed == listener.stored[-1]


def test_the_ledger_of_a_cursor_that_the_next_owner_has_read_of_is_not_deleted() -> None:
    world = World()
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 4)
    overtake_next(world)
    cursor.delete(*listener.stored[1])
    path = f"{ledger.path}/s"
    record = decode_cursor(overtake(world, path), path)
    world.wait(5)
    assert record.ledger_id in world.run(world.store.ledger_ids())


def test_a_schema_that_somebody_else_has_read_of_is_not_deleted() -> None:
    world = World()
    storage = SchemaStorage(
        world.simulation.loop, world.store, world.metadata, Quorums(), world.managed.deletions
    )
    schema = StoredSchema(0, SchemaData(SchemaType.STRING, b""), 1, False)
    overtake_next(world)
    appending = world.simulation.loop.create_task(storage.append("t/n/x", schema, [], -1))
    overtake(world, "/schemas/t/n/x")
    with pytest.raises(BadVersion):
        world.run(appending)
    [entry], _record = world.run(storage.index("t/n/x"))
    assert world.run(storage.read(entry)).data.type is SchemaType.STRING


@BOTH
def test_a_reader_stays_within_ledgers_whose_trimming_failed(fault: Fault) -> None:
    """Simulation, seed 13010425: the reader was behind the end, in a ledger without entries."""
    world = World(settings=SMALL)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    reader = world.managed.open_reader_cursor(ledger, "r", EARLIEST)
    world.publish(ledger, listener, SMALL.max_entries_per_ledger)
    ledger.start_over()
    world.wait(5)
    lose_answers(world, fault)
    cursor.mark_delete_to(listener.stored[-1])
    world.wait(60)
    last = ledger.ledgers.last()
    assert last is not None
    assert (len(ledger.ledgers), last.entries) == (2, 0)
    ledger.check()
    reader.rewind()
    answer(world)
    ledger.trimmer.schedule()
    world.wait(60)
    assert len(ledger.ledgers) == 1
    world.publish(ledger, listener, 1)
    assert world.drain(reader) == listener.stored[-1:]
    ledger.check()
