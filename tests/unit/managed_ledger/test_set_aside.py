"""Orphaned ledgers are set aside first, and deleted only when their retention has passed."""

from __future__ import annotations

import json
import logging
from array import array

import pytest
from world import NAME, World

from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger import records
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.orphans import SET_ASIDE_ROOT, OrphanedLedgers

_HOUR_MS = 3_600_000
_RETENTION_MS = 72 * _HOUR_MS


class Life:
    """A topic with messages, and an orphaned ledger with two entries beside its own one."""

    def __init__(self) -> None:
        self.world = World(scan=False)
        ledger, listener = self.world.open()
        self.world.publish(ledger, listener, 3)
        self.named = self.ledgers()
        writer = self.world.run(self.world.store.create(Quorums(), custom_metadata(ledger.name)))
        self.orphan = writer.ledger_id
        writer.append(b"onetwo", array("q", (0, 3)), array("q", (3, 6)), 0, 2)
        self.world.wait(1)

    def ledgers(self) -> list[int]:
        return list(self.world.run(self.world.store.ledger_ids()))

    def started(self) -> OrphanedLedgers:
        """What a start of the broker makes."""
        return self.world.managed.orphaned_ledgers(_RETENTION_MS)

    def look(self, orphans: OrphanedLedgers) -> int:
        return self.world.run(orphans.look(self.ledgers()))

    def wait_hours(self, hours: float) -> None:
        self.world.wait(hours * 3600)


@pytest.fixture
def life() -> Life:
    return Life()


def test_a_start_sets_it_aside_with_why_and_when(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    orphans = life.started()
    with caplog.at_level(logging.WARNING):
        assert life.look(orphans) == 0
    assert life.ledgers() == [*life.named, life.orphan]
    [known] = orphans.known
    now = life.world.simulation.io.clock.wall_ms()
    assert (known.ledger_id, known.entries, known.bytes) == (life.orphan, 2, 6)
    assert now - known.found_ms < 1000
    assert known.owner == f"topic {NAME}"
    [record] = [each for each in caplog.records if each.message == "set an orphaned ledger aside"]
    assert record.levelno == logging.WARNING
    assert vars(record)["ledger"] == life.orphan
    note = life.world.run(life.world.metadata.get(f"{SET_ASIDE_ROOT}/{life.orphan}"))
    assert note is not None
    written = json.loads(note.value)
    assert written["foundMs"] == known.found_ms
    assert written["reason"] == "no metadata record of a topic, subscription, schema or package refers to it"


def test_it_is_deleted_when_its_retention_has_passed_since_it_was_found_however_often_the_broker_starts(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    life.wait_hours(100)
    life.look(life.started())
    life.wait_hours(71)
    orphans = life.started()
    assert life.look(orphans) == 0, "its retention counts from when it was found"
    assert orphans.seconds_left == pytest.approx(3600, abs=2)
    life.wait_hours(1)
    with caplog.at_level(logging.WARNING):
        assert life.look(orphans) == 1
    assert "deleted an orphaned ledger" in caplog.messages
    assert life.ledgers() == life.named
    assert orphans.known == []
    assert orphans.seconds_left is None
    assert list(life.world.run(life.world.metadata.children(SET_ASIDE_ROOT))) == []


def test_one_that_a_record_names_again_stays_and_is_an_orphan_no_more(life: Life) -> None:
    """As when the newest metadata are put back."""
    life.look(life.started())
    path = f"{records.ROOT}/{NAME}"
    newest = life.world.run(life.world.metadata.get(path))
    assert newest is not None
    record = records.decode_managed_ledger(newest.value, path)
    record.ledgers.append(records.LedgerSummary(life.orphan, 2, 6, 0))
    life.world.run(life.world.metadata.put(path, records.encode_managed_ledger(record), newest.version))
    life.wait_hours(80)
    orphans = life.started()
    assert life.look(orphans) == 0
    assert orphans.known == []
    assert life.ledgers() == [*life.named, life.orphan]
    assert list(life.world.run(life.world.metadata.children(SET_ASIDE_ROOT))) == []
