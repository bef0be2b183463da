"""Managed ledgers over the embedded stores in a simulated world."""

from __future__ import annotations

from array import array
from random import Random

import pytest
from world import NAME, SMALL, World, append

from magnetar.managed_ledger.ending import State
from magnetar.managed_ledger.entry_cache import LedgerCache
from magnetar.managed_ledger.errors import (
    ManagedLedgerClosed,
    ManagedLedgerNotFound,
    ManagedLedgerTerminated,
)
from magnetar.managed_ledger.position import EARLIEST, LATEST
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings, RetentionSettings

KEEP = ManagedLedgerSettings(
    max_entries_per_ledger=5, min_rollover_ms=0, retention=RetentionSettings(-1, -1), read_max_entries=3
)


def test_a_missing_one_is_not_made_unasked() -> None:
    with pytest.raises(ManagedLedgerNotFound):
        World().open(create=False)


def test_one_append_is_cut_where_ledgers_end() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    append(ledger, 12, "context")
    world.wait(1)
    ids = sorted({position[0] for position in listener.stored})
    assert [[e for i, e in listener.stored if i == ledger_id] for ledger_id in ids] == [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
        [0, 1],
    ]
    assert listener.contexts == [("context", 0, 5), ("context", 5, 5), ("context", 10, 2)]
    assert ledger.last_confirmed == listener.stored[-1]


def test_appends_while_a_ledger_is_made_keep_their_order() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    for number in range(40):
        append(ledger, 1, number)
    world.wait(1)
    assert [context for context, _first, _count in listener.contexts] == list(range(40))
    assert listener.stored == sorted(listener.stored)


def test_everything_is_there_after_a_crash() -> None:
    world = World()
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {"a": "b"}))
    assert world.drain(cursor) == []
    world.publish(ledger, listener, 13)
    again = World(world.crash())
    ledger, _ = again.open(create=False)
    cursor = ledger.cursors["s"]
    assert again.drain(cursor) == listener.stored
    assert cursor.storage is not None
    assert cursor.storage.cursor_properties == {"a": "b"}


def test_a_cursor_is_at_the_end_of_ledgers_whose_removal_a_crash_lost() -> None:
    """It was created at the beginning of the empty ledger that followed the removed ones."""
    world = World(settings=KEEP)
    ledger, listener = world.open()
    world.publish(ledger, listener, 3)
    world.run(ledger.roll())
    removed, current = [summary.ledger_id for summary in ledger.ledgers]
    ledger.ledgers.remove(removed)
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    assert cursor.mark_delete == (current, -1)
    again = World(world.crash(), settings=KEEP)
    ledger, listener_again = again.open(create=False)
    cursor = ledger.cursors["s"]
    cursor.check()
    assert (cursor.mark_delete, cursor.backlog()) == (listener.stored[-1], 0)
    again.publish(ledger, listener_again, 2)
    assert again.drain(cursor) == listener_again.stored


def test_nothing_is_trimmed_before_all_cursors_are_known() -> None:
    """Opening rolls before it reads the cursors: that roll must not take the topic for one without."""
    world = World()
    ledger, listener = world.open()
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    disk = world.stop()
    for _ in range(3):
        world = World(disk)
        ledger, _ = world.open()
        world.wait(1)
        assert world.drain(ledger.cursors["s"]) == listener.stored
        disk = world.stop()


