"""Who is registered, where they listen, who is left alone, and who is chosen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from faulty_metadata import Fault, FaultyMetadataStore
from model_bookie import ModelBookie
from simulated_io import simulated_io

from magnetar.ledger.bookkeeper import records_pb2 as pb
from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import Bookies, BookiesSettings, Use
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies, RandomPlacement
from magnetar.ledger.interface import Quorums
from magnetar.metadata.embedded import EmbeddedMetadataStore

SETTINGS = BookiesSettings(BookieSettings(5.0, 2.0, 0.2), errors=3, within_seconds=60, quarantine_seconds=600)


def registration(host: str, port: int, protocol: str = "bookie-rpc") -> bytes:
    info = pb.BookieServiceInfoFormat()
    info.endpoints.add(id="http", port=1, host="nowhere", protocol="http")
    info.endpoints.add(id="bookie", port=port, host=host, protocol=protocol)
    return info.SerializeToString()


class World:
    def __init__(self, *bookie_ids: str, settings: BookiesSettings = SETTINGS) -> None:
        self.simulation = simulated_io(1)
        self.loop = self.simulation.loop
        embedded = self.run(EmbeddedMetadataStore.open_store(self.simulation.io, "metadata.db"))
        self.metadata = FaultyMetadataStore(embedded, self.loop)
        for bookie_id in bookie_ids:
            self.register(bookie_id)
        self.bookies = Bookies(self.simulation.io, self.metadata, settings=settings)
        self.placement = RandomPlacement(self.bookies, self.simulation.io.randomness)
        self.run(self.bookies.start())

    def run(self, work: Any) -> Any:
        return self.loop.run_until(work)

    def register(self, bookie_id: str, value: bytes = b"", folder: str = "available") -> None:
        self.run(self.metadata.put(f"/ledgers/{folder}/{bookie_id}", value))

    def remove(self, bookie_id: str, folder: str = "available") -> None:
        self.run(self.metadata.delete(f"/ledgers/{folder}/{bookie_id}"))

    def serve(self, port: int) -> ModelBookie:
        server = ModelBookie(self.loop)
        self.run(self.simulation.host.listen("", port, server.factory))
        return server

    def ask(self, bookie_id: str) -> int:
        told: list[int] = []
        self.bookies.bookie(bookie_id).read(1, 0, lambda status, _bodies: told.append(status))
        self.loop.run_for(1)
        (status,) = told
        return status


def test_who_comes_and_goes_is_known() -> None:
    world = World("b:1", "a:1")
    assert list(world.bookies.writable) == ["a:1", "b:1"]
    world.register("c:1")
    world.register("d:1", folder="available/readonly")
    world.loop.run_for(0.1)
    assert (list(world.bookies.writable), list(world.bookies.read_only)) == (["a:1", "b:1", "c:1"], ["d:1"])
    world.register("c:1", folder="available/readonly")
    world.loop.run_for(0.3)
    assert list(world.bookies.writable) == ["a:1", "b:1"], "it is about to lose the other registration"
    world.remove("c:1")
    world.remove("a:1")
    world.loop.run_for(4)
    assert (list(world.bookies.writable), list(world.bookies.read_only)) == (["b:1"], ["c:1", "d:1"])


def test_a_registration_that_comes_and_goes_all_the_time_counts() -> None:
    world = World("a:1", "b:1")
    reads: list[str] = []

    def draw(call: str) -> None:
        reads.append(call)

    world.metadata.draw = draw  # type: ignore[assignment]
    for _ in range(100):
        world.remove("a:1")
        world.loop.run_for(0.03)
        assert list(world.bookies.writable) == ["a:1", "b:1"]
        world.register("a:1")
        world.loop.run_for(0.03)
    assert reads.count("children") < 150
    world.remove("a:1")
    world.loop.run_for(1)
    assert [world.placement.ensemble(Quorums(1, 1, 1)) for _ in range(10)] == [("b:1",)] * 10
    assert world.ask("a:1") == Status.LOST
    assert list(world.bookies.writable) == ["b:1"], "it is gone indeed"


def test_what_was_missed_is_read_when_the_metadata_is_back() -> None:
    world = World("a:1")
    answers = [Fault.BEFORE, Fault.BEFORE, Fault.BEFORE]
    world.metadata.draw = lambda call: answers.pop() if call == "children" and answers else None
    world.register("b:1")
    world.loop.run_for(0.5)
    assert list(world.bookies.writable) == ["a:1"]
    world.loop.run_for(5)
    assert list(world.bookies.writable) == ["a:1", "b:1"]


def test_a_bookie_is_found_where_it_says_that_it_listens() -> None:
    world = World("localhost:3181")
    world.serve(3181)
    world.serve(4000)
    assert world.ask("localhost:3181") == Status.NO_LEDGER
    assert world.ask("rack-1-a") == Status.LOST, "its address is unknown"
    world.register("rack-1-a", registration("localhost", 4001))
    world.loop.run_for(1)
    assert world.ask("rack-1-a") == Status.LOST, "nobody listens there"
    world.remove("rack-1-a")
    world.register("rack-1-a", registration("localhost", 4000))
    world.loop.run_for(1)
    assert world.ask("rack-1-a") == Status.NO_LEDGER
    world.remove("rack-1-a")
    world.loop.run_for(1)
    assert world.ask("rack-1-a") == Status.NO_LEDGER
    world.register("localhost:4000", b"\xff\xff")
    world.loop.run_for(1)
    assert world.ask("localhost:4000") == Status.NO_LEDGER


def test_each_use_has_a_connection_of_its_own() -> None:
    world = World("localhost:3181")
    connections = [world.bookies.bookie("localhost:3181", use) for use in Use]
    assert len(set(connections)) == len(Use)
    assert connections == [world.bookies.bookie("localhost:3181", use) for use in Use]


def test_who_has_many_errors_in_a_short_time_is_left_alone_for_long() -> None:
    world = World("a:1", "b:1")
    for _ in range(5):
        world.bookies.failed("a:1")
        world.loop.run_for(40)
    assert world.bookies.quarantined() == []
    for _ in range(3):
        world.bookies.failed("a:1")
    assert world.bookies.quarantined() == ["a:1"]
    assert {world.placement.ensemble(Quorums(1, 1, 1)) for _ in range(20)} == {("b:1",)}
    assert sorted(world.placement.ensemble(Quorums(2, 2, 2))) == ["a:1", "b:1"], "there are no others"
    world.loop.run_for(601)
    assert world.bookies.quarantined() == []
    assert {world.placement.ensemble(Quorums(1, 1, 1)) for _ in range(20)} == {("a:1",), ("b:1",)}


@pytest.mark.parametrize(
    "settings", [SETTINGS._replace(quarantine=False), SETTINGS._replace(quarantine_ratio=0.0)]
)
def test_nobody_is_left_alone_where_that_is_not_wanted(settings: BookiesSettings) -> None:
    world = World("a:1", settings=settings)
    for _ in range(20):
        world.bookies.failed("a:1")
    assert world.bookies.quarantined() == []


def test_who_cannot_be_reached_is_not_chosen_unless_there_are_no_others() -> None:
    world = World("localhost:1", "localhost:2", "localhost:3")
    world.serve(2)
    world.serve(3)
    assert world.ask("localhost:1") == Status.LOST
    for _ in range(20):
        assert sorted(world.placement.ensemble(Quorums(2, 2, 2))) == ["localhost:2", "localhost:3"]
    world.serve(1)
    world.loop.run_for(15)
    chosen = Counter(each for _ in range(200) for each in world.placement.ensemble(Quorums(2, 2, 2)))
    assert all(chosen[f"localhost:{port}"] > 80 for port in (1, 2, 3))


def test_a_replacement_is_none_of_those_there_are_or_were_lost() -> None:
    world = World("a:1", "b:1", "c:1", "d:1", "e:1", "f:1")
    ensemble = ("a:1", "b:1", "c:1")
    seen = set()
    for _ in range(50):
        first, second, third = world.placement.replaced(ensemble, {0, 2}, Quorums(3, 3, 2), {"e:1"})
        assert second == "b:1"
        seen.add((first, third))
    assert seen == {("d:1", "f:1"), ("f:1", "d:1")}
    with pytest.raises(
        NotEnoughBookies, match=r"3 bookies are needed in addition to a:1, .* but 2 are available: d:1, f:1"
    ):
        world.placement.replaced(ensemble, {0, 1, 2}, Quorums(3, 3, 2), {"e:1"})
    with pytest.raises(NotEnoughBookies, match="7 bookies are needed, but 6 are available"):
        world.placement.ensemble(Quorums(7, 3, 2))
