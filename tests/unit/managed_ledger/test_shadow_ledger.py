"""A shadow of a managed ledger: whatever its source stores, trims and ends, and while metadata is away."""

from __future__ import annotations

from array import array

import pytest
from faulty_metadata import Fault
from world import Listener, World

from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.ending import State
from magnetar.managed_ledger.errors import ShadowReadOnly
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.shadow_ledger import ShadowLedger
from magnetar.naming.replicators import SHADOW_SOURCE

SOURCE = "t/n/persistent/source"
SHADOW = "t/n/persistent/shadow"


class Shadowed:
    """A source with ledgers of five entries, and its shadow with one cursor."""

    def __init__(self, stored: int = 0) -> None:
        self.world = World()
        self.source, self.listener = self.world.open(SOURCE)
        self.reader = self.cursor(self.source, "reader of the source")
        self.store(stored)
        self.shadow = self.open()
        self.told = 0
        self.shadow.changed = self._changed
        self.mine = self.cursor(self.shadow, "s")

    def _changed(self) -> None:
        self.told += 1

    def open(self) -> ShadowLedger:
        work = self.world.managed.open(
            SHADOW, create=True, properties={SHADOW_SOURCE: "persistent://t/n/source"}
        )
        shadow = self.world.run(work)
        assert isinstance(shadow, ShadowLedger)
        shadow.listener = Listener()
        return shadow

    def cursor(self, ledger: ManagedLedger, name: str) -> Cursor:
        return self.world.run(self.world.managed.open_cursor(ledger, name, EARLIEST, {}))

    def store(self, count: int) -> list[Position]:
        """Stores entries one by one; where they are."""
        before = len(self.listener.stored)
        self.world.publish(self.source, self.listener, count, together=False)
        self.world.wait(0.1)
        return self.listener.stored[before:]

    def confirm(self, positions: list[Position]) -> list[bool]:
        """The replicator of the source has told of entries; whether each was known."""
        return [self.shadow.confirm(each, 10) for each in positions]

    def trim(self) -> None:
        """Everything is consumed at the source, which keeps its last ledger."""
        self.reader.mark_delete_to(self.source.last_confirmed)
        self.world.wait(1.0)

    def ledgers(self) -> list[int]:
        return [each.ledger_id for each in self.shadow.ledgers]


def test_what_is_stored_when_a_shadow_is_opened_can_be_read() -> None:
    world = Shadowed(7)
    assert len(world.ledgers()) == 2
    assert world.world.drain(world.mine) == world.listener.stored


def test_an_entry_can_be_read_when_the_source_has_told_of_it() -> None:
    world = Shadowed(2)
    new = world.store(2)
    assert len(world.world.drain(world.mine)) == 2
    assert world.confirm(new) == [True, True]
    assert world.world.drain(world.mine) == new
    assert world.shadow.entries_added == 2
    assert world.shadow.bytes_added == 20
    assert world.confirm(new) == [True, True], "told again"
    assert world.shadow.entries_added == 2


def test_a_ledger_that_is_not_known_yet_is_looked_for() -> None:
    world = Shadowed(4)
    faulty = world.world.faulty_metadata
    faulty.event_delay = 60.0
    new = world.store(2)
    first, second = new
    assert first[0] < second[0]
    assert world.confirm(new) == [True, False]
    world.world.wait(0.1)
    assert world.told
    assert world.confirm([second]) == [True]
    assert world.world.drain(world.mine)[-2:] == new


def test_changes_while_metadata_was_away_are_known_after_a_reconnect() -> None:
    world = Shadowed(1)
    known = world.ledgers()
    faulty = world.world.faulty_metadata
    # Events that come much later are as good as lost.
    faulty.event_delay = 1e9
    new = world.store(9)
    assert world.ledgers() == known
    faulty.disconnect()
    faulty.reconnect()
    world.world.wait(0.1)
    assert len(world.ledgers()) > len(known)
    assert world.confirm(new[-1:]) == [True]
    assert world.world.drain(world.mine) == world.listener.stored


def test_a_record_that_cannot_be_read_is_read_again() -> None:
    world = Shadowed(1)
    world.world.faulty_metadata.fail_next("get", Fault.BEFORE)
    world.shadow.source_changed()
    world.world.wait(0.1)
    assert world.world.faulty_metadata.failed == 1
    told = world.told
    world.world.wait(2.0)
    assert world.told > told


def test_a_shadow_goes_on_behind_what_its_source_has_trimmed() -> None:
    world = Shadowed(12)
    first, *_, last = world.ledgers()
    trimmed = world.listener.stored[0]
    world.trim()
    assert world.ledgers() == [last]
    assert world.mine.mark_delete == (last, -1)
    assert world.world.drain(world.mine) == [each for each in world.listener.stored if each[0] == last]
    assert world.confirm([trimmed]) == [True], "what is gone is no reason to send it again"
    assert first != last


