"""How many copies are asked for of the ledgers of a managed ledger, and of those of its cursors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from faulty_ledgers import FaultyLedgerStore
from world import SMALL, World, append

from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST


class Asked(FaultyLedgerStore):
    """Remembers what was asked for."""

    def __init__(self, inner: LedgerStore, loop: Loop) -> None:
        super().__init__(inner, loop)
        self.of_cursors: list[Quorums] = []
        self.of_entries: list[Quorums] = []

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        (self.of_cursors if "pulsar/cursor" in custom else self.of_entries).append(quorums)
        return await super().create(quorums, custom, high_priority=high_priority)


def asked_of(world: World) -> Asked:
    store = world.managed.store
    assert isinstance(store, Asked)
    return store


def use_up(world: World, ledger: ManagedLedger) -> None:
    """A new ledger begins, and the cursor writes its state."""
    append(ledger, SMALL.max_entries_per_ledger)
    world.wait(1)
    cursor = ledger.cursors.get("s") or world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    cursor.mark_delete_to(ledger.last_confirmed)
    world.run(cursor.flush())


def test_those_that_it_is_opened_with() -> None:
    world = World(wrap=Asked)
    ledger = world.run(world.managed.open("t/n/persistent/three", create=True, quorums=Quorums(5, 3, 2)))
    use_up(world, ledger)
    assert set(asked_of(world).of_entries) == {Quorums(5, 3, 2)}
    assert set(asked_of(world).of_cursors) == {Quorums(5, 3, 2)}


def test_others_count_for_ledgers_that_are_made_from_then_on() -> None:
    world = World(wrap=Asked)
    ledger, _listener = world.open()
    use_up(world, ledger)
    asked = asked_of(world)
    before = len(asked.of_entries), len(asked.of_cursors)
    assert before[0] > 1
    assert before[1] > 0
    ledger.use_quorums(Quorums(3, 3, 2))
    use_up(world, ledger)
    assert set(asked.of_entries[: before[0]]) == {Quorums()}
    assert set(asked.of_entries[before[0] :]) == {Quorums(3, 3, 2)}
    cursor = ledger.cursors["s"]
    assert cursor.storage is not None
    world.run(cursor.storage.side.write(_one_entry()))
    assert asked.of_cursors[before[1] :] == [Quorums(3, 3, 2)]


async def _one_entry() -> AsyncIterator[bytes]:
    yield b"entry"
