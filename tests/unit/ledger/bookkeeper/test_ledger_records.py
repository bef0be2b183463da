"""The metadata of ledgers below one root: ids that nobody else has, changes by version, listing."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_metadata import Fault, FaultyMetadataStore
from simulated_io import simulated_io

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, MetadataFailed, Segment
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, UnknownLayout
from magnetar.ledger.interface import LedgerError, LedgerState, NoSuchLedger, Quorums
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import BadVersion

RECORD = LedgerRecord(Quorums(3, 3, 2), (Segment(0, ("a:3181", "b:3181", "c:3181")),))


class World:
    """Metadata, and two clients of BookKeeper's with the same root."""

    def __init__(self) -> None:
        self.simulation = simulated_io(1)
        self.loop = self.simulation.loop
        embedded = self.run(EmbeddedMetadataStore.open_store(self.simulation.io, "metadata.db"))
        self.metadata = FaultyMetadataStore(embedded, self.loop)
        self.ours, self.theirs = (LedgerRecords(self.metadata, self.loop) for _ in range(2))
        for records in (self.ours, self.theirs):
            self.run(records.check_layout())

    def run(self, work: Any) -> Any:
        return self.loop.run_until(work)

    def put(self, path: str, value: bytes = b"") -> None:
        self.run(self.metadata.put(path, value))

    def children(self, path: str) -> list[str]:
        return list(self.run(self.metadata.children(path)))


def test_both_ask_for_ids_at_once_and_get_their_own_in_ascending_order() -> None:
    world = World()
    asked = [
        world.loop.create_task(records.make(RECORD))
        for _ in range(20)
        for records in (world.ours, world.theirs)
    ]
    made = [world.run(each)[0] for each in asked]
    assert sorted(made) == list(range(40))
    assert made[::2] == sorted(made[::2])
    assert world.run(world.ours.make(RECORD))[0] == 40
    world.run(world.ours.close())
    assert world.children("/ledgers/idgen") == []
    assert world.run(world.theirs.ledger_ids()) == list(range(41))
    assert "L0007" in world.children("/ledgers/00/0000")


def test_a_version_is_replaced_once() -> None:
    world = World()
    ledger_id, made = world.run(world.ours.make(RECORD))
    assert world.run(world.theirs.read(ledger_id)) == made
    closed = world.run(world.theirs.write(ledger_id, RECORD.closed(9, 90), made.version))
    assert closed.version == made.version + 1
    with pytest.raises(BadVersion):
        world.run(world.ours.write(ledger_id, RECORD.in_recovery(), made.version))
    assert world.run(world.ours.read(ledger_id)) == closed
    assert closed.record.state is LedgerState.CLOSED


def test_what_is_deleted_is_gone_and_deleting_it_again_is_fine() -> None:
    world = World()
    ledger_id, made = world.run(world.ours.make(RECORD))
    for _ in range(2):
        world.run(world.ours.delete(ledger_id))
    with pytest.raises(NoSuchLedger):
        world.run(world.ours.read(ledger_id))
    with pytest.raises(BadVersion):
        world.run(world.ours.write(ledger_id, RECORD, made.version))
    assert world.run(world.ours.make(RECORD))[0] == ledger_id + 1


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("failing", [0, 1])
def test_an_id_that_may_have_been_taken_is_not_used_again(failing: int, fault: Fault) -> None:
    """:param failing: which put of a new ledger's has no answer: that of its id, or its own"""
    world = World()
    world.run(world.ours.make(RECORD))
    puts: list[str] = []

    def draw(call: str) -> Fault | None:
        if call != "put":
            return None
        puts.append(call)
        return fault if len(puts) == failing + 1 else None

    world.metadata.draw = draw
    with pytest.raises(MetadataFailed):
        world.run(world.ours.make(RECORD))
    ledger_id, _ = world.run(world.ours.make(RECORD))
    nothing_happened = failing == 0 and fault is Fault.BEFORE
    assert ledger_id == (1 if nothing_happened else 2)


def test_an_id_that_somebody_took_without_asking_is_passed_over() -> None:
    world = World()
    world.put("/ledgers/00/0000/L0000")
    world.put("/ledgers/00/0000/L0001")
    assert world.run(world.ours.make(RECORD))[0] == 2


