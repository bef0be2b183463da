"""Reading from bookies: whoever of them answers the entries are the same, or it is said why there is none."""

from __future__ import annotations

from typing import Any

import pytest
from ledger_world import Client, World, length, payload

from magnetar.ledger.bookkeeper.ledger_record import BookiesUnavailable, Segment
from magnetar.ledger.bookkeeper.reader import BookKeeperReader, ReadSettings
from magnetar.ledger.interface import (
    DataDamaged,
    EntryLost,
    LedgerState,
    NoSuchEntry,
    NoSuchLedger,
    Quorums,
    StoreClosed,
)


def all_of(last: int) -> list[bytes]:
    return [payload(entry_id) for entry_id in range(last + 1)]


def closed_ledger(world: World, client: Client, last: int = 99) -> int:
    ledger_id = world.ledger(client)
    size, write = world.quorums.ensemble, world.quorums.write
    for entry_id in range(last + 1):
        world.store(ledger_id, [entry_id], [(entry_id + step) % size for step in range(write)])
    world.close(client, ledger_id, last)
    return ledger_id


def requests(world: World) -> list[int]:
    return [bookie.model.requests for bookie in world.servers.bookies]


def read(client: Client, reader: BookKeeperReader, first: int, last: int, max_bytes: int = 1 << 20) -> Any:
    return client.world.run(client.start(reader.read(first, last, max_bytes)))


@pytest.mark.parametrize("quorums", [Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(5, 3, 2), Quorums(1, 1, 1)])
def test_a_closed_ledger(quorums: Quorums) -> None:
    world = World(5, quorums)
    client = world.client()
    ledger_id = closed_ledger(world, client)
    reader = client.open(ledger_id, recover=False)
    metadata = reader.metadata
    assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 99, length(99))
    for max_bytes in (1, 30, 300, 1 << 20):
        assert client.entries(reader, max_bytes=max_bytes) == all_of(99)
    with pytest.raises(NoSuchEntry):
        read(client, reader, 100, 100)
    [run] = read(client, reader, 7, 7)
    assert (run.first_entry_id, run.count, run.entry(0)) == (7, 1, payload(7))


@pytest.mark.parametrize("batches", [False, True])
def test_what_auto_recovery_has_copied(batches: bool) -> None:
    """It lets entries say that all of the ledger was confirmed."""
    world = World(4)
    client = world.client(ReadSettings(batches=batches))
    ledger_id = world.ledger(client, (0, (3, 1, 2)))
    world.store(ledger_id, range(20), (1, 2))
    world.store(ledger_id, range(20), (3,), confirmed=19, copied=True)
    world.close(client, ledger_id, 19)
    for number in (1, 2):
        world.servers.bookies[number].kill()
    assert client.entries(client.open(ledger_id)) == all_of(19)


def test_many_entries_are_one_question_where_each_bookie_has_all() -> None:
    world = World()
    client = world.client()
    reader = client.open(closed_ledger(world, client), recover=False)
    before = requests(world)
    [run] = read(client, reader, 0, 99)
    assert run.count == 100
    asked = [after - earlier for after, earlier in zip(requests(world), before, strict=True)]
    assert sorted(asked) == [0, 0, 1]
    read(client, reader, 50, 99, 300)
    assert sorted(after - earlier for after, earlier in zip(requests(world), before, strict=True)) == [
        0,
        0,
        2,
    ]


def test_bookies_that_do_not_know_batch_reads() -> None:
    world = World()
    client = world.client()
    reader = client.open(closed_ledger(world, client), recover=False)
    for bookie in world.servers.bookies:
        bookie.model.knows_batches = False
    assert client.entries(reader) == all_of(99)
    world.loop.run_for(61)
    assert client.entries(reader) == all_of(99)
    world.loop.run_for(61)
    ends = len(world.network.links)
    assert client.entries(reader) == all_of(99)
    assert len(world.network.links) == ends, "they are not asked for batches any more"


def test_the_next_bookie_is_asked() -> None:
    world = World()
    client = world.client()
    ledger_id = closed_ledger(world, client)
    reader = client.open(ledger_id, recover=False)
    first = world.servers.bookies[ledger_id % 3]
    entries = world.stored(ledger_id, ledger_id % 3)
    entries[40] = entries[40][:-1] + b"?"
    del entries[60]
    assert client.entries(reader) == all_of(99)
    first.kill()
    assert client.entries(reader) == all_of(99)
    second = world.servers.bookies[(ledger_id + 1) % 3]
    second.model.silent = True
    assert client.entries(reader) == all_of(99)
    began = world.loop.time()
    assert client.entries(reader) == all_of(99)
    assert world.loop.time() - began < 1, "those that did not answer are asked last"


def test_a_slow_bookie_is_not_waited_for() -> None:
    world = World()
    client = world.client(ReadSettings(speculative_seconds=0.1))
    ledger_id = closed_ledger(world, client)
    reader = client.open(ledger_id, recover=False)
    world.servers.bookies[ledger_id % 3].model.delay = 3
    began = world.loop.time()
    assert client.entries(reader) == all_of(99)
    assert world.loop.time() - began < 0.5


