"""Two pairs of stores in one simulated process: topics with everything in them, and what is left of it."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from simulated_bookkeeper import SETTINGS, ZOOKEEPER, SimulatedServers
from simulated_io import SimulatedDisk, Simulation, simulated_io
from world import STORE

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.any_topic import persistent
from magnetar.broker.topics.persistent import Topic, TopicSettings
from magnetar.broker.topics.within import TopicWriter
from magnetar.errors import TopicNotFound
from magnetar.exporting.export import Export, ExportPlan, Selection
from magnetar.exporting.namespaces import WhichPolicies
from magnetar.exporting.stored_topics import OpenStores
from magnetar.exporting.topic_export import MappedLedger
from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerStore
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import ManagedLedgerMoving
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataStore
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

T = TypeVar("T")

ROLLING = ManagedLedgerSettings(max_entries_per_ledger=5, min_rollover_ms=0)
URLS = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")

ORDERS = TopicName.parse("persistent://public/default/orders")
"""Two partitions."""
KEYED = TopicName.parse("persistent://public/default/keyed")
"""Compacted, and what is compacted has left the topic."""
PLAIN = TopicName.parse("persistent://public/default/plain?")
"""Schemas, policies, cursors with holes; its name has a character that paths do not."""
ENDED = TopicName.parse("persistent://public/default/ended")
"""Terminated, and everything consumed."""
EMPTY = TopicName.parse("persistent://public/default/empty")
ALL = (ORDERS, KEYED, PLAIN, ENDED, EMPTY)


async def embedded(io: Any, place: str) -> tuple[LedgerStore, MetadataStore]:
    ledgers = await EmbeddedLedgerStore.open_store(io, f"{place}/ledgers", STORE)
    io.disk.make_directory(f"{place}/metadata")
    metadata = await EmbeddedMetadataStore.open_store(io, f"{place}/metadata/metadata.sqlite")
    return ledgers, ResolvingStore(metadata, io.loop)


async def on_bookies(io: Any) -> tuple[LedgerStore, MetadataStore]:
    outside = Outside(io.loop, io.clock, io.randomness, io.network)
    zookeeper = await ZooKeeperMetadataStore.open_store(
        outside, ensemble_address(ZOOKEEPER), SessionSettings(6000), wait_seconds=5
    )
    metadata = ResolvingStore(zookeeper, io.loop)
    return await BookKeeperLedgerStore.open_store(io, metadata, SETTINGS), metadata


def nobody_came() -> None:
    """It is alone: the disk is this process's."""


