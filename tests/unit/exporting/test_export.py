"""Topics with everything in them go from one pair of stores to another, and back."""

from __future__ import annotations

import pytest
from exporting_world import ALL, KEYED, ORDERS, PLAIN, World, contents, populate

from magnetar.broker.compaction.new_ledger import COMPONENT
from magnetar.errors import TopicNotFound
from magnetar.exporting.errors import NotExported
from magnetar.exporting.export import Selection


@pytest.mark.parametrize("bookies", [False, True], ids=["disk", "bookies"])
def test_everything_goes_there_and_back(bookies: bool) -> None:
    world = World(bookies=bookies)
    world.run(populate(world.a))
    before = world.run(contents(world.a))
    assert before["persistent://public/default/keyed"].compacted
    world.unload()
    world.export()
    assert world.run(contents(world.b)) == before
    for name in ALL[1:]:
        with pytest.raises(TopicNotFound):
            world.run(world.a.broker.topic(name, create=False))
    world.unload()
    world.export(world.b, world.a)
    assert world.run(contents(world.a)) == before
    world.unload()


if __name__ == "__main__":
    test_everything_goes_there_and_back(False)
