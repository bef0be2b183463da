"""What waits beyond what memory holds: in ledgers, found again after a restart, gone when not wanted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from delaying import EXCLUSIVE, KEY_SHARED, SECOND, SHARED, Delays, got
from peers import Peer

from magnetar.broker.delays import runs
from magnetar.broker.delays.index import PROPERTY, DelayIndex
from magnetar.broker.explaining.subscriptions import explain_subscription
from magnetar.broker.subscriptions.persistent import reset
from magnetar.ledger.interface import StoreFull
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

SMALL = ManagedLedgerSettings(max_entries_per_ledger=50, min_rollover_ms=0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BLOCK_RECORDS", 8)


def storage(brokers: Delays, name: str = "s") -> Any:
    return brokers.topic.managed_ledger.cursors[name].storage


def named(brokers: Delays) -> dict[str, Any]:
    """What the property of the cursor says."""
    text = storage(brokers).side.properties.get(PROPERTY)
    return {} if text is None else json.loads(text)


def ledgers(brokers: Delays) -> set[int]:
    return set(brokers.world.run(brokers.world.store.ledger_ids()))


def messages(peer: Peer) -> list[tuple[int, int]]:
    ids = [command.message.message_id for command in peer.received(BaseCommand.MESSAGE)]
    return [(each.ledgerId, each.entryId) for each in ids]


def filled(count: int = 200) -> tuple[Delays, Peer]:
    """A broker with so many messages that wait, for 10 to 60 s, most of them in ledgers."""
    brokers = Delays(ledgers=SMALL, in_memory=20, look_ahead=0)
    consumer = brokers.consumer(SHARED, permits=10_000)
    for first in range(0, count, 25):
        brokers.send(*(10 * SECOND + (n * 7919) % 50_000 for n in range(first, first + 25)))
    brokers.until(lambda: brokers.delayed() == count and named(brokers) != {})
    brokers.run_for(100)
    return brokers, consumer


def again(brokers: Delays) -> Delays:
    """The next life after the process was killed; its clock goes on."""
    now = brokers.now
    later = Delays(disk=brokers.world.crash(), ledgers=SMALL, in_memory=20, look_ahead=0)
    later.world.simulation.io.clock.offset_ms += now - later.now
    return later


def tracker(brokers: Delays) -> Any:
    return brokers.subscription().dispatcher.delays


def test_what_memory_does_not_hold_comes_in_time_from_ledgers() -> None:
    brokers, consumer = filled()
    assert len(tracker(brokers)._heap) <= 20
    assert len(named(brokers)["ledgers"]) > 2
    before = 0
    for _ in range(13):
        brokers.run_for(5 * SECOND)
        due = len(got(consumer))
        assert due >= before
        before = due
    assert len(messages(consumer)) == len(set(messages(consumer))) == 200
    assert brokers.delayed() == 0


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_nothing_comes_before_its_time(kind: int) -> None:
    brokers = Delays(ledgers=SMALL, in_memory=10, look_ahead=0)
    consumer = brokers.consumer(kind, permits=10_000)
    wanted = {}
    for first in range(0, 120, 10):
        delays = [3 * SECOND + (n * 7919) % 20_000 for n in range(first, first + 10)]
        known = brokers.topic.max_read_position
        now = brokers.now
        brokers.send(*delays)
        position = known
        for delay in delays:
            position = brokers.topic.managed_ledger.ledgers.after(position)
            wanted[position] = now + delay
    seen: dict[tuple[int, int], int] = {}
    for _ in range(300):
        brokers.run_for(100)
        for position in messages(consumer)[len(seen) :]:
            seen[position] = brokers.now
    assert set(seen) == set(wanted)
    for position, came in seen.items():
        assert came >= wanted[position]
        assert came <= wanted[position] + 1300


def test_a_restart_goes_on_without_reading_what_waits() -> None:
    brokers, consumer = filled()
    brokers.run_for(30 * SECOND)
    came = messages(consumer)
    assert 50 < len(came) < 150
    for ledger_id, entry_id in came:
        brokers.subscription().cursor.delete(ledger_id, entry_id)
    brokers.run_for(SECOND)
    waiting = brokers.delayed()
    later = again(brokers)
    second = later.consumer(SHARED, permits=10_000)
    later.until(lambda: tracker(later) is not None)
    later.run_for(10)
    assert later.delayed() >= waiting - 20
    assert later.topic.managed_ledger.reader.entries_read < 100
    later.run_for(60 * SECOND)
    assert len(messages(second)) == len(set(messages(second)))
    assert not set(messages(second)) & set(came)
    assert len(messages(second)) == 200 - len(came)


def test_what_was_delivered_and_not_acknowledged_comes_again_after_a_restart() -> None:
    brokers, consumer = filled()
    brokers.run_for(20 * SECOND)
    came = messages(consumer)
    later = again(brokers)
    second = later.consumer(SHARED, permits=10_000)
    later.run_for(2 * SECOND)
    assert set(came) <= set(messages(second))
    later.run_for(60 * SECOND)
    assert len(messages(second)) == len(set(messages(second))) == 200


def test_what_came_after_it_was_written_is_read() -> None:
    brokers, _consumer = filled()
    brokers.send(*[5 * SECOND] * 10, None)
    later = again(brokers)
    second = later.consumer(SHARED, permits=10_000)
    later.run_for(70 * SECOND)
    assert len(messages(second)) == len(set(messages(second))) == 211


def test_a_clean_end_leaves_what_is_in_memory_too() -> None:
    brokers, _consumer = filled()
    brokers.send(*[100 * SECOND] * 15)
    brokers.until(lambda: brokers.delayed() == 215)
    brokers.world.run(brokers.topic.close())
    now = brokers.now
    later = Delays(disk=brokers.world.stop(), ledgers=SMALL, in_memory=20, look_ahead=0)
    later.world.simulation.io.clock.offset_ms += now - later.now
    second = later.consumer(SHARED, permits=10_000)
    later.until(lambda: tracker(later) is not None)
    later.run_for(10)
    assert later.delayed() == 215
    assert later.topic.managed_ledger.reader.entries_read == 0
    later.run_for(150 * SECOND)
    assert len(messages(second)) == 215


def test_its_ledgers_go_when_all_of_it_has_come() -> None:
    brokers, consumer = filled()
    before = ledgers(brokers)
    index = set(named(brokers)["ledgers"])
    assert index <= before
    brokers.run_for(120 * SECOND)
    assert len(messages(consumer)) == 200
    brokers.until(lambda: not named(brokers))
    brokers.run_for(SECOND)
    assert not index & ledgers(brokers)


def test_its_ledgers_go_with_the_subscription() -> None:
    brokers, _consumer = filled()
    index = set(named(brokers)["ledgers"])
    brokers.subscription().disconnect_all()
    brokers.world.run(brokers.topic.subscriptions.unsubscribe("s"))
    brokers.run_for(SECOND)
    assert not index & ledgers(brokers)


def test_its_ledgers_go_with_the_topic() -> None:
    brokers, _consumer = filled()
    index = set(named(brokers)["ledgers"])
    brokers.world.run(brokers.topic.delete())
    brokers.run_for(SECOND)
    assert not index & ledgers(brokers)


def test_a_clear_lets_them_go() -> None:
    brokers, consumer = filled()
    index = set(named(brokers)["ledgers"])
    brokers.subscription().skip_to(brokers.topic.max_read_position)
    assert brokers.delayed() == 0
    brokers.run_for(SECOND)
    assert not index & ledgers(brokers)
    brokers.run_for(60 * SECOND)
    assert messages(consumer) == []


def test_a_start_keeps_the_ledgers_that_are_named_and_no_others() -> None:
    brokers, _consumer = filled()
    index = set(named(brokers)["ledgers"])
    lost = brokers.world.run(_unnamed(brokers))
    later = again(brokers)
    assert lost not in ledgers(later)
    assert index <= ledgers(later)


async def _unnamed(brokers: Delays) -> int:
    run = await tracker(brokers)._index.write_run([1 << 150])
    return int(run.ledger_id)


def test_after_a_seek_the_index_is_void() -> None:
    brokers, _consumer = filled()
    index = set(named(brokers)["ledgers"])
    subscription = brokers.subscription()
    subscription.disconnect_all()
    reset(subscription, (0, 0))
    brokers.run_for(SECOND)
    assert not index & ledgers(brokers)
    second = brokers.consumer(SHARED, permits=10_000, number=2)
    brokers.run_for(80 * SECOND)
    assert len(messages(second)) == len(set(messages(second))) == 200


def test_an_index_from_before_a_seek_is_not_taken_up() -> None:
    brokers, _consumer = filled()
    index = set(named(brokers)["ledgers"])
    subscription = brokers.subscription()
    subscription.disconnect_all()
    subscription.cursor.reset((0, 0))
    brokers.world.run(subscription.cursor.flush())
    assert index <= ledgers(brokers)
    later = again(brokers)
    second = later.consumer(SHARED, permits=10_000)
    later.run_for(SECOND)
    assert not index & ledgers(later)
    later.run_for(80 * SECOND)
    assert len(messages(second)) == len(set(messages(second))) == 200


@pytest.mark.parametrize("which", [0, 1])
def test_without_its_ledgers_it_is_built_anew(which: int) -> None:
    brokers, _consumer = filled()
    brokers.world.run(brokers.world.store.delete(named(brokers)["ledgers"][which]))
    later = again(brokers)
    second = later.consumer(SHARED, permits=10_000)
    later.run_for(80 * SECOND)
    assert len(messages(second)) == len(set(messages(second))) == 200
    assert later.delayed() == 0


def test_lost_while_it_is_used_nothing_is_delivered_twice() -> None:
    brokers, consumer = filled()
    brokers.run_for(15 * SECOND)
    held = len(messages(consumer))
    assert held
    for run in tracker(brokers)._index.runs:
        brokers.world.run(brokers.world.store.delete(run.ledger_id))
    brokers.run_for(80 * SECOND)
    assert len(messages(consumer)) == len(set(messages(consumer))) == 200


def test_what_cannot_be_written_stays_in_memory_and_is_tried_again() -> None:
    brokers = Delays(ledgers=SMALL, in_memory=20, look_ahead=0)
    consumer = brokers.consumer(SHARED, permits=10_000)
    create = brokers.world.managed.store.create

    async def refuse(*_args: Any, **_options: Any) -> Any:
        raise StoreFull("no room")

    brokers.send(*[60 * SECOND] * 10)
    brokers.world.managed.store.create = refuse  # type: ignore[method-assign]
    brokers.send(*[60 * SECOND] * 30)
    brokers.run_for(SECOND)
    assert brokers.delayed() == 40
    assert not named(brokers)
    brokers.world.managed.store.create = create  # type: ignore[method-assign]
    brokers.run_for(12 * SECOND)
    brokers.send(60 * SECOND)
    brokers.until(lambda: named(brokers) != {})
    brokers.run_for(70 * SECOND)
    assert len(messages(consumer)) == len(set(messages(consumer))) == 41


def test_another_type_in_between_changes_nothing_of_what_waits() -> None:
    brokers, _consumer = filled()
    brokers.subscription().disconnect_all()
    second = brokers.consumer(EXCLUSIVE, permits=10_000, number=2)
    brokers.until(lambda: len(messages(second)) == 200)
    for ledger_id, entry_id in messages(second)[:50]:
        brokers.subscription().cursor.delete(ledger_id, entry_id)
    brokers.subscription().disconnect_all()
    third = brokers.consumer(KEY_SHARED, permits=10_000, number=3)
    brokers.run_for(10)
    assert messages(third) == []
    brokers.run_for(80 * SECOND)
    assert len(messages(third)) == len(set(messages(third))) == 150


def test_reading_waits_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Delays(ledgers=SMALL, in_memory=20, look_ahead=0)
    consumer = brokers.consumer(SHARED, permits=10_000)
    brokers.send(*[10 * SECOND] * 20)
    brokers.until(lambda: brokers.delayed() == 20)
    written = brokers.loop.create_future()

    async def slowly(_index: DelayIndex, _records: Any) -> Any:
        await written
        raise StoreFull("no room")

    monkeypatch.setattr(DelayIndex, "write_run", slowly)
    for _ in range(20):
        brokers.send(*[10 * SECOND] * 10)
    brokers.run_for(SECOND)
    assert brokers.delayed() < 100
    monkeypatch.undo()
    written.set_result(None)
    brokers.run_for(80 * SECOND)
    assert len(messages(consumer)) == len(set(messages(consumer))) == 220


def test_times_that_never_come_are_kept() -> None:
    brokers = Delays(ledgers=SMALL, in_memory=3, look_ahead=0)
    consumer = brokers.consumer(SHARED, permits=10_000)
    brokers.send(*[(1 << 63) - 1 - brokers.now] * 8, *[5 * SECOND] * 8)
    brokers.until(lambda: named(brokers) != {})
    later = again(brokers)
    second = later.consumer(SHARED, permits=10_000)
    later.run_for(10 * SECOND)
    assert messages(consumer) == []
    assert len(messages(second)) == 8
    assert later.delayed() == 8


def test_users_cannot_name_ledgers() -> None:
    brokers = Delays(ledgers=SMALL)
    kept = brokers.topic.managed_ledger.current_ledger.ledger_id
    properties = {"magnetar.delayed": json.dumps({"ledgers": [kept]}), "a": "b"}
    made = brokers.world.run(
        brokers.topic.subscriptions.subscribe("s", (0, 0), properties, durable=True, create=True)
    )
    assert made.properties == {"a": "b"}
    assert named(brokers) == {}
    brokers.world.run(storage(brokers).set_cursor_properties(properties))
    brokers.world.run(brokers.topic.subscriptions.unsubscribe("s"))
    assert kept in ledgers(brokers)


def test_memory_is_bounded_while_the_index_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Delays(ledgers=SMALL, in_memory=20, look_ahead=0)
    consumer = brokers.consumer(SHARED, permits=10_000)
    brokers.send(*[600 * SECOND] * 10)
    refused: list[int] = []

    async def refuse(_index: DelayIndex, _records: Any) -> Any:
        refused.append(brokers.now)
        raise StoreFull("no room")

    monkeypatch.setattr(DelayIndex, "write_run", refuse)
    for _ in range(20):
        brokers.send(*[600 * SECOND] * 20)
    brokers.run_for(60 * SECOND)
    assert len(refused) > 3
    delays = tracker(brokers)
    assert len(delays._heap) <= 80
    assert delays.is_full
    found = explain_subscription(brokers.subscription())
    assert found.figures["indexNotWritten"] == "no room"
    assert "nothing more is read" in found.sentence
    # It is tried again although nobody reads, and what was not read is read then.
    monkeypatch.undo()
    monkeypatch.setattr(runs, "BLOCK_RECORDS", 8)
    brokers.run_for(15 * SECOND)
    brokers.until(lambda: brokers.delayed() == 410)
    assert not delays.not_written
    brokers.run_for(600 * SECOND)
    assert len(messages(consumer)) == len(set(messages(consumer))) == 410
