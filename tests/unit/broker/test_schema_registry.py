"""The schema registry over simulated stores: versions, deaths of the process, two brokers at once."""

from __future__ import annotations

import json

import pytest
from simulated_io import SimulatedDisk
from world import World

from magnetar.broker.flow.rates import MOST_NAMESPACES, SchemaOperations
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.broker.schemas.registry import SchemaOperation, SchemaRegistry
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.errors import ConcurrentModification, IncompatibleSchema, MetadataFailure
from magnetar.ledger.interface import Quorums

ID = "public/default/t"


def record(*names: str) -> SchemaData:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in names]
    return SchemaData(SchemaType.AVRO, json.dumps({"type": "record", "name": "A", "fields": fields}).encode())


class Registry:
    """One life of a broker's registry."""

    def __init__(self, disk: SimulatedDisk | None = None, world: World | None = None) -> None:
        self.world = world or World(disk)
        io = self.world.simulation.io
        self.storage = SchemaStorage(
            io.loop, self.world.store, self.world.metadata, Quorums(), self.world.managed.deletions
        )
        self.operations = SchemaOperations(io.clock)
        self.registry = SchemaRegistry(io, self.storage, self.world.metadata, self.operations)

    def put(self, schema: SchemaData, strategy: str = "FULL") -> int:
        return self.world.run(self.registry.put_if_absent(ID, schema, strategy))

    def versions(self) -> list[tuple[int, bytes]]:
        found = self.world.run(self.registry.versions(ID))
        return [(each.version, each.data.data) for each in found]

    def ledgers(self) -> list[int]:
        return sorted(self.world.run(self.world.store.ledger_ids()))

    def remove_orphans(self) -> None:
        named = self.world.run(self.storage.ledger_ids())
        self.world.run(self.world.managed.orphaned_ledgers(0).look(self.ledgers(), named))


def test_versions_outlive_the_process() -> None:
    life = Registry()
    assert [life.put(record(*names)) for names in ("", "x", "xy", "x")] == [0, 1, 2, 1]
    for clean in (False, True):
        before, ledgers = life.versions(), life.ledgers()
        life = Registry(life.world.stop() if clean else life.world.crash())
        life.remove_orphans()
        assert life.ledgers() == ledgers
        assert life.versions() == before
    assert life.put(record("z")) == 3


def test_a_ledger_that_no_schema_names_goes() -> None:
    life = Registry()
    life.put(record("x"))
    life.world.run(life.world.store.create(Quorums(), {"component": b"schema"}))
    assert len(life.ledgers()) == 2
    life = Registry(life.world.crash())
    assert life.world.orphans == 1
    assert len(life.ledgers()) == 1
    assert life.versions() == [(0, record("x").data)]


@pytest.mark.parametrize("steps", range(1, 60, 3))
def test_a_death_while_a_version_is_added(steps: int) -> None:
    """Whenever the process dies, the version is there whole, or not at all."""
    life = Registry()
    life.put(record("x"))
    loop = life.world.simulation.loop
    adding = loop.create_task(life.registry.put_if_absent(ID, record("x", "y"), "FULL"))
    enough = loop.create_future()
    end = loop.timeline.steps + steps

    def watch() -> None:
        if not enough.done() and (adding.done() or loop.timeline.steps >= end):
            enough.set_result(None)

    loop.timeline.after_step = watch
    loop.run_until(enough)
    loop.timeline.after_step = None
    told = adding.done()
    life = Registry(life.world.crash())
    life.remove_orphans()
    versions = [version for version, _ in life.versions()]
    assert versions in ([0], [0, 1])
    assert not told or versions == [0, 1]
    assert len(life.ledgers()) == len(versions)
    assert life.put(record("x", "y")) == 1


def test_two_brokers_do_not_give_a_version_twice() -> None:
    one = Registry()
    other = Registry(world=one.world)
    loop = one.world.simulation.loop
    wanted = [record(*names) for names in ("a", "b", "c", "d")]
    tasks = [
        loop.create_task(life.registry.put_if_absent(ID, schema, "FULL"))
        for schema, life in zip(wanted, (one, other, one, other), strict=True)
    ]
    told = sorted(one.world.run(task) for task in tasks)
    assert told == [0, 1, 2, 3]
    assert one.versions() == other.versions()
    assert len(one.ledgers()) == 4


def test_a_version_that_another_broker_stores_meanwhile_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record went with a version that it named by then; its ledger stayed, and nothing named it."""
    life = Registry()
    other = Registry(world=life.world)
    life.put(record("x"))
    delete = life.world.metadata.delete

    async def late(path: str, expected_version: int | None = None) -> None:
        monkeypatch.undo()
        await other.registry.put_if_absent(ID, record("x", "y"), "FULL")
        await delete(path, expected_version)

    monkeypatch.setattr(life.world.metadata, "delete", late)
    with pytest.raises(ConcurrentModification):
        life.world.run(life.registry.delete(ID))
    assert life.versions() == [(0, record("x").data), (1, record("x", "y").data)]
    life.world.run(life.registry.delete(ID))
    assert life.versions() == []
    life.world.wait(1)
    assert life.ledgers() == []


def test_deleting() -> None:
    life = Registry()
    life.put(record("x"))
    assert life.world.run(life.registry.mark_deleted(ID)) == 1
    assert life.versions() == []
    text = SchemaData(SchemaType.STRING)
    assert life.put(text) == 2
    with pytest.raises(IncompatibleSchema):
        life.put(record("x"))
    life = Registry(life.world.crash())
    assert life.versions() == [(2, b"")]
    life.world.run(life.registry.delete(ID))
    life.world.run(life.registry.delete(ID))
    assert life.versions() == life.ledgers() == []
    assert life.put(record("x")) == 0


def test_a_damaged_record_is_named() -> None:
    life = Registry()
    life.put(record("x"))
    life.world.run(life.world.metadata.put(f"/schemas/{ID}", b"\xff"))
    with pytest.raises(MetadataFailure, match=ID):
        life.versions()


def test_what_was_asked_is_counted_by_namespace_and_end() -> None:
    life = Registry()
    run, registry = life.world.run, life.registry
    assert [life.put(record(*names)) for names in ("", "x", "x")] == [0, 1, 1]
    with pytest.raises(IncompatibleSchema):
        life.put(SchemaData(SchemaType.STRING, b""))
    run(registry.get(ID))
    run(registry.list(ID))
    run(registry.mark_deleted(ID))
    run(registry.delete("public/other/t"))
    found = life.operations.known
    assert list(found) == ["public/default", "public/other"]
    counts = {
        (kind.value, good): sum(times.counts) for (kind, good), times in found["public/default"].times.items()
    }
    assert counts == {
        ("put", True): 3,
        ("put", False): 1,
        ("get", True): 1,
        ("list", True): 1,
        ("delete", True): 1,
    }
    assert (found["public/default"].compatible, found["public/default"].incompatible) == (1, 1)


def test_namespaces_that_were_asked_about_long_ago_are_forgotten() -> None:
    life = Registry()
    for number in (*range(MOST_NAMESPACES), 0, MOST_NAMESPACES):
        with life.operations.measured(SchemaOperation.GET, f"public/n{number}/t"):
            pass
    found = life.operations.known
    assert len(found) == MOST_NAMESPACES
    assert "public/n0" in found
    assert "public/n1" not in found
