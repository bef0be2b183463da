"""Ledgers that only bookies of some groups get."""

from __future__ import annotations

import json
from array import array

import pytest
from simulated_bookkeeper import SETTINGS
from test_version3 import Cluster

from magnetar.ledger.bookkeeper import ledger_record
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies
from magnetar.ledger.bookkeeper.rack_placement import PlacementSettings
from magnetar.ledger.bookkeeper.racks import TABLE
from magnetar.ledger.interface import DataDamaged, Groups, Quorums

MINE = Groups(frozenset({"g1"}), frozenset({"g2"}))
# As Apache Pulsar 4.0.8's broker wrote them.
RECORDED = {
    Groups(frozenset({"g1"})): (
        b"{\n"
        b'  "policyClass" : "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy",\n'
        b'  "properties" : {\n'
        b'    "isolationBookieGroups" : "g1"\n'
        b"  }\n"
        b"}"
    ),
    MINE: (
        b"{\n"
        b'  "policyClass" : "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy",\n'
        b'  "properties" : {\n'
        b'    "isolationBookieGroups" : "g1",\n'
        b'    "secondaryIsolationBookieGroups" : "g2"\n'
        b"  }\n"
        b"}"
    ),
}


@pytest.mark.parametrize("groups", RECORDED)
def test_it_is_written_as_pulsars_brokers_write_it(groups: Groups) -> None:
    assert ledger_record.written(groups) == RECORDED[groups]
    assert ledger_record.read({ledger_record.CUSTOM: RECORDED[groups]}) == groups


def test_what_names_no_group_is_for_any_bookie() -> None:
    assert ledger_record.read({}) is None
    assert ledger_record.read({ledger_record.CUSTOM: b'{"policyClass":"c","properties":{}}'}) is None
    several = b'{"policyClass":"c","properties":{"isolationBookieGroups":"a, b"}}'
    assert ledger_record.read({ledger_record.CUSTOM: several}) == Groups(frozenset({"a", "b"}))


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"[]", b'{"properties":1}', b'{"properties":{"x":1}', b"\xff"]
)
def test_what_cannot_be_read_is_damaged(damaged: bytes) -> None:
    with pytest.raises(DataDamaged, match="EnsemblePlacementPolicyConfig"):
        ledger_record.read({ledger_record.CUSTOM: damaged})


def cluster_with_groups() -> Cluster:
    """Bookies 0 and 1 in ``g1``, 2 and 3 in ``g2``, 4 in none."""
    cluster = Cluster(5)
    ids = [bookie.bookie_id for bookie in cluster.servers.bookies]
    table = {
        "g1": {each: {"rack": "/a"} for each in ids[:2]},
        "g2": {each: {"rack": "/a"} for each in ids[2:4]},
    }
    cluster.servers.zookeeper.model.create(TABLE, json.dumps(table).encode(), 0, 0)
    return cluster


@pytest.mark.parametrize("racks", [True, False])
def test_its_bookies_are_of_the_group_from_beginning_to_end(racks: bool) -> None:
    cluster = cluster_with_groups()
    ids = [bookie.bookie_id for bookie in cluster.servers.bookies]
    settings = SETTINGS._replace(placement=PlacementSettings(min_racks=1, racks=racks))
    store = cluster.open("isolated", settings)
    for _ in range(10):
        writer = cluster.run(store.create(Quorums(1, 1, 1, MINE), {"component": b"test"}))
        record = cluster.run(store.records.read(writer.ledger_id)).record
        (bookie_id,) = record.segments[0].ensemble
        assert bookie_id in ids[:2]
        assert record.custom == {"component": b"test", ledger_record.CUSTOM: RECORDED[MINE]}
        assert record.placed == Quorums(1, 1, 1, MINE)
    cluster.servers.of(bookie_id).kill()
    writer.append(b"payload", array("q", [0]), array("q", [7]), 0, 1)
    cluster.loop.run_for(10)
    assert writer.last_add_confirmed == 0
    other = ids[1 - ids.index(bookie_id)]
    record = cluster.run(store.records.read(writer.ledger_id)).record
    assert record.segments[-1].ensemble == (other,)
    # Too few in the first group: those of the second do, and no others.
    both = cluster.run(store.create(Quorums(3, 3, 2, MINE), {}))
    record = cluster.run(store.records.read(both.ledger_id)).record
    assert set(record.segments[0].ensemble) == {other, *ids[2:4]}
    with pytest.raises(NotEnoughBookies, match="of the groups nowhere"):
        cluster.run(store.create(Quorums(1, 1, 1, Groups(frozenset({"nowhere"}))), {}))


def test_without_a_table_of_groups_there_is_none_to_keep_to() -> None:
    store = cluster_with_groups().open("random", SETTINGS)
    with pytest.raises(NotEnoughBookies, match="of the groups g1, g2"):
        store.placement.ensemble(Quorums(1, 1, 1, MINE))