def test_consumed_ledgers_go() -> None:
    world = World()
    ledger, listener = world.open()
    first = world.run(world.managed.open_cursor(ledger, "first", EARLIEST, {}))
    second = world.run(world.managed.open_cursor(ledger, "second", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    first.mark_delete_to(listener.stored[-1])
    world.wait(1)
    assert ledger.ledgers.total_entries() == 13
    second.mark_delete_to(listener.stored[6])
    world.wait(1)
    assert ledger.ledgers.total_entries() == 8
    assert world.drain(second) == listener.stored[7:]
    remaining = set(world.run(world.store.ledger_ids()))
    assert listener.stored[0][0] not in remaining
    assert {s.ledger_id for s in ledger.ledgers} <= remaining


def test_without_cursors_only_retention_holds_ledgers() -> None:
    for settings, kept in ((SMALL, 3), (KEEP, 13)):
        world = World(settings=settings)
        ledger, listener = world.open()
        world.publish(ledger, listener, 13)
        world.wait(1)
        assert ledger.ledgers.total_entries() == kept


def test_a_reader_does_not_hold_ledgers_and_goes_on_behind_the_gap() -> None:
    world = World()
    ledger, listener = world.open()
    durable = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    reader = world.managed.open_reader_cursor(ledger, "r", EARLIEST)
    world.publish(ledger, listener, 13)
    durable.mark_delete_to(listener.stored[-1])
    world.wait(1)
    assert world.drain(reader) == listener.stored[10:]


def test_cursors_survive_a_clean_stop_to_the_last_hole_and_bit() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    for index in (0, 1, 4, 7, 12):
        assert cursor.delete(*listener.stored[index])
    assert cursor.consume_batch_indexes(*listener.stored[5], 0b101, 3) == (1, False)
    assert cursor.consume_batch_indexes(*listener.stored[6], 0, 3) == (3, True)
    again = World(world.stop(), settings=KEEP)
    ledger, _ = again.open()
    cursor = ledger.cursors["s"]
    consumed = {0, 1, 4, 6, 7, 12}
    assert again.drain(cursor) == [p for i, p in enumerate(listener.stored) if i not in consumed]
    assert cursor.remaining_bits(*listener.stored[5]) == 0b101
    assert cursor.mark_delete == listener.stored[1]
    assert cursor.backlog() == 7


def test_a_crash_costs_at_most_what_was_acknowledged_in_the_last_interval() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    cursor.mark_delete_to(listener.stored[3])
    world.wait(0.3)
    cursor.mark_delete_to(listener.stored[8])
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    left = again.drain(ledger.cursors["s"])
    assert left in (listener.stored[4:], listener.stored[9:])


def test_cursor_ledgers_roll_and_the_old_ones_go() -> None:
    settings = ManagedLedgerSettings(cursor_max_entries_per_ledger=3)
    world = World(settings=settings)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 30)
    seen = set()
    for position in listener.stored:
        cursor.delete(*position)
        world.wait(0.2)
        assert cursor.storage is not None
        seen.add(cursor.storage.ledger_id)
        assert cursor.storage.entries_in_ledger <= 3
    assert len(seen) > 5
    assert len(world.run(world.store.ledger_ids())) == 2
    again = World(world.crash(), settings=settings)
    ledger, _ = again.open()
    assert again.drain(ledger.cursors["s"]) == []


def test_a_new_cursor_starts_where_it_was_told() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    world.publish(ledger, listener, 13)
    starts = {EARLIEST: 0, LATEST: 13, listener.stored[6]: 6, (0, 0): 0, (10**6, 0): 13}
    for number, (start, expected) in enumerate(starts.items()):
        durable = world.run(world.managed.open_cursor(ledger, f"c{number}", start, {}))
        reader = world.managed.open_reader_cursor(ledger, f"r{number}", start)
        assert world.drain(durable) == world.drain(reader) == listener.stored[expected:]


def test_reset_goes_back_and_forth() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    cursor.mark_delete_to(listener.stored[9])
    cursor.delete(*listener.stored[11])
    for target, expected in ((listener.stored[4], 4), (LATEST, 13), (EARLIEST, 0), (listener.stored[12], 12)):
        cursor.reset(target)
        assert world.drain(cursor) == listener.stored[expected:]
        assert cursor.backlog() == 13 - expected


@pytest.mark.parametrize("seed", range(20))
def test_many_at_once_are_consumed_as_one_by_one(seed: int) -> None:
    random = Random(seed)
    world = World(settings=KEEP)
    ledger, listener = world.open()
    together, single = (world.run(world.managed.open_cursor(ledger, name, EARLIEST, {})) for name in "ts")
    world.publish(ledger, listener, 40)
    nowhere = [(listener.stored[-1][0], 10**6), (10**9, 1), (listener.stored[0][0], -1)]
    left = listener.stored + nowhere
    if random.random() < 0.5:
        random.shuffle(left)
    while left:
        run = left[: random.randrange(1, 12)]
        left = left[len(run) :]
        run += random.sample(run, random.randrange(len(run)))
        for cursor in (together, single):
            cursor.consume_batch_indexes(*listener.stored[20], 0b101, 3)
        ids = array("q", [p[0] for p in run]), array("q", [p[1] for p in run])
        assert together.delete_run(*ids, len(run)) == sum(single.delete(*position) for position in run)
        assert together.mark_delete == single.mark_delete
        assert together.state.describe_ranges() == single.state.describe_ranges()
        assert together.state.batches == single.state.batches
        assert together.backlog() == single.backlog()


def test_positions_that_do_not_exist_change_nothing() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 7)
    last = listener.stored[-1]
    assert not cursor.delete(last[0], last[1] + 1)
    assert not cursor.delete(10**9, 0)
    assert not cursor.delete(last[0], -1)
    run = array("q", [last[0], 10**9, -5]), array("q", [2**62, 0, 0])
    assert cursor.delete_run(*run, 3) == 0
    assert cursor.consume_batch_indexes(10**9, 5, 1, 3) == (0, True)
    assert cursor.backlog() == 7
    assert cursor.mark_delete_to((last[0], 2**62)) == 7
    assert cursor.mark_delete == last
    assert cursor.mark_delete_to((10**9, 0)) == 0


