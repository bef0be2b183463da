"""Topics that are less usual: of old names, not persistent, with caches that do not go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporting_world import World, entry, publish

from magnetar.exporting.export import Selection
from magnetar.exporting.stored_topics import read_cursors
from magnetar.ledger.bookkeeper.ledger_record import CUSTOM
from magnetar.ledger.interface import LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import LedgerSizes
from magnetar.managed_ledger.side_ledgers import ledgers_named
from magnetar.naming.topic_name import TopicName


def test_a_topic_with_an_old_name() -> None:
    world = World()
    name = TopicName.parse("persistent://sample/cluster-a/ns1/a/b")
    topic = world.topic(world.a, name)
    world.run(world.a.managed.open_cursor(topic.managed_ledger, "s", EARLIEST, {}))
    world.run(publish(topic, [entry(number) for number in range(7)]))
    world.unload()
    plan = world.export()
    assert [str(each) for each in plan.namespaces] == ["public/default", "sample/cluster-a/ns1"]
    assert len(world.topic(world.b, name).managed_ledger.ledgers) == 3
    assert world.run(world.b.broker.policies.of_topic(name)) is not None


def test_a_topic_that_is_not_persistent() -> None:
    world = World()
    name = TopicName.parse("non-persistent://public/default/n")
    world.run(world.a.broker.namespaces.create_partitioned(name, 4, {}))
    world.export(selection=Selection(topics=frozenset((name,))))
    assert world.run(world.b.broker.namespaces.partitions(name)) == 4
    assert world.run(world.a.broker.namespaces.partitions(name)) == 0


def test_an_index_of_what_is_delayed_stays_and_goes_with_its_topic() -> None:
    world = World()
    name = TopicName.parse("persistent://public/default/late")
    topic = world.topic(world.a, name)
    world.run(publish(topic, [entry(1)]))
    cursor = world.run(world.a.managed.open_cursor(topic.managed_ledger, "s", EARLIEST, {"own": "kept"}))
    assert cursor.storage is not None

    async def index() -> list[int]:
        made = []
        for _ in range(2):
            writer = await world.a.ledgers.create(Quorums(), {})
            await writer.close()
            made.append(writer.ledger_id)
        await cursor.storage.side.name("magnetar.delays", {"ledgers": [made[0]]})
        buckets = {"own": "kept", "#pulsar.internal.delayed.bucket_1_2": str(made[1])}
        await cursor.storage.set_cursor_properties(buckets)
        return made

    made = world.run(index())
    world.unload()
    world.export()
    (found,) = [
        each for each in world.run(read_cursors(world.b, name.path, LedgerSizes())) if each.piece == "s"
    ]
    assert found.storage.cursor_properties == {"own": "kept"}
    assert ledgers_named(found.storage.side.properties) == set()
    assert not set(made) & set(world.run(world.a.ledgers.ledger_ids()))


class _Grouped:
    """A ledger store that says of its ledgers which bookies may have them."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        said = {**custom, CUSTOM: b"{}"}
        return await self._store.create(quorums, said, high_priority=high_priority)


def test_the_target_says_which_bookies_get_a_ledger() -> None:
    world = World()
    world.a.managed.store = _Grouped(world.a.ledgers)  # type: ignore[assignment]
    topic = world.topic(world.a, TopicName.parse("persistent://public/default/t"))
    world.run(world.a.managed.open_cursor(topic.managed_ledger, "s", EARLIEST, {}))
    world.run(publish(topic, [entry(1)]))
    world.unload()
    world.export()

    async def said() -> list[set[str]]:
        found = []
        for ledger_id in await world.b.ledgers.ledger_ids():
            reader = await world.b.ledgers.open(ledger_id, recover=False)
            found.append(set(reader.metadata.custom))
        return found

    assert world.run(said()) == [{"component", "application", "pulsar/managed-ledger"}]