def test_a_read_of_what_the_source_trims_meanwhile_finds_nothing() -> None:
    world = Shadowed(12)
    reading = world.world.simulation.loop.create_task(world.mine.read(3, 1 << 20))
    world.trim()
    world.world.run(reading)
    assert world.mine.mark_delete == (world.ledgers()[0], -1)


def test_a_read_of_what_was_trimmed_before_the_shadow_hears_of_it_finds_nothing() -> None:
    world = Shadowed(12)
    known = world.ledgers()
    world.world.faulty_metadata.event_delay = 1e9
    world.trim()
    assert world.ledgers() == known
    assert world.world.run(world.mine.read(3, 1 << 20)) is None
    assert world.mine.mark_delete == (world.ledgers()[0], -1)
    assert {each[0] for each in world.world.drain(world.mine)} == set(world.ledgers()[-1:])


def test_a_cursor_that_was_stored_before_its_ledgers_went_goes_on_behind_them() -> None:
    world = Shadowed(12)
    world.mine.mark_delete_to(world.listener.stored[1])
    world.world.run(world.mine.flush())
    world.world.run(world.world.managed.close(world.shadow))
    world.trim()
    world.shadow = world.open()
    world.mine = world.shadow.cursors["s"]
    last = world.source.ledgers.last()
    assert last is not None
    assert world.ledgers() == [last.ledger_id]
    assert {each[0] for each in world.world.drain(world.mine)} == {last.ledger_id}


def test_nothing_can_be_written_to_a_shadow() -> None:
    world = Shadowed(3)
    with pytest.raises(ShadowReadOnly, match="source"):
        world.shadow.append(b"x", array("q", (0,)), array("q", (1,)), 1, 1, None)
    with pytest.raises(ShadowReadOnly, match="terminate its source"):
        world.world.run(world.shadow.terminate())
    ledgers = world.world.run(world.world.store.ledger_ids())
    world.shadow.start_roll()
    world.shadow.check_rollover()
    world.shadow.start_over()
    world.world.wait(5.0)
    assert world.world.run(world.world.store.ledger_ids()) == ledgers
    assert world.shadow.state is not State.TERMINATED


def test_a_shadow_ends_with_its_source() -> None:
    world = Shadowed(3)
    end = world.world.run(world.source.terminate())
    world.world.wait(0.1)
    assert world.shadow.state is State.TERMINATED
    assert world.shadow.terminated == end
    assert world.world.drain(world.mine) == world.listener.stored


def test_a_shadow_goes_on_with_a_new_source_after_the_end_of_the_old_one() -> None:
    world = Shadowed(3)
    before = world.shadow.state
    world.world.run(world.source.terminate())
    world.world.wait(0.1)
    world.world.run(world.world.managed.delete(world.source))
    world.world.wait(0.1)
    assert world.shadow.terminated is None
    world.source, world.listener = world.world.open(SOURCE)
    new = world.store(2)
    assert world.confirm(new) == [True, True]
    assert world.shadow.terminated is None
    assert world.shadow.state is before
    assert world.world.drain(world.mine) == new
    world.shadow.check()


def test_deleting_a_shadow_leaves_the_ledgers_of_its_source() -> None:
    world = Shadowed(12)
    world.world.run(world.world.managed.delete(world.shadow))
    world.world.wait(5.0)
    assert not world.world.run(world.world.managed.exists(SHADOW))
    assert world.world.drain(world.reader) == world.listener.stored


def test_deleting_the_source_leaves_its_shadow_empty() -> None:
    world = Shadowed(12)
    world.world.run(world.world.managed.delete(world.source))
    world.world.wait(1.0)
    assert world.shadow.source_missing
    assert world.ledgers() == []
    assert not world.mine.has_more()
    assert not world.mine.backlog()


def test_cursors_of_a_shadow_without_a_source_have_nothing_to_read() -> None:
    world = Shadowed(12)
    world.world.run(world.world.managed.delete(world.source))
    world.world.wait(1.0)
    later = world.cursor(world.shadow, "later")
    reader = world.world.managed.open_reader_cursor(world.shadow, "reader", world.listener.stored[3])
    world.mine.reset(EARLIEST)
    for cursor in (later, reader, world.mine):
        assert not cursor.has_more(), cursor.name
        assert not cursor.backlog()
        assert world.world.drain(cursor) == []
    world.shadow.check()


def test_an_unexpected_error_in_reading_the_source_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Shadowed(2)

    def damaged(value: bytes, path: str) -> None:
        raise KeyError(path)

    monkeypatch.setattr("magnetar.managed_ledger.shadow_ledger.decode_managed_ledger", damaged)
    world.shadow.source_changed()
    with pytest.raises(KeyError):
        world.world.wait(0.1)
    monkeypatch.undo()
    # The next change is read nevertheless.
    new = world.store(1)
    world.shadow.source_changed()
    world.world.wait(0.1)
    assert world.confirm(new) == [True]