def test_terminated_for_ever() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 7)
    assert world.run(ledger.terminate()) == listener.stored[-1]
    assert world.run(ledger.terminate()) == listener.stored[-1]
    with pytest.raises(ManagedLedgerTerminated):
        append(ledger, 1)
    assert world.drain(cursor) == listener.stored
    again = World(world.crash(), settings=KEEP)
    ledger, _ = again.open()
    assert ledger.state is State.TERMINATED
    with pytest.raises(ManagedLedgerTerminated):
        append(ledger, 1)
    assert again.drain(ledger.cursors["s"]) == listener.stored


def test_closed_takes_nothing() -> None:
    world = World()
    ledger, _ = world.open()
    world.run(world.managed.close(ledger))
    with pytest.raises(ManagedLedgerClosed):
        append(ledger, 1)
    world.run(ledger.close())


def test_deleting_leaves_nothing() -> None:
    world = World()
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    cursor.delete(*listener.stored[3])
    world.wait(1)
    world.run(world.managed.delete(ledger))
    assert world.run(world.store.ledger_ids()) == []
    assert not world.run(world.managed.exists(NAME))


def test_orphans_are_removed_at_start() -> None:
    world = World()
    ledger, listener = world.open()
    world.publish(ledger, listener, 3)
    world.run(world.store.create(SMALL.quorums, {}))
    again = World(world.crash())
    assert again.orphans == 1
    ledger, _ = again.open()
    assert ledger.ledgers.total_entries() == 3


@pytest.mark.parametrize("name", ["t/persistent/persistent/topic", "t/c/persistent/persistent/x", NAME])
def test_no_name_makes_a_ledger_an_orphan(name: str) -> None:
    """A namespace may be called like a domain, and legacy names are one piece longer."""
    world = World()
    ledger, listener = world.open(name)
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    cursor.delete(*listener.stored[1])
    world.wait(1)
    again = World(world.crash())
    assert again.orphans == 0
    ledger, _ = again.open(name)
    assert again.drain(ledger.cursors["s"]) == [listener.stored[0], *listener.stored[2:]]


def test_whoever_opens_it_next_fences_the_first() -> None:
    world = World(settings=KEEP)
    first, told = world.open()
    world.publish(first, told, 3)
    append(first, 1)
    second, other = world.open()
    world.wait(2)
    assert told.fenced
    assert first.state is State.FENCED
    stored = len(told.stored)
    assert stored == 3 or not told.failed
    with pytest.raises(ManagedLedgerClosed):
        append(first, 1)
    world.publish(second, other, 2)
    assert second.ledgers.total_entries() in (stored + 2, stored + 3)


def test_ledgers_roll_when_their_time_is_up() -> None:
    settings = ManagedLedgerSettings(max_rollover_ms=60_000, min_rollover_ms=0, retention=KEEP.retention)
    world = World(settings=settings)
    ledger, listener = world.open()
    world.publish(ledger, listener, 1)
    ledger.check_rollover()
    world.wait(1)
    assert len(ledger.ledgers) == 1
    world.wait(61)
    ledger.check_rollover()
    world.wait(1)
    assert len(ledger.ledgers) == 2
    world.wait(61)
    ledger.check_rollover()
    world.wait(1)
    assert len(ledger.ledgers) == 2, "an empty ledger stays"


def test_the_minimum_time_holds_a_full_ledger() -> None:
    settings = ManagedLedgerSettings(
        max_entries_per_ledger=2, min_rollover_ms=60_000, retention=KEEP.retention
    )
    world = World(settings=settings)
    ledger, listener = world.open()
    world.publish(ledger, listener, 10)
    assert len(ledger.ledgers) == 1
    world.wait(61)
    world.publish(ledger, listener, 1)
    world.wait(1)
    assert len(ledger.ledgers) == 2


@pytest.mark.parametrize("cache", [EntryCacheSettings(), EntryCacheSettings(max_bytes=100)])
def test_tailing_reads_come_from_memory(cache: EntryCacheSettings) -> None:
    world = World(settings=KEEP, cache=cache)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    ledger.cursors.set_active(cursor, True)
    found: list[tuple[int, int]] = []
    hits = 0
    for _ in range(20):
        world.publish(ledger, listener, 3)
        while cursor.has_more():
            run = cursor.read_cached(100, 1 << 20)
            if run is not None:
                hits += run.count
            else:
                run = world.run(cursor.read(100, 1 << 20))
            assert run is not None
            found += [(run.ledger_id, run.first_entry_id + i) for i in range(run.count)]
        assert world.managed.cache.used_bytes <= cache.max_bytes
    assert found == listener.stored
    assert hits > 0
    world.wait(5)
    assert world.managed.cache.used_bytes == 0
    assert world.managed.cache.entries == 0


