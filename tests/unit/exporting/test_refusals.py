"""What keeps topics from going: told before anything is written, or found out while they are copied."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from exporting_world import EMPTY, ENDED, KEYED, ORDERS, PLAIN, World, contents, populate, publish, served

from magnetar.broker.system_topics.transaction_records import INDEXES, SNAPSHOTS, record_entry
from magnetar.errors import PersistenceFailure, TopicNotFound
from magnetar.exporting.export import Export, Selection
from magnetar.exporting.namespaces import WhichPolicies
from magnetar.exporting.stored_topics import NotExported, OpenStores, Unit
from magnetar.ledger.interface import LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger import records_pb2 as pb
from magnetar.managed_ledger.errors import ManagedLedgerMoving
from magnetar.managed_ledger.exports import ROOT as NOTES
from magnetar.managed_ledger.exports import ExportNote, ExportState, encode_note, note_path
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import ROOT
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

ONE_BUNDLE = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
POLICIES = "/admin/policies/public/default"


@pytest.fixture
def world() -> World:
    world = World()
    world.run(populate(world.a))
    world.unload()
    return world


def change(side: OpenStores, world: World, path: str, **fields: Any) -> None:
    """Fields of a record in JSON."""
    node = world.run(side.metadata.get(path))
    record = json.loads(node.value) if node is not None else {}
    world.run(side.metadata.put(path, json.dumps({**record, **fields}).encode()))


def change_ledgers(
    side: OpenStores, world: World, name: TopicName, work: Callable[[pb.ManagedLedgerInfo], Any]
) -> None:
    path = f"{ROOT}/{name.path}"
    node = world.run(side.metadata.get(path))
    assert node is not None
    info = pb.ManagedLedgerInfo.FromString(node.value)
    work(info)
    world.run(side.metadata.put(path, info.SerializeToString()))


def refused(world: World, *parts: str, **options: Any) -> None:
    """Says all of it, once, and writes nothing."""
    before = world.run(everything(world.b))
    plan = world.plan(**options)
    found = [sentence for sentence in plan.refusals if all(part in sentence for part in parts)]
    assert len(found) == 1, plan.refusals
    assert world.run(everything(world.b)) == before
    assert world.run(world.b.metadata.children(NOTES)) == []


async def everything(side: OpenStores, path: str = "/") -> dict[str, bytes]:
    """All nodes."""
    found = {}
    for child in await side.metadata.children(path):
        below = f"{path.rstrip('/')}/{child}"
        node = await side.metadata.get(below)
        assert node is not None
        found[below] = node.value
        found |= await everything(side, below)
    return found


def test_a_check_changes_nothing(world: World) -> None:
    before = world.run(everything(world.a)), world.run(everything(world.b))
    plan = world.plan()
    assert plan.refusals == []
    assert [unit.name for unit in plan.units] == sorted((ORDERS, KEYED, PLAIN, ENDED, EMPTY), key=str)
    assert (world.run(everything(world.a)), world.run(everything(world.b))) == before


def test_one_topic_or_namespace_goes_alone(world: World) -> None:
    world.export(selection=Selection(topics=frozenset((ORDERS,))))
    assert len(world.run(served(world.b))) == 2
    assert len(world.run(served(world.a))) == 4
    world.unload()
    world.export(selection=Selection(namespaces=frozenset((NamespaceName.parse("public/default"),))))
    assert len(world.run(served(world.b))) == 6


def test_names_that_are_not_there(world: World) -> None:
    missing = TopicName.parse("persistent://public/default/none")
    refused(world, "a has no topic", str(missing), selection=Selection(topics=frozenset((missing,))))
    nowhere = NamespaceName.parse("public/nowhere")
    refused(world, "a has no namespace public/nowhere", selection=Selection(namespaces=frozenset((nowhere,))))


def test_clusters_that_share_their_bookies(world: World) -> None:
    world.a.bookies, world.b.bookies = "one", "other"
    assert world.plan().refusals == []
    world.b.bookies = "one"
    refused(world, "a and b keep their ledgers on the same bookies")
    told: list[Unit] = []
    given_up = world.run(Export(world.a, world.b).give_up(Selection(), told.append))
    assert (["same bookies" in each for each in given_up], told) == ([True], [])


def test_a_topic_that_is_there_already(world: World) -> None:
    world.topic(world.b, PLAIN)
    world.unload()
    refused(world, str(PLAIN), "already exists in b")
    world.run(world.b.broker.namespaces.create_partitioned(EMPTY, 3, {}))
    refused(world, str(EMPTY), "already exists in b")


def test_replication(world: World) -> None:
    change(world.a, world, POLICIES, replication_clusters=["cluster-a", "east"])
    refused(world, "public/default is replicated to east")
    topic = world.topic(world.a, PLAIN)
    world.run(world.a.managed.open_cursor(topic.managed_ledger, "pulsar.repl.east", EARLIEST, {}))
    world.unload()
    refused(world, PLAIN.path, "pulsar.repl.east belongs to a replicator")


def test_what_is_stored_elsewhere(world: World) -> None:
    def offloaded(info: pb.ManagedLedgerInfo) -> None:
        info.ledgerInfo[0].offloadContext.complete = True

    change_ledgers(world.a, world, PLAIN, offloaded)
    refused(world, PLAIN.path, "is offloaded to tiered storage")
    change_ledgers(
        world.a, world, ENDED, lambda info: info.properties.add(key="PULSAR.SHADOW_SOURCE", value="x")
    )
    refused(world, ENDED.path, "is a shadow topic")


def test_transactions(world: World) -> None:
    log = TopicName.parse(f"{EMPTY}-waits__transaction_pending_ack")
    ledger = world.run(world.a.broker.managed_ledgers.open(log.path, create=True))
    world.run(world.a.broker.managed_ledgers.close(ledger))
    world.unload()
    refused(world, EMPTY.path, "is used in transactions")
    assert any("pending_ack has transaction state" in each for each in world.plan().left_out)


@pytest.mark.parametrize("kind", [SNAPSHOTS, INDEXES])
def test_topics_that_have_had_transactions(world: World, kind: str) -> None:
    system = world.topic(world.a, TopicName.parse(f"persistent://public/default/{kind}"))
    part = ORDERS.partition(1)
    records = [(str(part), b"a snapshot"), (str(PLAIN), b"a snapshot"), (str(PLAIN), None)]
    entries = [record_entry(key, payload, "p", at, 1, b"") for at, (key, payload) in enumerate(records)]
    world.run(publish(system, entries))
    world.unload()
    refused(world, part.path, "has had transactions")
    plan = world.plan()
    assert not [each for each in plan.refusals if PLAIN.path in each], "its snapshots were deleted"
    assert any(f"{kind} has transaction state" in each for each in plan.left_out)


def test_what_is_no_record_of_transactions(world: World) -> None:
    """Any client that may publish to the namespace can write there."""
    system = world.topic(world.a, TopicName.parse(f"persistent://public/default/{SNAPSHOTS}"))
    world.run(publish(system, [b"\x00\x00\x00\x02\xff\xff"]))
    world.unload()
    assert not [each for each in world.plan().refusals if "transactions" in each]


def test_more_copies_than_one(world: World) -> None:
    three: dict[str, Any] = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 2}
    three["managedLedgerMaxMarkDeleteRate"] = 0.0
    change(world.a, world, POLICIES, persistence=three)
    refused(world, "public/default requires 3 copies of its entries", which=WhichPolicies.SOURCE)
    policies = world.a.broker.policies.topics
    assert policies is not None
    world.run(policies.change(KEYED, lambda record: record.update(persistence=three), everywhere=False))
    world.unload()
    refused(world, f"{KEYED} requires 3 copies of its entries", which=WhichPolicies.SOURCE)


def test_other_policies_of_a_namespace(world: World) -> None:
    change(
        world.a,
        world,
        POLICIES,
        message_ttl_in_seconds=60,
        bundles={"boundaries": ["0x00000000", "0xffffffff"]},
    )
    change(world.b, world, POLICIES, max_consumers_per_topic=9)
    refused(
        world, "public/default has different policies in b: max_consumers_per_topic, message_ttl_in_seconds"
    )

    def told(which: WhichPolicies) -> Mapping[str, Any]:
        world.export(which=which, selection=Selection(topics=frozenset((EMPTY if told_of else PLAIN,))))
        told_of.append(which)
        node = world.run(world.b.metadata.get(POLICIES))
        assert node is not None
        found: Mapping[str, Any] = json.loads(node.value)
        assert found["replication_clusters"] == ["cluster-b"]
        assert found["bundles"]["numBundles"] == 4
        return found

    told_of: list[WhichPolicies] = []
    kept = told(WhichPolicies.TARGET)
    assert (kept.get("message_ttl_in_seconds"), kept["max_consumers_per_topic"]) == (None, 9)
    taken = told(WhichPolicies.SOURCE)
    assert (taken["message_ttl_in_seconds"], taken.get("max_consumers_per_topic")) == (60, None)


def test_a_namespace_that_is_missing_is_made_with_its_tenant(world: World) -> None:
    name = TopicName.parse("persistent://acme/eu/t")
    world.run(
        world.a.metadata.put("/admin/policies/acme", b'{"adminRoles":["r"],"allowedClusters":["cluster-a"]}')
    )
    change(
        world.a,
        world,
        "/admin/policies/acme/eu",
        replication_clusters=["cluster-a"],
        bundles={"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
        resource_group_name="small",
        message_ttl_in_seconds=5,
    )
    change(world.a, world, "/admin/resourcegroups/small", publishRateInMsgs=7)
    world.topic(world.a, name)
    world.unload()
    world.export(selection=Selection(topics=frozenset((name,))))
    nodes = world.run(everything(world.b))
    assert json.loads(nodes["/admin/policies/acme"]) == {
        "adminRoles": ["r"],
        "allowedClusters": ["cluster-b"],
    }
    made = json.loads(nodes["/admin/policies/acme/eu"])
    assert (made["replication_clusters"], made["message_ttl_in_seconds"]) == (["cluster-b"], 5)
    assert made["bundles"]["numBundles"] == 2
    assert json.loads(nodes["/admin/resourcegroups/small"]) == {"publishRateInMsgs": 7}
    world.run(world.b.broker.topics.load(name, create=False))


def test_an_export_between_other_stores(world: World) -> None:
    note = ExportNote(ExportState.LEFT, "c", "somewhere else")
    world.run(world.a.metadata.put(note_path(PLAIN.path), encode_note(note)))
    refused(world, f"{PLAIN} is already being exported from or to somewhere else, not b")


def test_nobody_opens_what_is_on_its_way(world: World) -> None:
    for side, state, words in (
        (world.a, ExportState.LEFT, "was exported to elsewhere"),
        (world.b, ExportState.INCOMING, "is being copied from elsewhere, and the copy is incomplete"),
    ):
        note = ExportNote(state, "c", "elsewhere")
        for unit in (PLAIN, ORDERS):
            world.run(side.metadata.put(note_path(unit.path), encode_note(note)))
        for name in (PLAIN, ORDERS.partition(1)):
            with pytest.raises(ManagedLedgerMoving, match=words):
                world.run(side.broker.topics.load(name, create=True))
        world.run(side.metadata.delete(note_path(PLAIN.path)))
        world.run(side.broker.topics.load(PLAIN, create=True))


def test_what_clients_are_told_of_it() -> None:
    from magnetar.broker.translation import to_broker_error

    told = to_broker_error(ManagedLedgerMoving("t was exported to elsewhere"))
    assert isinstance(told, PersistenceFailure)
    assert "was exported to elsewhere" in str(told)


class _Damaging:
    """A ledger store that writes something else."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        writer = await self._store.create(quorums, custom, high_priority=high_priority)
        append = writer.append

        def damaged(buffer: bytes, starts: Any, ends: Any, first: int, count: int) -> int:
            return append(buffer[:-1] + bytes([buffer[-1] ^ 1]), starts, ends, first, count)

        writer.append = damaged  # type: ignore[method-assign]
        return writer