def test_what_no_bookie_can_give() -> None:
    world = World()
    client = world.client()
    ledger_id = closed_ledger(world, client)
    reader = client.open(ledger_id, recover=False)
    for number in range(3):
        entries = world.stored(ledger_id, number)
        del entries[10]
        entries[20] = entries[20][:-1] + b"?"
    with pytest.raises(EntryLost, match=f"entry 10 of ledger {ledger_id}.*NO_ENTRY"):
        read(client, reader, 10, 10)
    with pytest.raises(
        DataDamaged, match=rf"bookie\d:3181: the digest of entry 20 of ledger {ledger_id} is wrong"
    ):
        read(client, reader, 20, 25)
    assert read(client, reader, 5, 30)[0].last_entry_id == 9
    for bookie in world.servers.bookies:
        bookie.kill()
    with pytest.raises(BookiesUnavailable, match="bookie0:3181: LOST"):
        read(client, reader, 0, 0)


def test_a_segment_that_has_moved_meanwhile() -> None:
    world = World(4)
    client = world.client()
    ledger_id = world.ledger(client, (0, (0, 1, 2)), (50, (0, 1, 2)))
    world.store(ledger_id, range(100), (0, 1, 2))
    world.close(client, ledger_id, 99)
    reader = client.open(ledger_id, recover=False)
    assert client.entries(reader) == all_of(99)
    world.store(ledger_id, range(50), (3,))
    record = world.found(client, ledger_id).record
    moved = Segment(0, world.bookies(3, 1, 2))
    world.change(client, ledger_id, segments=(moved, record.segments[1]))
    for number in range(3):
        for entry_id in range(50):
            del world.stored(ledger_id, number)[entry_id]
    assert client.entries(reader) == all_of(99)


def test_an_open_ledger_of_somebody_else() -> None:
    world = World(4)
    writer, client = world.client(), world.client()
    ledger_id = world.ledger(writer)
    reader = client.open(ledger_id, recover=False)
    assert client.entries(reader) == []
    with pytest.raises(NoSuchEntry):
        read(client, reader, 0, 0)
    world.store(ledger_id, range(10), (0, 1, 2))
    assert client.entries(reader) == all_of(8), "of the last nobody said that it was confirmed"
    assert reader.metadata.state is LedgerState.OPEN
    world.store(ledger_id, range(10, 20), (0, 3, 2))
    record = world.found(writer, ledger_id).record
    world.change(writer, ledger_id, segments=record.with_ensemble(10, world.bookies(0, 3, 2)).segments)
    world.servers.bookies[0].kill()
    assert client.entries(reader) == all_of(18)
    world.close(writer, ledger_id, 19)
    assert client.entries(reader) == all_of(19)
    assert reader.metadata.length == length(19)


def test_an_open_ledger_of_which_nobody_can_tell_what_is_confirmed() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(10), (0, 1, 2))
    reader = client.open(ledger_id, recover=False)
    for bookie in world.servers.bookies:
        bookie.kill()
    with pytest.raises(BookiesUnavailable):
        world.run(client.start(reader.last_add_confirmed()))
    world.servers.bookies[1].start()
    world.loop.run_for(1)
    assert world.run(client.start(reader.last_add_confirmed())) == 8, "what one says is true"


class _Writer:
    last_add_confirmed = 4
    confirmed_length = length(4)


def test_an_open_ledger_of_this_process() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    world.store(ledger_id, range(10), (0, 1, 2))
    client.writers[ledger_id] = _Writer()
    reader = client.open(ledger_id, recover=False)
    before = requests(world)
    assert world.run(client.start(reader.last_add_confirmed())) == 4
    assert requests(world) == before, "the writer knows"
    assert client.entries(reader) == all_of(4)
    assert (reader.metadata.last_entry_id, reader.metadata.length) == (4, length(4))


def test_deleted_and_closed() -> None:
    world = World()
    client, other = world.client(), world.client()
    ledger_id = closed_ledger(world, client)
    here, there = client.open(ledger_id, recover=False), other.open(ledger_id, recover=False)
    world.run(client.start(client.records.delete(ledger_id)))
    client.opening.deleted(ledger_id)
    with pytest.raises(NoSuchLedger):
        read(client, here, 0, 0)
    with pytest.raises(NoSuchLedger):
        world.run(client.start(here.last_add_confirmed()))
    for bookie in world.servers.bookies:
        del bookie.model.ledgers[ledger_id]
    with pytest.raises(NoSuchLedger):
        read(other, there, 0, 0)
    another = client.open(closed_ledger(world, client), recover=False)
    another.close()
    with pytest.raises(StoreClosed):
        read(client, another, 0, 0)
    left = client.open(closed_ledger(world, client), recover=False)
    world.run(client.start(client.opening.close()))
    with pytest.raises(StoreClosed):
        read(client, left, 0, 0)


def test_large_entries_in_bounded_answers() -> None:
    world = World()
    client = world.client()
    ledger_id = world.ledger(client)
    total = 0
    for entry_id in range(40):
        data = bytes([entry_id]) * (500_000 if entry_id >= 20 else 10)
        total += len(data)
        head = world.digest.head(ledger_id, entry_id, entry_id - 1, total, data)
        world.store(ledger_id, [], (0, 1, 2))
        for number in range(3):
            model = world.servers.bookies[number].model
            world.store(ledger_id, [entry_id], (number,))
            model.ledgers[ledger_id].entries[entry_id] = head + data
    found = world.found(client, ledger_id)
    world.run(client.start(client.records.write(ledger_id, found.record.closed(39, total), found.version)))
    reader = client.open(ledger_id, recover=False)
    entries = client.entries(reader, max_bytes=8 << 20)
    assert [entry[0] for entry in entries] == list(range(40))
    [run] = read(client, reader, 20, 39, 1_500_000)
    assert run.count == 3
