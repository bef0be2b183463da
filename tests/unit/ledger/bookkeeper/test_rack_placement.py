"""Who is chosen for ledgers, by where bookies stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from faulty_metadata import Fault
from test_bookies import World

from magnetar.ledger.bookkeeper.placement import NotEnoughBookies
from magnetar.ledger.bookkeeper.rack_placement import PlacementSettings, RackPlacement
from magnetar.ledger.bookkeeper.racks import DEFAULT_RACK, TABLE, RackTable
from magnetar.ledger.interface import Groups, Quorums

THREE = Quorums(3, 3, 2)


class Racks(World):
    """Bookies ``a1``, ``a2``, ``b1``, … in racks ``/a``, ``/b``; ``x.a1`` in ``/x/a``; ``0…`` in none."""

    def __init__(self, *names: str, **rules: Any) -> None:
        super().__init__(*(f"{name}:1" for name in names))
        self.table = RackTable(self.simulation.io, self.metadata)
        racks = {f"{name}:1": {"rack": "/" + name[:-1].replace(".", "/")} for name in names if name[0] != "0"}
        self.write({"default": racks})
        self.run(self.table.start())
        self.choice = RackPlacement(
            self.bookies, self.table, PlacementSettings(**rules), self.simulation.io.randomness
        )

    def write(self, table: object) -> None:
        value = table if isinstance(table, bytes) else json.dumps(table).encode()
        self.run(self.metadata.put(TABLE, value))
        self.loop.run_for(2)

    def ensemble(self, quorums: Quorums) -> list[str]:
        return [each.removesuffix(":1") for each in self.choice.ensemble(quorums)]

    def replaced(self, ensemble: str, *lost: int, quorums: Quorums = THREE, excluded: str = "") -> list[str]:
        before = [f"{each}:1" for each in ensemble.split()]
        chosen = self.choice.replaced(before, lost, quorums, {f"{each}:1" for each in excluded.split()})
        assert all(chosen[index] == each for index, each in enumerate(before) if index not in lost)
        return [each.removesuffix(":1") for each in chosen]

    def suspect(self, name: str) -> None:
        for _ in range(3):
            self.bookies.failed(f"{name}:1")


def test_each_write_quorum_has_two_racks() -> None:
    racks = Racks("a1", "a2", "a3", "a4", "b1", "b2")
    for _ in range(50):
        assert {each[0] for each in racks.ensemble(THREE)} == {"a", "b"}
        chosen = racks.ensemble(Quorums(4, 2, 2))
        assert chosen[0][0] == chosen[2][0] != chosen[1][0] == chosen[3][0]
        assert len(set(chosen)) == 4


def test_all_bookies_get_ledgers() -> None:
    racks = Racks("a1", "a2", "a3", "b1", "b2", "01")
    seen = {each for _ in range(200) for each in racks.ensemble(Quorums(2, 2, 2))}
    assert seen == {"a1", "a2", "a3", "b1", "b2", "01"}


def test_one_rack_will_do_where_it_may() -> None:
    assert sorted(Racks("a1", "a2", "a3").ensemble(THREE)) == ["a1", "a2", "a3"]
    with pytest.raises(NotEnoughBookies, match="3 bookies in 2 racks for each write quorum are needed"):
        Racks("a1", "a2", "a3", enforced=True).ensemble(THREE)
    with pytest.raises(NotEnoughBookies):
        Racks("a1", "a2", "01", enforced=True).ensemble(THREE)
    assert set(Racks("a1", "a2", "b1", "01", enforced=True).ensemble(THREE)) == {"a1", "a2", "b1"}


def test_who_replaces_another_stands_elsewhere_than_the_rest() -> None:
    racks = Racks("a1", "a2", "a3", "b1", "b2")
    for _ in range(20):
        assert racks.replaced("a1 a2 b1", 2) == ["a1", "a2", "b2"]
        assert racks.replaced("a1 a2 b1", 2, excluded="b2") == ["a1", "a2", "a3"]
    forced = Racks("a1", "a2", "a3", "b1", "b2", enforced=True)
    with pytest.raises(NotEnoughBookies):
        forced.replaced("a1 a2 b1", 2, excluded="b2")
    assert forced.replaced("a1 a2 b1", 0, 2)[1:] in (["a2", "b2"], ["a2", "a3"])


def test_those_in_doubt_come_last() -> None:
    racks = Racks("a1", "a2", "a3", "b1", enforced=True)
    racks.suspect("a1")
    for _ in range(20):
        assert "a1" not in racks.ensemble(THREE)
    racks.suspect("b1")
    assert "b1" in racks.ensemble(THREE)
    lenient = Racks("a1", "a2", "a3", "b1")
    lenient.suspect("b1")
    assert set(lenient.ensemble(THREE)) == {"a1", "a2", "a3"}


def test_regions_come_before_racks() -> None:
    racks = Racks("x.a1", "x.b1", "x.c1", "y.a1", "y.a2", "z.a1", regions=True)
    for _ in range(30):
        assert {each[0] for each in racks.ensemble(THREE)} == {"x", "y", "z"}
        four = racks.ensemble(Quorums(4, 2, 2))
        assert all(four[index][0] != four[index - 1][0] for index in range(4))
    two = Racks("x.a1", "x.a2", "x.b1", "y.a1", regions=True)
    for _ in range(30):
        chosen = two.ensemble(THREE)
        assert {each[0] for each in chosen} == {"x", "y"}
        assert len({each[:-1] for each in chosen}) == 3
    assert two.replaced("x.a1 x.b1 y.a1", 2) == ["x.a1", "x.b1", "x.a2"]


def test_groups_keep_to_themselves() -> None:
    racks = Racks("a1", "a2", "b1", "b2", "01", groups=Groups(frozenset({"mine"}), frozenset({"spare"})))
    mine = {"a1:1": {"rack": "/a"}, "b1:1": {"rack": "/b"}, "gone:1": {"rack": "/c"}}
    racks.write({"mine": mine, "spare": {"a2:1": {"rack": "/a"}}, "theirs": {"b2:1": {"rack": "/b"}}})
    for _ in range(20):
        assert set(racks.ensemble(Quorums(2, 2, 2))) == {"a1", "b1"}
        assert set(racks.ensemble(THREE)) == {"a1", "a2", "b1"}
    with pytest.raises(NotEnoughBookies, match="of the groups mine, spare"):
        racks.ensemble(Quorums(4, 2, 2))


def test_the_table_may_change_and_be_damaged() -> None:
    racks = Racks("a1", "a2", "b1")
    table = racks.table
    assert (table.of("a1:1").rack, table.of("b1:1").rack, table.of("?").rack) == ("/a", "/b", DEFAULT_RACK)
    racks.write({"g": {"a1:1": {"rack": "elsewhere/", "hostname": "h"}}, "h": {"a1:1": {"rack": "/new"}}})
    assert table.of("a1:1") == ({"g", "h"}, "/new")
    assert table.of("b1:1").rack == DEFAULT_RACK
    for damaged in (b"{", b"[]", b'{"g":1}', b'{"g":{"a1:1":[]}}', b'{"g":{"a1:1":{"rack":1}}}', b"\xff"):
        racks.write(damaged)
        assert table.of("a1:1").rack == "/new"
    racks.write(b'{"g":{"a1:1":{"hostname":"h"}}}')
    assert racks.table.of("a1:1") == ({"g"}, DEFAULT_RACK)
    racks.write(b"")
    assert table.of("a1:1").rack == DEFAULT_RACK


def test_a_table_that_cannot_be_read_is_read_later() -> None:
    racks = Racks("a1", "b1")
    racks.metadata.fail_next("get", Fault.BEFORE)
    racks.write({"g": {"a1:1": {"rack": "/z"}}})
    assert racks.table.of("a1:1").rack == "/z"
    racks.metadata.disconnect()
    racks.run(racks.metadata.inner.put(TABLE, b"{}"))
    racks.loop.run_for(2)
    assert racks.table.of("a1:1").rack == "/z"
    racks.metadata.reconnect()
    racks.loop.run_for(2)
    assert racks.table.of("a1:1").rack == DEFAULT_RACK
    racks.table.close()
    racks.write({"g": {"a1:1": {"rack": "/y"}}})
    assert racks.table.of("a1:1").rack == DEFAULT_RACK