def test_a_copy_that_reads_back_otherwise_does_not_count(world: World) -> None:
    before = world.run(contents(world.a))
    world.unload()
    store = world.b.managed.store
    world.b.managed.store = _Damaging(store)  # type: ignore[assignment]
    with pytest.raises(NotExported, match=r"differs from its copy \d+ in b"):
        world.export(selection=Selection(topics=frozenset((ENDED,))))
    world.b.managed.store = store
    assert len(world.run(served(world.a))) == 6
    assert world.run(served(world.b)) == {}
    world.unload()
    world.export()
    assert world.run(contents(world.b)) == before


def test_a_topic_that_is_served_while_it_is_copied_stays(world: World) -> None:
    path = f"{ROOT}/{ENDED.path}"
    get = world.b.metadata.get

    async def changing(asked: str) -> Any:
        if asked == path:
            node = await world.a.metadata.get(path)
            assert node is not None
            await world.a.metadata.put(path, node.value, node.version)
        return await get(asked)

    world.b.metadata.get = changing  # type: ignore[method-assign]
    with pytest.raises(NotExported, match="changed while it was copied"):
        world.export(selection=Selection(topics=frozenset((ENDED,))))
    world.b.metadata.get = get  # type: ignore[method-assign]
    assert str(ENDED) in world.run(served(world.a))
    assert world.run(served(world.b)) == {}


def test_a_name_that_is_used_again(world: World) -> None:
    """A new topic of that name does not get what the old one had."""
    world.export()
    with pytest.raises(TopicNotFound):
        world.run(world.a.broker.topics.load(PLAIN, create=False))
    topic = world.topic(world.a, PLAIN)
    assert list(topic.managed_ledger.cursors) == ["pulsar.dedup"]
    assert world.run(world.a.broker.schemas.storage.index(PLAIN.schema_path))[0] == []
    policies = world.a.broker.policies.topics
    assert policies is not None
    assert world.run(policies.own(PLAIN, everywhere=False)) == {}
    world.unload()
    refused_now = world.plan().refusals
    assert refused_now == [f"{PLAIN} already exists in b"]
