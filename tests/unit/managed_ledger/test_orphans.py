"""Ledgers that nothing names are found among those of others, and nothing else is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from world import NAME, World

from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.errors import MetadataDamaged
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.orphans import OrphanSearch, owner_of
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.side_ledgers import COMPACTED_LEDGER, COMPACTION_CURSOR

_TOPIC = "persistent://t/n/topic"
_HOUR_MS = 3_600_000
_OF_OTHERS: tuple[Mapping[str, bytes], ...] = (
    {},
    {"application": b"BookKeeper"},
    {"pulsar/managed-ledger": NAME.encode()},
    {"application": b"pulsar", "component": b"function"},
)
_COMPACTED = {"application": b"pulsar", "pulsar/compactedTopic": _TOPIC.encode()}


class Life:
    def __init__(self) -> None:
        self.world = World()
        self.of_schemas: set[int] = set()
        self.of_packages: set[int] = set()

        async def schemas() -> Collection[int]:
            return self.of_schemas

        async def packages() -> Collection[int]:
            return self.of_packages

        self.search = OrphanSearch(self.world.store, self.world.metadata, schemas, packages)

    def make(self, custom: Mapping[str, bytes]) -> int:
        """A ledger of two hours ago."""
        ledger_id = self.world.run(self.world.store.create(Quorums(), custom)).ledger_id
        self.world.wait(2 * _HOUR_MS / 1000)
        return ledger_id

    def found(self) -> list[int]:
        candidates = self.world.run(self.world.store.ledger_ids())
        before = self.world.simulation.io.clock.wall_ms() - _HOUR_MS
        return [orphan.ledger_id for orphan in self.world.run(self.search.find(candidates, before))]


@pytest.fixture
def life() -> Life:
    return Life()


def test_what_is_named_stays(life: Life) -> None:
    ledger, listener = life.world.open()
    life.world.publish(ledger, listener, 12)
    cursor = life.world.run(life.world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    cursor.mark_delete_to(listener.stored[7])
    life.world.run(cursor.flush())
    life.of_schemas.add(life.make({"application": b"pulsar", "pulsar/schemaId": b"t/n/topic"}))
    life.world.wait(2 * _HOUR_MS / 1000)
    assert len(life.world.run(life.world.store.ledger_ids())) >= 3
    assert life.found() == []


@pytest.mark.parametrize("custom", _OF_OTHERS)
def test_ledgers_of_others_stay(life: Life, custom: Mapping[str, bytes]) -> None:
    life.make(custom)
    assert life.found() == []


def test_what_nothing_names_is_found(life: Life) -> None:
    ledger, listener = life.world.open()
    life.world.publish(ledger, listener, 3)
    lost = [
        life.make(custom_metadata(NAME)),
        life.make(custom_metadata(NAME, "s")),
        life.make(custom_metadata("t/n/persistent/never-was")),
        life.make({"application": b"pulsar", "pulsar/schemaId": b"t/n/topic"}),
        life.make(_COMPACTED),
    ]
    assert life.found() == lost


def test_what_is_young_stays(life: Life) -> None:
    life.world.run(life.world.store.create(Quorums(), custom_metadata(NAME)))
    life.world.wait(_HOUR_MS / 1000 - 1)
    assert life.found() == []


def test_what_is_named_meanwhile_is_no_orphan(life: Life) -> None:
    schema = life.make({"application": b"pulsar", "pulsar/schemaId": b"t/n/topic"})
    candidates = life.world.run(life.world.store.ledger_ids())
    before = life.world.simulation.io.clock.wall_ms() - _HOUR_MS
    (orphan,) = life.world.run(life.search.find(candidates, before))
    assert owner_of(orphan) == "schema of t/n/topic"
    assert life.world.run(life.search.is_orphan(orphan))
    life.of_schemas.add(schema)
    assert not life.world.run(life.search.is_orphan(orphan))


def compacted(life: Life) -> tuple[ManagedLedger, CursorStorage, int, int]:
    """A topic that was compacted: its cursor, the ledger that this one names, and one that nothing names."""
    ledger, listener = life.world.open()
    life.world.publish(ledger, listener, 4)
    cursor = life.world.run(life.world.managed.open_cursor(ledger, COMPACTION_CURSOR, EARLIEST, {}))
    named, lost = life.make(_COMPACTED), life.make(_COMPACTED)
    storage = cursor.storage
    assert storage is not None
    storage.properties = {COMPACTED_LEDGER: named}
    cursor.mark_delete_to(listener.stored[1])
    life.world.run(cursor.flush())
    return ledger, storage, named, lost


def test_a_compacted_ledger_stays_while_its_cursor_is_written(life: Life) -> None:
    """Another process may have named it in a state that nobody can read yet."""
    ledger, _, _, lost = compacted(life)
    assert life.found() == []
    life.world.run(life.world.managed.close(ledger))
    assert life.found() == [lost]


def test_a_compaction_whose_cursor_has_lost_its_ledger_ends_no_search(life: Life) -> None:
    """It goes on from its record, and so does whoever asks what it names: they asked for ever."""
    _, storage, named, lost = compacted(life)
    storage.abandon()
    life.world.run(life.world.store.delete(storage.ledger_id))
    assert life.found() == [lost]
    assert life.world.run(life.world.managed.orphaned_ledgers(0).look([named, lost])) == 1


def test_nobody_knows_what_a_damaged_record_names(life: Life) -> None:
    life.make(custom_metadata(NAME))
    life.world.run(life.world.metadata.put("/managed-ledgers/t/n/persistent/other", b"\xff\xff"))
    with pytest.raises(MetadataDamaged):
        life.found()


def test_a_package_that_was_never_finished_is_an_orphan(life: Life) -> None:
    custom = {"application": b"pulsar", "component": b"package", "magnetar/package": b"sink://t/n/p@1"}
    named, left = life.make(custom), life.make(custom)
    life.of_packages = {named}
    assert life.found() == [left]