def test_what_is_in_memory_goes_when_the_settings_change() -> None:
    """Also what would have stayed for long, and what comes later."""
    world = World(settings=KEEP, cache=EntryCacheSettings(max_age_seconds=3600.0))
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    ledger.cursors.set_active(cursor, True)
    world.publish(ledger, listener, 3)
    world.wait(60)
    assert world.managed.cache.entries == 3
    world.managed.use(EntryCacheSettings(max_age_seconds=100.0), skip_lost_data=False)
    assert world.managed.cache.entries == 3
    world.wait(60)
    assert world.managed.cache.entries == 0
    world.publish(ledger, listener, 3)
    world.wait(1)
    world.managed.use(EntryCacheSettings(max_bytes=10), skip_lost_data=False)
    assert world.managed.cache.entries == 0


def test_many_cursors_keep_in_memory_only_what_some_have_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many of them it looks at all positions now and then, not at every move of each."""
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursors = [world.run(world.managed.open_cursor(ledger, f"s{n}", EARLIEST, {})) for n in range(40)]
    for cursor in cursors:
        ledger.cursors.set_active(cursor, True)
    looks = 0
    drop_before = LedgerCache.drop_before

    def look(cache: LedgerCache, position: tuple[int, int]) -> None:
        nonlocal looks
        looks += 1
        drop_before(cache, position)

    monkeypatch.setattr(LedgerCache, "drop_before", look)
    for _ in range(20):
        world.publish(ledger, listener, 3)
        for cursor in cursors:
            while cursor.has_more():
                assert cursor.read_cached(100, 1 << 20) is not None
    moves = 20 * len(cursors)
    assert 0 < looks <= moves // 2
    assert world.managed.cache.entries <= 2 * 3
    for cursor in cursors[:-1]:
        ledger.cursors.set_active(cursor, False)
    world.publish(ledger, listener, 3)
    assert cursors[-1].read_cached(100, 1 << 20) is not None
    assert world.managed.cache.entries == 0


def test_cumulative_acknowledgement_counts_what_was_not_consumed() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    for index in (2, 6, 11):
        cursor.delete(*listener.stored[index])
    assert cursor.mark_delete_to(listener.stored[3]) == 3
    assert cursor.mark_delete_to(listener.stored[7]) == 3
    assert cursor.mark_delete_to(listener.stored[12]) == 4
    assert cursor.backlog() == 0


def test_a_read_of_what_is_trimmed_meanwhile_finds_nothing() -> None:
    world = World()
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 13)
    for _ in range(20):
        cursor.reset(EARLIEST)
        reading = world.simulation.loop.create_task(cursor.read(3, 1000))
        world.wait(0.0001)
        cursor.mark_delete_to(listener.stored[-1])
        cursor.read_position = listener.stored[0]
        world.wait(1)
        run = world.run(reading)
        assert run is None or (run.ledger_id, run.first_entry_id) in listener.stored
        world.publish(ledger, listener, 13)


def test_a_cursor_is_found_by_whatever_path_it_was_written_to() -> None:
    world = World()
    ledger, _listener = world.open()
    world.run(world.managed.open_cursor(ledger, "a*b~c d", EARLIEST, {}))
    assert world.run(world.metadata.children(ledger.path)) == ["a*b%7Ec+d"]
    node = world.run(world.metadata.get(f"{ledger.path}/a*b%7Ec+d"))
    assert node is not None
    world.run(world.metadata.put(f"{ledger.path}/e%2Af~", node.value))
    again = World(world.stop())
    ledger, _listener = again.open()
    assert sorted(ledger.cursors) == ["a*b~c d", "e*f~"]


def test_what_a_reader_consumed_in_trimmed_ledgers_leaves_its_backlog_alone() -> None:
    world = World()
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    reader = world.managed.open_reader_cursor(ledger, "r", EARLIEST)
    world.publish(ledger, listener, 22)
    for position in listener.stored[2:14]:
        reader.delete(*position)
    cursor.mark_delete_to(listener.stored[19])
    world.wait(1)
    assert len(ledger.ledgers) == 1
    assert reader.backlog() == 2
    assert reader.state.range_count() == 0
    assert world.drain(reader) == listener.stored[20:]


def test_opening_after_a_crash_writes_the_record_once() -> None:
    world = World()
    ledger, listener = world.open()
    world.publish(ledger, listener, 3)
    node = world.run(world.metadata.get(ledger.path))
    assert node is not None
    again = World(world.crash())
    ledger, _ = again.open()
    found = again.run(again.metadata.get(ledger.path))
    assert found is not None
    assert found.version == node.version + 1