def test_long_ids_begin_where_the_short_ones_end() -> None:
    world = World()
    world.put("/ledgers/idgen-long")
    made = [world.run(records.make(RECORD))[0] for records in (world.ours, world.theirs, world.ours)]
    assert made == [1 << 32, (1 << 32) + 1, (1 << 32) + 2]
    assert world.children("/ledgers/idgen-long") == ["HOB-0000000001"]
    world.put("/ledgers/idgen-long/HOB-0000000007")
    made.append(world.run(world.ours.make(RECORD))[0])
    assert made[3] == 7 << 32
    assert world.run(world.ours.ledger_ids()) == made


class _CountedOver:
    """Metadata whose counters of short ids, and of the first long ones, have come to their end."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, path: str, value: bytes, expected_version: int | None = None, **how: bool) -> Any:
        node = await self._inner.put(path, value, expected_version, **how)
        if how.get("sequential") and not path.startswith("/ledgers/idgen-long/HOB-0000000002"):
            await self._inner.delete(node.path)
            over = path + str(-(1 << 31)) if "long" in path else path + "2147483647"
            return await self._inner.put(over, b"", ephemeral=True)
        return node


def test_a_counter_that_has_come_to_its_end_is_followed_by_the_next() -> None:
    world = World()
    records = LedgerRecords(_CountedOver(world.metadata), world.loop)  # type: ignore[arg-type]
    world.run(records.check_layout())
    assert [world.run(records.make(RECORD))[0] for _ in range(2)] == [2 << 32, (2 << 32) + 1]
    assert world.run(world.theirs.ledger_ids()) == [2 << 32, (2 << 32) + 1]


def test_what_is_no_ledger_is_not_listed() -> None:
    world = World()
    for path in (
        "available/readonly/a:3181",
        "cookies/a:3181",
        "idgen",
        "idgen-long/HOB-0000000001",
        "INSTANCEID",
        "underreplication/ledgers/0000/0000/0000/0001/urL0000000001",
        "00/0000",
        "00/0000/L00x1",
        "00/0001/X0001",
        "000/0000/0000/0000/L0005",
    ):
        world.put(f"/ledgers/{path}")
    assert world.run(world.ours.ledger_ids()) == []
    ledger_id, _ = world.run(world.ours.make(RECORD))
    assert world.run(world.ours.ledger_ids()) == [ledger_id]


def test_the_layout_that_bookkeeper_was_set_up_with_is_followed() -> None:
    world = World()
    factory = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    world.put("/ledgers/LAYOUT", f"2\n{factory}".encode())
    world.run(world.ours.check_layout())
    assert world.ours.path(5) == "/ledgers/00/0000/L0005"
    world.put("/ledgers/LAYOUT", f"2\n{factory.replace('meta.', 'meta.Long')}\n".encode())
    world.run(world.ours.check_layout())
    ledger_id, made = world.run(world.ours.make(RECORD))
    assert world.ours.path(ledger_id) == "/ledgers/000/0000/0000/0000/L0000"
    assert world.run(world.ours.ledger_ids()) == [ledger_id]
    assert world.run(world.ours.read(ledger_id)) == made


@pytest.mark.parametrize(
    "said",
    [b"1\nflat:1", b"", b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", b"\xff", b"3\n"],
)
def test_a_layout_that_is_not_known_is_refused_by_name(said: bytes) -> None:
    world = World()
    world.put("/ledgers/LAYOUT", said)
    with pytest.raises(UnknownLayout, match="/ledgers/LAYOUT"):
        world.run(world.ours.check_layout())


def test_who_listens_hears_of_ledgers_alone() -> None:
    world = World()
    heard: list[int] = []
    world.theirs.listen(heard.append)
    ledger_id, made = world.run(world.ours.make(RECORD))
    world.put("/ledgers/available/a:3181")
    world.run(world.ours.write(ledger_id, RECORD.closed(0, 1), made.version))
    world.loop.run_for(1)
    assert heard == [ledger_id, ledger_id]


def test_a_counter_that_gives_no_numbers_ends_in_an_error() -> None:
    world = World()
    for each in range(40):
        world.put(f"/ledgers/00/0000/L{each:04d}")
    with pytest.raises(LedgerError, match="taken"):
        world.run(world.ours.make(RECORD))
