"""The metadata of transaction coordinators, added to a cluster that was set up without them."""

from __future__ import annotations

import json

import pytest
from world import World

from magnetar.metadata.zookeeper.address import EnsembleAddress, ensemble_address
from magnetar.server.cluster_setup import (
    ClusterSetup,
    SetupContradicts,
    set_up_cluster,
    set_up_coordinators,
)

PLACES = (
    "/admin/policies/pulsar",
    "/admin/policies/pulsar/system",
    "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
)


def nodes(world: World) -> list[object]:
    found = [world.run(world.metadata.get(path)) for path in PLACES]
    return [None if node is None else json.loads(node.value) for node in found]


def set_up(coordinators: int) -> World:
    world = World()
    setup = ClusterSetup("lab", {}, transaction_coordinators=coordinators)
    bookies = EnsembleAddress(ensemble_address("zk:zookeeper:2181").hosts, "/ledgers")
    work = set_up_cluster(world.metadata, world.metadata, setup, bookies, world.simulation.io.randomness)
    world.run(work)
    return world


def test_what_was_left_out_is_added_as_if_it_had_been_there_from_the_beginning() -> None:
    world = set_up(0)
    assert nodes(world)[2] is None
    for _ in range(2):
        world.run(set_up_coordinators(world.metadata, "lab", 16))
        assert nodes(world) == nodes(set_up(16))


def test_without_any_metadata_tenant_and_namespace_are_made() -> None:
    world = World()
    world.run(set_up_coordinators(world.metadata, "lab", 16))
    assert nodes(world) == nodes(set_up(16))


def test_another_number_is_refused() -> None:
    world = set_up(16)
    with pytest.raises(SetupContradicts, match="partitions 16, not 3"):
        world.run(set_up_coordinators(world.metadata, "lab", 3))
    with pytest.raises(ValueError, match="must be 1 or more, not 0"):
        world.run(set_up_coordinators(world.metadata, "lab", 0))
