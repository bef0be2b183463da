"""Topics with everything in them go from one pair of stores to another, and back."""

from __future__ import annotations

from typing import Any

import pytest
from exporting_world import ALL, EMPTY, KEYED, PLAIN, World, contents, populate

from magnetar.errors import TopicNotFound
from magnetar.managed_ledger.records import ROOT


def populated(world: World) -> dict[str, Any]:
    """Fills the first pair of stores; what is in it when nobody serves it any more."""
    world.run(populate(world.a))
    # What brokers write when they close topics is there then.
    world.unload()
    before = world.run(contents(world.a))
    assert before[str(KEYED)].compacted
    assert before[str(PLAIN)].batches["holes/and more"] == [0b101, 0b001]
    assert before[str(PLAIN)].properties["pulsar.dedup"][1] == {"q": 5, "p": 16}
    world.unload()
    return before


def same(found: dict[str, Any], before: dict[str, Any]) -> None:
    assert found.keys() == before.keys()
    for name in before:
        assert found[name] == before[name], name


@pytest.mark.parametrize("bookies", [False, True], ids=["disk", "bookies"])
def test_everything_goes_there_and_back(bookies: bool) -> None:
    world = World(bookies=bookies)
    before = populated(world)
    world.export()
    node = world.run(world.b.metadata.get(f"{ROOT}/{EMPTY.path}"))
    # A record without ledgers would look like a folder of records.
    assert node is not None
    assert node.value
    assert world.leftovers(world.a) == world.leftovers(world.b) == []
    same(world.run(contents(world.b)), before)
    for name in ALL[1:]:
        with pytest.raises(TopicNotFound):
            world.run(world.a.broker.topics.load(name, create=False))
    world.unload()
    world.export(world.b, world.a)
    same(world.run(contents(world.a)), before)
    world.unload()
