"""Going on in another ledger: when, how often, and what happens when it goes wrong on the way."""

from __future__ import annotations

import pytest
from world import World, append

from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import ManagedLedgerSettings, RetentionSettings
from magnetar.metadata.interface import MetadataUnavailable, Node

KEEP = ManagedLedgerSettings(
    max_entries_per_ledger=100, min_rollover_ms=0, retention=RetentionSettings(-1, -1)
)


def test_appends_that_waited_for_a_ledger_share_it() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    append(ledger, 100)
    for number in range(250):
        append(ledger, 1, number)
    world.wait(5)
    assert [context for context, _first, _count in listener.contexts] == [None, *range(250)]
    assert [summary.entries for summary in ledger.ledgers] == [100, 100, 100, 50]


def test_an_acknowledgement_inside_a_ledger_looks_for_nothing_to_trim() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    cursor = world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 350)
    looked = 0
    schedule = ledger.trimmer.schedule

    def counted() -> None:
        nonlocal looked
        looked += 1
        schedule()

    ledger.trimmer.schedule = counted
    for position in listener.stored:
        cursor.delete(*position)
    # When a ledger is entered and when its last entry is consumed.
    assert looked == 7


def test_a_ledger_that_may_be_listed_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    world.publish(ledger, listener, 99)
    put = world.metadata.put

    async def put_unanswered(path: str, value: bytes, expected_version: int | None = None) -> Node:
        await put(path, value, expected_version)
        raise MetadataUnavailable("the answer was lost")

    monkeypatch.setattr(world.metadata, "put", put_unanswered)
    append(ledger, 2)
    world.wait(1)
    assert len(listener.stored) == 100
    assert listener.failed
    again = World(world.crash(), settings=KEEP)
    ledger, _listener = again.open()
    cursor = again.run(again.managed.open_cursor(ledger, "s", EARLIEST, {}))
    assert again.drain(cursor) == listener.stored


def test_nothing_goes_before_whoever_opens_it_has_looked() -> None:
    world = World(settings=ManagedLedgerSettings(max_entries_per_ledger=100, min_rollover_ms=0))
    ledger, listener = world.open()
    world.publish(ledger, listener, 50)
    world.run(world.managed.close(ledger))
    ledger = world.run(world.managed.open(ledger.name, create=False, trims=False))
    position = ledger.last_confirmed
    ledger.use_retention(RetentionSettings())
    world.wait(5)
    # Nobody has it to consume, and nothing keeps it.
    assert ledger.ledgers.exists(position)
    assert world.run(ledger.reader.read_one(position)).count == 1
    ledger.trimmer.begin()
    world.wait(5)
    assert not ledger.ledgers.exists(position)
