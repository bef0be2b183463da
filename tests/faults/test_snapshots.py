"""Snapshots that are taken while topics come, grow, are consumed and deleted: each is a whole data folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from data_folder import SUBSCRIPTION, Life, read_file, write_file
from simulated_io import SimulatedDisk

from magnetar.errors import NotFound, PersistenceFailure, TooManyRequests
from magnetar.managed_ledger.position import Position
from magnetar.metadata.interface import Node
from magnetar.metadata.progress import NodeRange
from magnetar.server.snapshots import Snapshots

TOPICS = [f"t/n/persistent/topic-{number}" for number in range(4)]


class Load:
    """Publishes, acknowledges and deletes at random, and knows what it was told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.life = Life(self.disk, seed)
        self.snapshots = Snapshots(self.life.simulation.io, self.life.stores, self.life.managed.write_cursors)
        self.entries: dict[str, list[bytes]] = {}
        self.consumed: dict[str, Position] = {}

    def step(self) -> None:
        topic = self.random.choice(TOPICS)
        known = self.entries.setdefault(topic, [])
        new = [
            f"{topic} {len(known) + number} ".encode() + self.random.randbytes(self.random.randrange(900))
            for number in range(self.random.randrange(1, 12))
        ]
        self.life.publish(topic, new)
        known += new
        if self.random.random() < 0.3:
            self.acknowledge(topic)

    def acknowledge(self, topic: str) -> None:
        ledger = self.life.managed.opened[topic]
        cursor = ledger.cursors[SUBSCRIPTION]
        position = ledger.last_confirmed
        cursor.mark_delete_to(position)
        self.consumed[topic] = cursor.mark_delete

    def take(self) -> Any:
        return self.life.loop.create_task(self.snapshots.take(60))

    def result(self, task: Any) -> Mapping[str, Any]:
        async def ended() -> Any:
            return await task

        found: Mapping[str, Any] = self.life.run(ended())
        return found


def nodes_of(life: Life) -> dict[str, Node]:
    async def read() -> dict[str, Node]:
        found: dict[str, Node] = {}
        parts: list[NodeRange] = []
        after = ""
        while True:
            await life.stores.metadata.read_part(after, parts.append)
            found.update((node.path, node) for node in parts[-1].edits if isinstance(node, Node))
            after = parts[-1].upto
            if not after:
                return found

    return life.run(read())


def copied(disk: SimulatedDisk, snapshot: Mapping[str, Any]) -> SimulatedDisk:
    """A new disk with the files of a snapshot."""
    target = SimulatedDisk(1)
    for directory in ("ledgers", "metadata"):
        target.make_directory(directory)
    for file in snapshot["files"]:
        data = read_file(disk, file["source"])
        if file["bytes"] >= 0:
            assert len(data) >= file["bytes"], file
            data = data[: file["bytes"]]
        write_file(target, file["path"], data)
    return target


def left(life: Life, topic: str) -> list[bytes]:
    ledger = life.run(life.managed.open(topic, create=False))
    cursor = ledger.cursors[SUBSCRIPTION]
    found: list[bytes] = []
    while cursor.has_more():
        run = life.run(cursor.read(100, 1 << 20))
        assert run is not None
        for first, end in cursor.unconsumed_parts(run):
            found += [run.entry(index) for index in range(first, end)]
    assert ledger.last_confirmed >= cursor.mark_delete
    return found


@pytest.mark.parametrize("seed", range(int(os.environ.get("MAGNETAR_SEEDS", "8"))))
def test_a_snapshot_is_a_whole_data_folder_of_one_moment(seed: int) -> None:
    load = Load(seed)
    for _ in range(load.random.randrange(5, 60)):
        load.step()
    before = {topic: len(entries) for topic, entries in load.entries.items()}
    consumed = dict(load.consumed)
    task = load.take()
    for _ in range(20):
        load.step()
    snapshot = load.result(task)
    after = {topic: len(entries) for topic, entries in load.entries.items()}
    for _ in range(60):
        # Segments are sealed, rewritten and used again: those of the snapshot stay.
        load.step()
    for topic in load.entries:
        load.acknowledge(topic)
    load.life.loop.run_for(5)
    load.life.stores.ledgers.check()

    restored = Life(copied(load.disk, snapshot), seed + 1)
    generation = restored.stores.metadata.progress.generation
    assert generation >= snapshot["generation"]
    for topic, count in before.items():
        ledger = restored.run(restored.managed.open(topic, create=False))
        cursor = ledger.cursors[SUBSCRIPTION]
        assert cursor.mark_delete >= consumed.get(topic, (-1, -1)), "a position was lost"
        restored.run(restored.managed.close(ledger))
        found = left(restored, topic)
        entries = load.entries[topic]
        if topic not in load.consumed:
            assert count <= len(found) <= after[topic]
            assert found == entries[: len(found)]
            continue
        # What is left is a run of entries that reaches at least to the last one from before.
        ends = [number for number in range(count, after[topic] + 1) if _ends_with(entries[:number], found)]
        assert ends, (topic, len(found), count, after[topic])
    restored.killed()
    load.life.run(load.snapshots.close())
    load.life.stopped()


def _ends_with(entries: list[bytes], found: list[bytes]) -> bool:
    return not found or entries[-len(found) :] == found


