"""Ledgers and entries that are gone for good: cursors stay in front of them, or go on if settings say so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_bookkeeper import SimulatedServers, open_bookkeeper_store
from world import SMALL, Listener, World

from magnetar.io.wheel import TimerWheel
from magnetar.ledger.bookkeeper.ledger_record import BookiesUnavailable
from magnetar.ledger.interface import EntryLost, NoSuchLedger
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.settings import EntryCacheSettings

NOTHING_CACHED = EntryCacheSettings(max_bytes=0)


class OnBookies(World):
    """Ledgers are on model bookies, metadata is as ever."""

    async def _open(self) -> None:
        await super()._open()
        self.servers = SimulatedServers(self.simulation.host.network, 1)
        store = await open_bookkeeper_store(self.simulation)
        io = self.simulation.io
        self.managed = ManagedLedgerFactory(
            io, TimerWheel(io.loop), store, self.metadata, self._settings, NOTHING_CACHED
        )

    def lose_entries(self, positions: list[Position]) -> None:
        for bookie in self.servers.bookies:
            for ledger_id, entry_id in positions:
                del bookie.model.ledgers[ledger_id].entries[entry_id]


class Topic:
    """Twelve entries in three ledgers, none of them in memory, and a cursor in front of them."""

    def __init__(self, kind: type[World], *, skip: bool) -> None:
        self.world = kind(settings=replace(SMALL, skip_lost_data=skip), cache=NOTHING_CACHED)
        self.ledger, listener = self.world.open()
        self.cursor: Cursor = self.world.run(self.world.managed.open_cursor(self.ledger, "s", EARLIEST, {}))
        for _ in range(12):
            self.world.publish(self.ledger, listener, 1)
        self.stored = listener.stored
        self.ids = sorted({ledger_id for ledger_id, _ in self.stored})
        assert len(self.ids) == 3

    def lose_ledger(self, ledger_id: int) -> None:
        self.world.run(self.world.managed.store.delete(ledger_id))

    def drained(self) -> list[Position]:
        """What the cursor comes to."""
        found: list[Position] = []
        while self.cursor.has_more():
            run = self.world.run(self.cursor.read(100, 1 << 20))
            if run is not None:
                for first, end in self.cursor.unconsumed_parts(run):
                    found += [(run.ledger_id, run.first_entry_id + index) for index in range(first, end)]
        return found

    def consume(self, positions: list[Position]) -> None:
        for ledger_id, entry_id in positions:
            self.cursor.delete(ledger_id, entry_id)


@pytest.mark.parametrize("kind", [World, OnBookies])
def test_a_cursor_stays_in_front_of_a_lost_ledger(kind: type[World]) -> None:
    topic = Topic(kind, skip=False)
    topic.lose_ledger(topic.ids[1])
    assert topic.world.run(topic.cursor.read(100, 1 << 20)) is not None
    with pytest.raises(NoSuchLedger, match=str(topic.ids[1])):
        topic.drained()
    assert topic.cursor.read_position == (topic.ids[1], 0)
    assert topic.cursor.backlog() == 12


@pytest.mark.parametrize("kind", [World, OnBookies])
def test_a_cursor_goes_on_behind_a_lost_ledger(kind: type[World], caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic(kind, skip=True)
    topic.lose_ledger(topic.ids[1])
    kept = [position for position in topic.stored if position[0] != topic.ids[1]]
    assert topic.drained() == kept
    assert topic.cursor.backlog() == len(kept)
    [record] = [each for each in caplog.records if "autoSkipNonRecoverableData" in each.message]
    assert (record.levelname, record.ledger, record.cursor) == ("ERROR", topic.ids[1], "s")  # type: ignore[attr-defined]
    assert topic.world.managed.lost_data.entries == 12 - len(kept)
    topic.consume(kept)
    assert topic.cursor.mark_delete == topic.stored[-1]
    topic.cursor.check()


def test_what_was_read_before_a_ledger_was_lost_can_still_be_consumed() -> None:
    topic = Topic(World, skip=True)
    at = topic.stored.index((topic.ids[1], 2))
    topic.cursor.read_position = topic.stored[at]
    topic.lose_ledger(topic.ids[1])
    assert topic.drained() == [each for each in topic.stored if each[0] == topic.ids[2]]
    topic.consume(topic.stored[:at])
    assert topic.cursor.mark_delete == (topic.ids[1], 4)
    topic.cursor.check()


def test_entries_that_no_bookie_has_are_left_out() -> None:
    topic = Topic(OnBookies, skip=True)
    lost = [topic.stored[0], topic.stored[2], topic.stored[6], topic.stored[7]]
    assert isinstance(topic.world, OnBookies)
    topic.world.lose_entries(lost)
    kept = [each for each in topic.stored if each not in lost]
    assert topic.drained() == kept
    assert topic.cursor.backlog() == len(kept)
    topic.consume(kept)
    assert topic.cursor.mark_delete == topic.stored[-1]


def test_a_cursor_stays_in_front_of_an_entry_that_no_bookie_has() -> None:
    topic = Topic(OnBookies, skip=False)
    assert isinstance(topic.world, OnBookies)
    topic.world.lose_entries([topic.stored[0]])
    with pytest.raises(EntryLost, match=f"entry 0 of ledger {topic.ids[0]}"):
        topic.drained()


def test_bookies_that_do_not_answer_have_lost_nothing() -> None:
    topic = Topic(OnBookies, skip=True)
    assert isinstance(topic.world, OnBookies)
    topic.world.servers.bookies[0].kill()
    with pytest.raises(BookiesUnavailable):
        topic.drained()
    topic.world.servers.bookies[0].start()
    topic.world.wait(5)
    assert topic.drained() == topic.stored


def reopened(topic: Topic) -> ManagedLedger:
    again = World(topic.world.crash(), settings=topic.world._settings, cache=NOTHING_CACHED, scan=False)
    again.run(again.store.delete(topic.ids[-1]))
    topic.world = again
    ledger, _ = again.open()
    topic.cursor = ledger.cursors["s"]
    return ledger


def test_a_last_ledger_that_is_lost_keeps_a_topic_from_being_opened() -> None:
    topic = Topic(World, skip=False)
    with pytest.raises(NoSuchLedger, match=str(topic.ids[-1])):
        reopened(topic)


def test_a_last_ledger_that_is_lost_is_left_out() -> None:
    topic = Topic(World, skip=True)
    topic.consume(topic.stored)
    topic.world.run(topic.cursor.flush())
    ledger = reopened(topic)
    assert topic.ids[-1] not in ledger.ledgers
    assert topic.world.managed.lost_data.ledgers == 1
    assert topic.cursor.backlog() == 0
    topic.cursor.check()
    ledger.check()


@pytest.mark.parametrize("kind", [World, OnBookies])
def test_a_cursor_whose_newest_state_is_lost_goes_on_from_its_record(kind: type[World]) -> None:
    """Else its topic could not be opened any more."""
    topic = Topic(kind, skip=False)
    topic.consume(topic.stored[:2])
    topic.world.run(topic.cursor.flush())
    topic.cursor.consume_batch_indexes(*topic.stored[2], 0b01, 2)
    topic.consume(topic.stored[3:4])
    storage = topic.cursor.storage
    assert storage is not None
    topic.world.run(topic.world.managed.close(topic.ledger))
    lost = storage.ledger_id
    if isinstance(topic.world, OnBookies):
        newest = max(topic.world.servers.bookies[0].model.ledgers[lost].entries)
        topic.world.lose_entries([(lost, newest)])
    else:
        topic.lose_ledger(lost)
    again, _ = topic.world.open()
    cursor = again.cursors["s"]
    assert (cursor.mark_delete, cursor.backlog()) == (topic.stored[1], 10)
    cursor.delete(*topic.stored[2])
    topic.world.run(cursor.flush())
    assert cursor.storage is not None
    assert cursor.storage.ledger_id not in (-1, lost)


def test_what_was_consumed_of_a_last_ledger_that_is_lost_counts_no_more() -> None:
    topic = Topic(World, skip=True)
    topic.consume(topic.stored[1:])
    topic.world.run(topic.cursor.flush())
    assert topic.cursor.backlog() == 1
    ledger = reopened(topic)
    assert topic.cursor.backlog() == 1
    listener = Listener()
    ledger.listener = listener
    topic.world.publish(ledger, listener, 3)
    assert topic.cursor.backlog() == 4
    topic.cursor.check()


def test_the_setting_changes_while_a_process_lives() -> None:
    topic = Topic(World, skip=False)
    managed = topic.world.managed
    lost, cache = managed.lost_data, managed.cache.settings
    topic.lose_ledger(topic.ids[0])
    with pytest.raises(NoSuchLedger):
        topic.drained()
    managed.use(cache, skip_lost_data=True)
    assert topic.drained() == [each for each in topic.stored if each[0] != topic.ids[0]]
    managed.use(cache, skip_lost_data=False)
    assert not lost.skip
    assert lost.metrics() == {"magnetar_lost_ledgers_skipped": 0, "magnetar_lost_entries_skipped": 5}
