"""Writing to bookies: what counts, when it is told, and what becomes of bookies that fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ledger_stores import append
from writing_world import REQUEST_SECONDS, World, add, payload

from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import BookiesSettings
from magnetar.ledger.bookkeeper.digests import Digest, DigestType
from magnetar.ledger.bookkeeper.frames import MAX_FRAME_BYTES, Status
from magnetar.ledger.bookkeeper.ledger_record import MetadataFailed, Segment
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies
from magnetar.ledger.bookkeeper.store import BookKeeperSettings
from magnetar.ledger.interface import (
    EntryTooLarge,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerState,
    NoSuchLedger,
    Quorums,
)

LATE = REQUEST_SECONDS * 1.3
"""Seconds after which a silent bookie has failed."""


@pytest.mark.parametrize(
    "quorums", [Quorums(1, 1, 1), Quorums(3, 3, 2), Quorums(5, 3, 2), Quorums(5, 2, 1), Quorums(4, 3, 3)]
)
@pytest.mark.parametrize("digest", list(DigestType))
def test_each_entry_is_on_its_write_set(quorums: Quorums, digest: DigestType) -> None:
    world = World(6, BookKeeperSettings(digest=digest, password=b"secret"))
    writer, listener = world.writer(quorums)
    for count in (1, 7, 1, 20, 100):
        add(writer, count)
        world.wait(0.02)
    assert listener.last == 128
    assert len(listener.told) <= 25, "not for each entry"
    names = world.found(writer).record.segments[0].ensemble
    for entry_id in range(129):
        copies = world.copies(writer, entry_id, Digest(digest, b"secret"))
        wanted = {names[(entry_id + step) % quorums.ensemble] for step in range(quorums.write)}
        assert set(copies) == wanted
        assert all(-1 <= confirmed < entry_id for confirmed in copies.values())
    assert max(world.copies(writer, 128, Digest(digest, b"secret")).values()) > 0


def test_an_entry_counts_when_its_ack_quorum_has_it_and_all_before_it_do() -> None:
    world = World(3)
    writer, listener = world.writer(Quorums(3, 3, 2))
    first, second, third = world.ensemble(writer)
    for server, delay in ((first, 1.0), (second, 2.0), (third, 3.0)):
        server.model.delay = delay
    add(writer, 3)
    world.wait(1.9)
    assert listener.told == []
    world.wait(0.2)
    assert listener.told == [2]
    second.model.delay = 0.0
    add(writer, 1)
    world.wait(0.2)
    assert listener.told == [2], "one has it"
    world.wait(1.0)
    assert listener.told == [2, 3]
    assert writer.last_add_confirmed == 3


def test_striped_entries_count_in_order() -> None:
    world = World(3)
    writer, listener = world.writer(Quorums(3, 2, 2))
    first, second, third = world.ensemble(writer)
    first.model.delay = 2.0
    add(writer, 6)
    world.wait(0.5)
    assert listener.told == [], "entry 0 is the first one's, and 1 is not"
    assert set(world.copies(writer, 1)) == {second.bookie_id, third.bookie_id}
    world.wait(2.0)
    assert listener.told[-1] == 5


def test_many_answers_of_one_turn_are_told_once() -> None:
    world = World(3)
    writer, listener = world.writer()
    for _ in range(50):
        add(writer, 10)
    world.wait()
    assert listener.last == 499
    assert len(listener.told) <= 6


def test_a_bookie_that_is_lost_is_replaced_for_what_does_not_count_yet() -> None:
    world = World(4)
    writer, listener = world.writer()
    add(writer, 10)
    world.wait()
    ensemble = world.ensemble(writer)
    [spare] = [server for server in world.servers if server not in ensemble]
    ensemble[1].kill()
    world.wait(0.001)
    add(writer, 10)
    world.wait()
    add(writer, 5)
    world.wait()
    assert listener.last == 24
    assert listener.failed is None
    names = tuple(server.bookie_id for server in ensemble)
    record = world.found(writer).record
    assert record.segments == (Segment(0, names), Segment(10, (names[0], spare.bookie_id, names[2])))
    for entry_id in range(25):
        wanted = {*names} if entry_id < 10 else {names[0], spare.bookie_id, names[2]}
        assert set(world.copies(writer, entry_id)) == wanted


@pytest.mark.parametrize(
    "status",
    [
        Status.IO_ERROR,
        Status.UNAUTHORIZED,
        Status.TOO_MANY_REQUESTS,
        Status.READ_ONLY,
        Status.BAD_REQUEST,
        999,
    ],
)
def test_a_bookie_that_does_not_store_an_entry_is_replaced(status: int) -> None:
    world = World(4)
    writer, listener = world.writer(Quorums(3, 3, 3))
    ensemble = world.ensemble(writer)
    ensemble[0].refuse(status)
    add(writer, 3)
    world.wait()
    assert listener.told == [2]
    assert world.ensemble(writer)[0] not in ensemble
    assert world.ensemble(writer)[1:] == ensemble[1:]
    assert [segment.first_entry_id for segment in world.found(writer).record.segments] == [0]


def test_a_bookie_that_fails_when_the_entries_count_is_replaced_as_well() -> None:
    world = World(4)
    writer, listener = world.writer(Quorums(3, 3, 2))
    silent = world.ensemble(writer)[2]
    silent.model.silent = True
    add(writer, 3)
    world.wait(1)
    assert listener.told == [2]
    world.wait(LATE)
    assert silent not in world.ensemble(writer)
    assert world.found(writer).record.segments[-1].first_entry_id == 3
    assert listener.failed is None
    add(writer, 1)
    world.wait(1)
    assert listener.told == [2, 3]


def test_nothing_is_told_until_the_metadata_names_the_bookies_that_have_it() -> None:
    world = World(4)
    writer, listener = world.writer(Quorums(3, 3, 2))
    add(writer, 2)
    world.wait()
    lost = world.ensemble(writer)[0]
    lost.refuse(Status.IO_ERROR)
    world.hold_metadata()
    add(writer, 2)
    world.wait()
    add(writer, 2)
    world.wait(30)
    assert listener.told == [1]
    [spare] = [server for server in world.servers if server not in world.ensemble(writer)]
    assert spare.entries(writer.ledger_id) == {}
    world.let_metadata_go()
    world.wait()
    assert listener.last == 5
    assert sorted(spare.entries(writer.ledger_id)) == [2, 3, 4, 5]


def test_bookies_that_fail_together_are_one_change() -> None:
    world = World(5)
    writer, listener = world.writer()
    version = world.found(writer).version
    ensemble = world.ensemble(writer)
    for server in ensemble[:2]:
        server.refuse(Status.IO_ERROR)
        server.model.delay = 0.0
    add(writer, 1)
    world.wait()
    assert listener.last == 0
    found = world.found(writer)
    assert len(found.record.segments) == 1
    assert found.version <= version + 2
    assert {*world.ensemble(writer)} == {
        ensemble[2],
        *(each for each in world.servers if each not in ensemble),
    }


def test_a_bookie_that_fails_while_another_is_replaced_is_replaced_next() -> None:
    world = World(5)
    writer, listener = world.writer(Quorums(3, 3, 3))
    ensemble = world.ensemble(writer)
    ensemble[0].refuse(Status.IO_ERROR)
    ensemble[1].model.delay = 0.5
    ensemble[1].refuse(Status.IO_ERROR)
    world.hold_metadata()
    add(writer, 3)
    world.wait(2)
    world.let_metadata_go()
    world.wait()
    assert listener.told == [2]
    assert not {*ensemble[:2]} & {*world.ensemble(writer)}
    assert len(world.found(writer).record.segments) == 1


def test_without_a_spare_bookie_the_writer_ends() -> None:
    world = World(3)
    writer, listener = world.writer()
    add(writer, 3)
    world.wait()
    world.ensemble(writer)[0].refuse(Status.IO_ERROR)
    add(writer, 3)
    world.wait()
    assert listener.told == [2]
    assert listener.failed is not None
    first, reason = listener.failed
    assert first == 3
    assert isinstance(reason, NotEnoughBookies)
    with pytest.raises(LedgerClosed, match="1 bookies are needed"):
        append(writer, b"more")
    with pytest.raises(NotEnoughBookies):
        world.run(writer.close())
    assert world.found(writer).record.state is LedgerState.OPEN
    assert world.store._writers == {}
    assert all(bookie.in_progress == 0 for bookie in world.store.bookies._connections.values())


def test_bookies_that_only_say_that_they_are_there_are_tried_once() -> None:
    world = World(6)
    writer, listener = world.writer(Quorums(3, 3, 3))
    version = world.found(writer).version
    ensemble = world.ensemble(writer)
    for server in world.servers:
        if server not in ensemble[1:]:
            server.kill(forgotten=False)
    add(writer, 1)
    world.wait(10)
    assert listener.failed is not None
    assert isinstance(listener.failed[1], NotEnoughBookies)
    assert world.found(writer).version <= version + 3


def test_late_answers_of_a_bookie_that_was_replaced_do_not_count() -> None:
    world = World(4)
    writer, listener = world.writer(Quorums(3, 3, 3))
    ensemble = world.ensemble(writer)
    [spare] = [server for server in world.servers if server not in ensemble]
    ensemble[0].model.delay = LATE + 0.5
    spare.model.delay = 3.0
    add(writer, 3)
    world.wait(LATE)
    assert world.ensemble(writer)[0] is spare
    assert listener.told == []
    world.wait(1.0)
    assert listener.told == [], "the one that was replaced has answered"
    world.wait(3.0)
    assert listener.told == [2]


def test_a_late_failure_of_a_bookie_that_was_replaced_ends_nothing() -> None:
    world = World(4)
    writer, listener = world.writer()
    ensemble = world.ensemble(writer)
    ensemble[0].model.delay = LATE + 1.0
    ensemble[0].refuse(Status.FENCED)
    add(writer, 3)
    world.wait(LATE)
    assert ensemble[0] not in world.ensemble(writer)
    add(writer, 1)
    world.wait(3)
    assert listener.failed is None
    assert listener.last == 3


def test_whoever_is_fenced_ends() -> None:
    world = World(4)
    writer, listener = world.writer(Quorums(3, 3, 2))
    add(writer, 3)
    world.wait()
    world.ensemble(writer)[1].refuse(Status.FENCED)
    for server in (world.ensemble(writer)[0], world.ensemble(writer)[2]):
        server.model.delay = 0.5
    add(writer, 3)
    world.wait()
    assert listener.told == [2]
    assert listener.failed is not None
    assert listener.failed[0] == 3
    assert isinstance(listener.failed[1], LedgerFenced)
    with pytest.raises(LedgerClosed):
        append(writer, b"more")
    with pytest.raises(LedgerFenced):
        world.run(writer.close())


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
def test_whoever_is_recovered_elsewhere_hears_of_it_without_adding(state: LedgerState) -> None:
    world = World(3)
    writer, listener = world.writer()
    world.set(writer, state=state)
    world.wait(0.1)
    assert listener.failed is not None
    assert isinstance(listener.failed[1], LedgerFenced)


@pytest.mark.parametrize("state", [LedgerState.IN_RECOVERY, LedgerState.CLOSED])
@pytest.mark.parametrize("closing", [False, True])
def test_the_metadata_of_a_ledger_that_is_recovered_is_not_written_over(
    state: LedgerState, closing: bool
) -> None:
    world = World(4)
    world.faulty.event_delay = 1000.0
    writer, listener = world.writer()
    add(writer, 2)
    world.wait()
    world.set(writer, state=state)
    found = world.found(writer)
    if closing:
        with pytest.raises(LedgerFenced):
            world.run(writer.close())
    else:
        world.ensemble(writer)[0].refuse(Status.IO_ERROR)
        add(writer, 2)
    world.wait()
    assert listener.told == [1]
    assert listener.failed is not None
    assert isinstance(listener.failed[1], LedgerFenced)
    assert world.found(writer) == found


def test_segments_that_were_replicated_again_are_kept() -> None:
    world = World(6)
    world.faulty.event_delay = 1000.0
    writer, listener = world.writer(Quorums(3, 3, 3))
    add(writer, 5)
    world.wait()
    world.ensemble(writer)[0].refuse(Status.IO_ERROR)
    add(writer, 5)
    world.wait()
    old, current = world.found(writer).record.segments
    copied = Segment(0, ("elsewhere:3181", *old.ensemble[1:]))
    world.set(writer, segments=(copied, current))
    world.ensemble(writer)[1].refuse(Status.IO_ERROR)
    add(writer, 5)
    world.wait()
    assert listener.last == 14
    segments = world.found(writer).record.segments
    assert segments[:2] == (copied, current)
    assert segments[2].first_entry_id == 10
    copied = Segment(0, ("third:3181", *old.ensemble[1:]))
    world.set(writer, segments=(copied, *segments[1:]))
    last, _ = world.run(writer.close())
    record = world.found(writer).record
    assert (record.state, record.last_entry_id, record.segments) == (
        LedgerState.CLOSED,
        last,
        (copied, *segments[1:]),
    )


@pytest.mark.parametrize("field", ["segments", "custom", "password"])
def test_metadata_that_somebody_else_changed_ends_the_writer(field: str) -> None:
    world = World(4)
    world.faulty.event_delay = 1000.0
    writer, listener = world.writer(Quorums(3, 3, 3))
    add(writer, 1)
    world.wait()
    record = world.found(writer).record
    other = Segment(0, ("elsewhere:3181", *record.segments[0].ensemble[1:]))
    world.set(writer, **{field: {"segments": (other,), "custom": {}, "password": b"x"}[field]})
    found = world.found(writer)
    world.server(record.segments[0].ensemble[1]).refuse(Status.IO_ERROR)
    add(writer, 1)
    world.wait()
    assert listener.told == [0]
    assert listener.failed is not None
    assert not isinstance(listener.failed[1], LedgerFenced)
    assert world.found(writer) == found


def test_without_metadata_a_bookie_cannot_be_replaced() -> None:
    world = World(4)
    writer, listener = world.writer()
    add(writer, 1)
    world.wait()
    world.ensemble(writer)[0].refuse(Status.IO_ERROR)
    world.faulty.disconnect()
    add(writer, 1)
    world.wait(30)
    assert listener.told == [0]
    assert listener.failed is not None
    assert isinstance(listener.failed[1], MetadataFailed)


def test_a_ledger_that_is_deleted_takes_nothing() -> None:
    world = World(3)
    writer, listener = world.writer()
    world.run(world.records.delete(writer.ledger_id))
    world.wait(0.1)
    assert listener.failed is not None
    assert isinstance(listener.failed[1], NoSuchLedger)


def test_a_ledger_that_is_deleted_here_takes_nothing_at_once() -> None:
    world = World(3)
    world.faulty.event_delay = 1000.0
    writer, _ = world.writer()
    world.run(world.store.delete(writer.ledger_id))
    with pytest.raises(LedgerClosed):
        append(writer, b"more")


def test_closing_waits_for_what_is_under_way_and_a_change_of_bookies() -> None:
    world = World(4)
    writer, listener = world.writer()
    for server in world.servers:
        server.model.delay = 0.5
    world.ensemble(writer)[0].refuse(Status.IO_ERROR)
    add(writer, 12)
    closing = world.loop.create_task(writer.close())
    world.wait(0.1)
    with pytest.raises(LedgerClosed):
        append(writer, b"late")
    last, length = world.run(closing)
    assert (last, listener.last) == (11, 11)
    record = world.found(writer).record
    assert (record.state, record.last_entry_id, record.length) == (LedgerState.CLOSED, last, length)
    assert length == writer.confirmed_length > 0
    assert world.run(writer.close()) == (last, length)
    world.wait(LATE)
    assert listener.failed is None
    assert world.found(writer).record == record


def test_closing_without_metadata_fails() -> None:
    world = World(3)
    writer, listener = world.writer()
    add(writer, 1)
    world.wait()
    world.faulty.disconnect()
    with pytest.raises(MetadataFailed):
        world.run(writer.close())
    world.wait()
    assert listener.failed is not None
    assert listener.failed[0] == 1


def test_a_bookie_far_behind_holds_up_whoever_appends() -> None:
    world = World(3, BookKeeperSettings(max_pending_bytes=10_000))
    writer, listener = world.writer(Quorums(3, 3, 2))
    slow = world.ensemble(writer)[1]
    slow.model.delay = 2.0
    for _ in range(50):
        append(writer, b"x" * 1000)
        world.wait(0.01)
    assert 5 <= listener.last <= 15
    other, heard = world.writer(Quorums(1, 1, 1))
    while world.ensemble(other)[0] is slow:
        other, heard = world.writer(Quorums(1, 1, 1))
    append(other, b"elsewhere")
    world.wait(0.5)
    assert heard.told == [0], "it is of no concern to others"
    assert listener.last < 49
    world.wait(3)
    assert listener.last == 49


def test_a_bookie_that_does_not_let_itself_be_connected_with_holds_up_whoever_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(4, BookKeeperSettings(max_pending_bytes=10_000))
    writer, listener = world.writer(Quorums(3, 3, 2))
    network = world.simulation.io.network
    connect, blocked = network.connect, world.ensemble(writer)[1].port

    async def connected(host: str, port: int, factory: Any) -> Any:
        if port == blocked:
            await world.loop.create_future()
        return await connect(host, port, factory)

    monkeypatch.setattr(network, "connect", connected)
    for _ in range(50):
        append(writer, b"x" * 1000)
        world.wait(0.01)
    assert 5 <= listener.last <= 15
    world.wait(3)
    assert listener.last == 49, "another one has taken its place"


@pytest.mark.parametrize("most", [MAX_FRAME_BYTES, 1000, 11 << 20])
def test_an_entry_that_bookies_do_not_take_is_refused_alone(most: int) -> None:
    world = World(3, BookKeeperSettings(bookies=BookiesSettings(BookieSettings(max_frame_bytes=most))))
    writer, listener = world.writer()
    with pytest.raises(EntryTooLarge) as refused:
        append(writer, b"small", b"x" * (most - 64 + 1))
    assert refused.value.index == 1
    append(writer, b"x" * (most - 64), b"")
    world.wait(10)
    assert listener.last == 1
    bodies = world.ensemble(writer)[0].entries(writer.ledger_id)
    assert len(bodies[0]) == most - 64 + 36
    world.run(writer.close())
    reader = world.run(world.store.open(writer.ledger_id, recover=False))
    [run] = world.run(reader.read(0, 0, 1))
    assert run.entry(0) == b"x" * (most - 64)


def test_entries_of_high_priority_say_so() -> None:
    world = World(3)
    flags: list[int] = []
    for server in world.servers:
        takes = server.model.add
        server.model.add = lambda each, key, body, takes=takes: (flags.append(each), takes(each, key, body))[
            1
        ]  # type: ignore[method-assign, misc]
    for high_priority in (False, True):
        writer, listener = world.writer(high_priority=high_priority)
        add(writer, 1)
        world.wait()
        assert listener.last == 0
    assert flags == [0, 0, 0, 4, 4, 4]


def test_quorums_that_contradict_each_other_are_refused() -> None:
    world = World(3)
    for quorums in (Quorums(2, 3, 2), Quorums(3, 2, 3), Quorums(3, 3, 0)):
        with pytest.raises(ValueError, match="quorums"):
            world.run(world.store.create(quorums, {}))
    with pytest.raises(NotEnoughBookies, match="4 bookies are needed, but 3 are available"):
        world.run(world.store.create(Quorums(4, 3, 2), {}))
    world.faulty.disconnect()
    with pytest.raises(MetadataFailed):
        world.run(world.store.create(Quorums(3, 3, 2), {}))


def test_figures_of_the_client() -> None:
    world = World(4)
    silent, heard = world.writer()
    writer, listener = world.writer()
    lost = world.ensemble(writer)[0]
    lost.refuse(Status.IO_ERROR)
    add(writer, 3)
    world.wait()
    assert listener.last == 2
    figures = world.store.figures()
    assert (figures.writable, figures.writers, figures.pending_bytes) == (4, 2, 0)
    assert (figures.replaced, figures.fenced, figures.failed) == (1, 0, 0)
    for server in world.servers:
        server.model.silent = True
    add(writer, 1)
    world.wait(0.1)
    assert world.store.figures().pending_bytes == 3 * (64 + len(payload(3)))
    world.set(silent, state=LedgerState.IN_RECOVERY)
    world.wait(LATE * 3)
    assert heard.failed is not None
    assert listener.failed is not None
    figures = world.store.figures()
    assert (figures.writers, figures.fenced, figures.failed) == (0, 1, 1)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_told_is_on_its_ack_quorum(seed: int) -> None:
    """Bookies fail, hang and come back; whatever was told is where the metadata says, often enough."""
    world = World(6, seed=seed)
    random = world.simulation.io.randomness
    conditions = world.simulation.host.network.conditions
    conditions.pieces, conditions.latency = 3, 0.05
    quorums = [Quorums(3, 3, 2), Quorums(5, 3, 2), Quorums(3, 2, 2), Quorums(4, 3, 3)][random.below(4)]
    writer, listener = world.writer(quorums)
    alive = set(world.servers)
    for _ in range(60):
        if listener.failed is not None:
            break
        add(writer, 1 + random.below(8))
        trouble = random.below(12)
        server = world.servers[random.below(6)]
        if trouble == 0 and len(alive) > 5 and server in alive:
            server.kill()
            alive.discard(server)
        elif trouble == 1 and server not in alive:
            server.start()
            alive.add(server)
        elif trouble == 2:
            server.model.read_only = not server.model.read_only
        elif trouble == 3:
            server.model.delay = random.fraction()
        elif trouble == 4:
            server.model.drop_connections()
        world.wait(random.fraction() * 0.3)
        record = world.found(writer).record
        for entry_id in range(listener.last + 1):
            ensemble = record.ensemble_of(entry_id)
            names = {ensemble[index] for index in record.write_set(entry_id)}
            copies = world.copies(writer, entry_id)
            assert len(names & {*copies}) >= quorums.ack, entry_id
            assert all(confirmed < entry_id for confirmed in copies.values())
    if listener.failed is None:
        for server in world.servers:
            server.model.read_only = False
        world.wait(20)
        if listener.failed is None:
            assert listener.last == writer._next - 1
    if listener.failed is not None:
        assert isinstance(listener.failed[1], LedgerError)
        assert listener.failed[0] == listener.last + 1


def test_merging_changes_nothing_that_is_the_writers() -> None:
    world = World(3)
    writer, _ = world.writer()
    record = world.found(writer).record
    assert replace(record, token=5) != record
    world.set(writer, token=5)
    world.wait()
    assert world.run(writer.close()) == (-1, 0)