def test_the_metadata_are_exact() -> None:
    """Nodes that change while they are read are as they were at the moment."""
    load = Load(3)
    metadata = load.life.stores.metadata

    async def put(number: int, value: bytes) -> None:
        await metadata.put(f"/nodes/{number:05}", value)

    async def change() -> None:
        for number in range(0, 3000, 7):
            await put(number, b"changed")
            if number % 3 == 0:
                await metadata.delete(f"/nodes/{number:05}")
            if number % 5 == 0:
                await metadata.put(f"/nodes/new-{number:05}", b"new")
                await metadata.put("/nodes/numbered-", b"", sequential=True)

    async def fill() -> None:
        for number in range(3000):
            await put(number, b"%d" % number * 40)

    load.life.run(fill())
    task, changing = load.take(), load.life.loop.create_task(change())
    snapshot = load.result(task)
    assert not changing.done(), "nothing changed meanwhile"
    restored = Life(copied(load.disk, snapshot), 5)
    found = nodes_of(restored)
    # Opening it has compared all nodes with the tally of that moment.
    assert any(node.value == b"changed" for node in found.values())
    assert any(node.value == b"%d" % 2999 * 40 for node in found.values())
    numbers = [int(path[-10:]) for path in found if "/numbered-" in path]
    assert numbers, "no node with a number came before the moment"
    node = restored.run(restored.stores.metadata.put("/nodes/numbered-", b"", sequential=True))
    assert int(node.path[-10:]) == max(numbers) + 1


def test_positions_are_written_before_the_moment() -> None:
    """Without a snapshot, an acknowledgement is in memory for up to 100 ms."""
    load = Load(4)
    load.step()
    topic = next(iter(load.entries))
    load.life.loop.run_for(1)
    load.acknowledge(topic)
    load.life.loop.run_for(0.2)
    load.life.publish(topic, [b"one", b"two"])
    load.acknowledge(topic)
    snapshot = load.result(load.take())
    restored = Life(copied(load.disk, snapshot), 5)
    assert left(restored, topic) == []


def test_files_stay_until_a_snapshot_is_released_or_expires() -> None:
    load = Load(5)
    for _ in range(30):
        load.step()
    taken = [load.result(load.take()) for _ in range(4)]
    with pytest.raises(TooManyRequests, match="4 snapshots are already kept"):
        load.result(load.take())
    assert load.life.stores.ledgers.images.held == 4
    load.snapshots.release(taken[0]["id"])
    load.snapshots.release(taken[0]["id"])
    load.snapshots.prolong(taken[1]["id"], 600)
    load.life.loop.run_for(61)
    with pytest.raises(NotFound, match="it was released, or has expired"):
        load.snapshots.prolong(taken[2]["id"], 600)
    assert load.snapshots.held == 1
    load.life.loop.run_for(600)
    assert load.snapshots.held == load.life.stores.ledgers.images.held == 0
    assert list(load.disk.names("snapshots")) == []


def test_copies_of_a_killed_process_are_removed() -> None:
    load = Load(6)
    load.step()
    load.result(load.take())
    assert len(load.disk.names("snapshots")) == 2
    life = Life(load.life.killed(), 7)
    Snapshots(life.simulation.io, life.stores, life.managed.write_cursors)
    life.loop.run_for(1)
    assert list(life.disk.names("snapshots")) == []


@pytest.mark.parametrize("seed", range(6))
def test_the_first_snapshot_keeps_its_copies_while_those_of_a_killed_process_are_removed(seed: int) -> None:
    load = Load(6)
    load.step()
    leftovers = load.result(load.take())
    life = Life(load.life.killed(), seed)
    snapshots = Snapshots(life.simulation.io, life.stores, life.managed.write_cursors)
    taken = life.run(snapshots.take(60))
    life.loop.run_for(1)
    names = sorted(life.disk.names("snapshots"))
    assert names == [f"{taken['id']}.checkpoint", f"{taken['id']}.sqlite"]
    assert leftovers["id"] != taken["id"]


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 5, 8, 12, 20, 40])
def test_a_broker_that_is_killed_while_it_takes_a_snapshot_starts_as_ever(milliseconds: int) -> None:
    load = Load(8)
    for _ in range(10):
        load.step()
    load.take()
    load.life.loop.run_for(milliseconds / 1000)
    life = Life(load.life.killed(), 9)
    for topic, entries in load.entries.items():
        found = left(life, topic)
        assert _ends_with(entries, found)
        assert topic in load.consumed or found == entries
    life.killed()


def test_no_room_for_the_copies_is_refused_and_nothing_is_left() -> None:
    load = Load(10)
    for _ in range(10):
        load.step()
    load.life.loop.run_for(1)
    load.disk.quota = load.disk.total_bytes() - load.disk.free_bytes() + 10_000
    with pytest.raises(PersistenceFailure, match="No snapshot was taken: no space"):
        load.result(load.take())
    load.life.loop.run_for(1)
    assert list(load.disk.names("snapshots")) == []
    assert load.snapshots.held == load.life.stores.ledgers.images.held == 0
    load.disk.quota = 1 << 40
    for _ in range(20):
        load.step()
    restored = Life(copied(load.disk, load.result(load.take())), 5)
    assert restored.run(restored.managed.names("t/n/persistent"))