class World:
    """One life of a process.

    :param bookies: the second pair of stores is on them; None: both are on the disk
    """

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        bookies: bool = False,
        servers: SimulatedServers | None = None,
    ) -> None:
        """:param servers: of a life before, which they outlive"""
        self.simulation: Simulation = simulated_io(1, disk)
        network = self.simulation.host.network
        if servers is not None:
            servers.move(network)
        elif bookies:
            servers = SimulatedServers(network, 3)
        self.servers = servers
        self.a = self.run(self._open("a", on_bookies=False))
        self.b = self.run(self._open("b", on_bookies=servers is not None))
        self.mapping: dict[tuple[str, int], MappedLedger] = {}

    def run(self, work: Awaitable[T]) -> T:
        return self.simulation.loop.run_until(work)

    async def _open(self, place: str, *, on_bookies: bool) -> OpenStores:
        io = self.simulation.io
        opened = await (_bookies(io) if on_bookies else embedded(io, place))
        ledgers, metadata = opened
        wheel = TimerWheel(io.loop)
        await bootstrap(metadata, f"cluster-{place}", *URLS, 4)
        managed = ManagedLedgerFactory(io, wheel, ledgers, metadata, ROLLING, EntryCacheSettings())
        topic = TopicSettings(DispatchSettings(), batch_index_acks=True)
        policies = EffectivePolicies(deduplication=True)
        known = BrokerSettings(f"cluster-{place}", URLS[1], URLS[0], topic, policies=policies)
        broker = BrokerService(io, wheel, metadata, managed, known)
        return OpenStores(
            place,
            place,
            f"cluster-{place}",
            io,
            wheel,
            metadata,
            managed,
            broker,
            not on_bookies,
            nobody_came,
        )

    def export(
        self,
        source: OpenStores | None = None,
        target: OpenStores | None = None,
        selection: Selection | None = None,
        which: WhichPolicies = WhichPolicies.REFUSE,
    ) -> ExportPlan:
        async def work() -> ExportPlan:
            export = Export(source or self.a, target or self.b, which)
            plan = await export.plan(selection or Selection())
            await export.run(plan, self.keep, lambda _unit: None)
            return plan

        return self.run(work())

    def plan(self, selection: Selection | None = None, **options: Any) -> ExportPlan:
        return self.run(Export(self.a, self.b, **options).plan(selection or Selection()))

    def begin_export(self, source: OpenStores, target: OpenStores) -> None:
        """It goes on while the loop runs."""
        export = Export(source, target)

        async def work() -> None:
            await export.run(await export.plan(Selection()), self.keep, lambda _unit: None)

        self.exporting = self.simulation.loop.create_task(work())

    def keep(self, lines: Sequence[MappedLedger]) -> None:
        for line in lines:
            self.mapping[line.topic, line.old] = line

    def unload(self, *sides: OpenStores) -> None:
        """Closes the topics of brokers, and lets them serve again."""
        for side in sides or (self.a, self.b):
            self.run(side.broker.topics.close_all())
            side.broker.topics.stopping = False

    def stop(self) -> SimulatedDisk:
        """A clean stop."""

        async def close() -> None:
            for side in (self.a, self.b):
                await side.broker.stop()
                side.managed.deletions.stop()
                await side.ledgers.close()
                await side.metadata.close()

        self.run(close())
        self.simulation.abandon()
        return self.simulation.disk.power_cut()

    def scan(self) -> None:
        """Removes ledgers that nothing names, as a standalone broker does after its start."""

        async def work(side: OpenStores) -> None:
            known = await side.ledgers.ledger_ids()
            await side.managed.orphaned_ledgers(0).look(known, await side.broker.schemas.storage.ledger_ids())

        for side in (self.a, self.b):
            if side.one_copy:
                self.run(work(side))

    def leftovers(self, side: OpenStores) -> list[dict[str, bytes]]:
        """What ledgers say of themselves that no record names.

        But for those with policies of topics: a broker that is killed leaves such, and removes them later.
        """

        async def find() -> list[dict[str, bytes]]:
            known = await side.ledgers.ledger_ids()
            store = DeletingNothing(side.ledgers)
            managed = ManagedLedgerFactory(
                side.io,
                side.wheel,
                store,
                side.metadata,
                ROLLING,
                EntryCacheSettings(),  # type: ignore[arg-type]
            )
            await managed.orphaned_ledgers(0).look(known, await side.broker.schemas.storage.ledger_ids())
            found = []
            for ledger_id in store.deleted:
                reader = await side.ledgers.open(ledger_id, recover=False)
                custom = dict(reader.metadata.custom)
                if not any(b"__change_events" in value for value in custom.values()):
                    found.append(custom)
            return found

        return self.run(find())

    def topic(self, side: OpenStores, name: TopicName) -> Topic:
        return persistent(self.run(side.broker.topics.load(name, create=True)))


_bookies = on_bookies


class DeletingNothing:
    """A ledger store that only says what was to be deleted."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self.deleted: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def delete(self, ledger_id: int) -> None:
        self.deleted.append(ledger_id)


def entry(number: int, key: str = "", batch: int = 0) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1_700_000_000_000)
    if key:
        metadata.partition_key = key
    if batch:
        metadata.num_messages_in_batch = batch
    return build_entry(metadata, b"%d" % number)


async def publish(topic: Topic, entries: Sequence[bytes]) -> None:
    for each in entries:
        topic.managed_ledger.append(each, array("q", [0]), array("q", [len(each)]), 1, len(each), None)
        await sleep(topic.loop, 0.05)


async def positions(topic: Topic) -> list[Position]:
    ledger = topic.managed_ledger
    found, position = [], ledger.ledgers.after(EARLIEST)
    while position <= ledger.max_read_position:
        found.append(position)
        position = ledger.ledgers.after(position)
    return found


async def populate(side: OpenStores) -> None:
    """Makes :data:`ALL` of it."""
    broker = side.broker
    await broker.namespaces.create_partitioned(ORDERS, 2, {"owner": "us"})
    for index in range(2):
        topic = persistent(await broker.topics.load(ORDERS.partition(index), create=True))
        cursor = await _cursor(side, topic, "half", {"colour": "red"})
        await publish(topic, [entry(number) for number in range(12)])
        for at in (await positions(topic))[: 3 + index]:
            cursor.delete(*at)
    await _populate_plain(side)
    await _populate_keyed(side)
    ended = persistent(await broker.topics.load(ENDED, create=True))
    cursor = await _cursor(side, ended, "done")
    await publish(ended, [entry(number) for number in range(3)])
    for at in await positions(ended):
        cursor.delete(*at)
    await ended.managed_ledger.terminate()
    empty = persistent(await broker.topics.load(EMPTY, create=True))
    await _cursor(side, empty, "waits")
    await sleep(side.io.loop, 1.0)


async def _cursor(
    side: OpenStores, topic: Topic, name: str, properties: dict[str, str] | None = None
) -> Cursor:
    return await side.managed.open_cursor(topic.managed_ledger, name, EARLIEST, properties or {})


async def _populate_plain(side: OpenStores) -> None:
    broker = side.broker
    topic = persistent(await broker.topics.load(PLAIN, create=True))
    cursor = await _cursor(side, topic, "holes/and more", {"a": "b"})
    for name, count in (("q", 6), ("p", 17)):
        writer = TopicWriter(topic, name)
        for number in range(count):
            await writer.append(entry(number, batch=3), number)
            await sleep(topic.loop, 0.05)
    at = await positions(topic)
    for number in (0, 1, 4, 6, 7, 11, 21):
        cursor.delete(*at[number])
    cursor.consume_batch_indexes(*at[2], 0b101, 3)
    cursor.consume_batch_indexes(*at[12], 0b001, 3)
    for fields in ("", ',{"name":"b","type":"int","default":0}'):
        definition = f'{{"type":"record","name":"R","fields":[{{"name":"a","type":"int"}}{fields}]}}'
        schema = SchemaData(SchemaType.AVRO, definition.encode(), {})
        await broker.schemas.put_if_absent(PLAIN.schema_path, schema, "FULL")
    assert broker.policies.topics is not None
    await broker.policies.topics.change(
        PLAIN, lambda record: record.update(maxConsumerPerTopic=7), everywhere=False
    )


async def _populate_keyed(side: OpenStores) -> None:
    topic = persistent(await side.broker.topics.load(KEYED, create=True))
    cursor = await _cursor(side, topic, "reads")
    await publish(
        topic, [entry(number, f"k{number % 4}" if number > 2 else f"once{number}") for number in range(14)]
    )
    topic.compaction.start()
    while topic.compaction.running:
        await sleep(side.io.loop, 0.05)
    assert topic.compaction.last_error == ""
    for at in (await positions(topic))[:11]:
        cursor.delete(*at)
    topic.managed_ledger.trimmer.schedule()
    await sleep(side.io.loop, 1.0)
    await publish(topic, [entry(14, "k1")])


@dataclass
class Content:
    """Everything that can be told of a topic, with ledgers by their number in it."""

    entries: list[tuple[Position, bytes]] = field(default_factory=list)
    backlogs: dict[str, list[bytes]] = field(default_factory=dict)
    batches: dict[str, list[int]] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    compacted: list[bytes] = field(default_factory=list)
    terminated: bool = False


async def content(side: OpenStores, name: TopicName) -> Content:
    topic = persistent(await side.broker.topics.load(name, create=False))
    ledger = topic.managed_ledger
    found = Content(terminated=ledger.terminated is not None)
    at = await positions(topic)
    order = sorted({ledger_id for ledger_id, _ in at})
    by_position = {}
    for position in at:
        run = await ledger.reader.read(position, position, 1, 1)
        by_position[position] = run.entry(0)
        found.entries.append(((order.index(position[0]), position[1]), run.entry(0)))
    for cursor in ledger.cursors.values():
        left = [position for position in at if not cursor.is_consumed(*position)]
        found.backlogs[cursor.name] = [by_position[position] for position in left]
        bits = [cursor.remaining_bits(*position) for position in left]
        found.batches[cursor.name] = [each for each in bits if each is not None]
        assert cursor.storage is not None
        texts = dict(cursor.storage.cursor_properties)
        numbers = cursor.describe_properties()
        found.properties[cursor.name] = texts, {k: v for k, v in numbers.items() if "Compacted" not in k}
    current = topic.compaction.current
    if current is not None:
        opened = await current.read(0, await current.entries() - 1, 1 << 20)
        at_source = [opened.position(index) for index in range(opened.count)]
        assert at_source == sorted(at_source)
        for index, position in enumerate(at_source):
            found.compacted.append(opened.buffer[opened.starts[index] : opened.ends[index]])
            assert by_position.get(position, found.compacted[-1]) == found.compacted[-1]
        assert current.horizon >= at_source[-1]
    return found


STORED = (*(ORDERS.partition(index) for index in range(2)), *ALL[1:])


async def served(side: OpenStores) -> dict[str, Any]:
    """The topics that clients would find there now."""
    found = {}
    for name in STORED:
        try:
            found[str(name)] = await content(side, name)
        except (TopicNotFound, ManagedLedgerMoving):
            continue
    return found


async def contents(side: OpenStores) -> dict[str, Any]:
    """Of all topics, and what is said of them."""
    broker = side.broker
    found: dict[str, Any] = {str(name): await content(side, name) for name in STORED}
    found["partitions"] = await broker.namespaces.partitioned(ORDERS)
    index, _ = await broker.schemas.storage.index(PLAIN.schema_path)
    found["schemas"] = [await broker.schemas.storage.read(each) for each in index]
    assert broker.policies.topics is not None
    found["policies"] = {
        str(name): dict(await broker.policies.topics.own(name, everywhere=False)) for name in ALL
    }
    return found
