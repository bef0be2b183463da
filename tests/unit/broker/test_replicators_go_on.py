"""A replicator goes on by itself after whatever kept it from reading or sending, and leaves nothing out."""

from __future__ import annotations

from typing import Any

import pytest
from peers import send_frame
from sending import DUPLICATE, Source

from magnetar.broker.replication import replicator
from magnetar.ledger.interface import LedgerError

STORED = (9, 0)


class Reads:
    """Those of the topic's ledgers: each waits until it is let go, and fails where a test wants that."""

    def __init__(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = source.loop
        self._read = source.topic.managed_ledger.reader.read
        self.waiting: list[Any] = []
        self.held = True
        self.failing = 0
        monkeypatch.setattr(source.topic.managed_ledger.reader, "read", self.read)

    async def read(self, *arguments: Any) -> Any:
        if self.held:
            self.waiting.append(self._loop.create_future())
            await self.waiting[-1]
        if self.failing:
            self.failing -= 1
            raise LedgerError("no answer")
        return await self._read(*arguments)

    def let_go(self) -> None:
        self.held = False
        for each in self.waiting:
            each.set_result(None)
        self.waiting.clear()


def test_a_message_that_is_refused_is_sent_again_before_those_behind_it() -> None:
    source = Source(5)
    assert source.link.sent == source.positions
    source.confirm(STORED, STORED)
    source.refuse()
    source.wait_for_links(2)
    assert source.link.sent == source.positions[2:]
    source.confirm(STORED, STORED, STORED)
    assert not source.replicator.backlog()
    assert source.link.sent + source.store(1) == source.positions[2:]


@pytest.mark.parametrize("failures", [1, 5])
def test_a_read_that_fails_is_repeated(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0)
    reads = Reads(source, monkeypatch)
    reads.failing = failures
    source.store(3)
    source.settle()
    assert len(reads.waiting) == 1, "one read at a time"
    reads.let_go()
    source.settle()
    assert source.link.sent == []
    assert "no answer" in source.replicator.hindrance
    source.world.wait(100.0)
    assert source.link.sent == source.positions
    assert not source.replicator.hindrance


def test_an_unreadable_entry_that_is_skipped_hinders_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(0)
    reads = Reads(source, monkeypatch)
    reads.failing = 10**6
    source.store(3)
    source.settle()
    reads.let_go()
    source.settle()
    assert "no answer" in source.replicator.hindrance
    source.replicator.skip_to(source.positions[-1])
    source.world.wait(100.0)
    assert not source.replicator.backlog()
    assert not source.replicator.hindrance


@pytest.mark.parametrize("failures", [0, 1])
def test_a_cut_during_a_read_leaves_nothing_out(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor goes back while the read is on its way, whether that succeeds or not."""
    source = Source(3)
    source.confirm(STORED)
    reads = Reads(source, monkeypatch)
    source.store(2)
    source.settle()
    assert len(reads.waiting) == 1
    reads.failing = failures
    source.cut()
    source.wait_for_links(2)
    assert source.link.sent == []
    reads.let_go()
    source.world.wait(100.0)
    assert source.link.sent == source.positions[1:]
    source.confirm(*[STORED] * 4)
    assert not source.replicator.backlog()
    source.store(1)
    source.world.wait(1.0)
    assert source.link.sent == source.positions[1:]


def test_repetitions_after_a_cut_are_duplicates() -> None:
    source = Source(3)
    source.cut()
    source.wait_for_links(2)
    assert source.link.sent == source.positions
    source.confirm(DUPLICATE, DUPLICATE, DUPLICATE)
    assert not source.replicator.backlog()
    assert not source.replicator.hindrance


def test_what_was_stored_before_the_topic_was_loaded_may_be_a_duplicate() -> None:
    source = Source(3)
    source.confirm(DUPLICATE, DUPLICATE, DUPLICATE)
    assert not source.replicator.backlog()


def test_what_was_never_sent_before_and_is_called_a_duplicate_waits() -> None:
    source = Source(2)
    source.store(3)
    source.settle()
    source.confirm(DUPLICATE, DUPLICATE, STORED, DUPLICATE)
    assert source.confirmed() == 3
    ledger_id, entry_id = source.positions[3]
    why = source.replicator.hindrance
    assert f"drops entry {ledger_id}:{entry_id}" in why
    assert f"pulsar-admin topicPolicies set-deduplication --disable {source.topic.full_name}" in why
    for number in range(2, 5):
        source.wait_for_links(number)
        assert source.link.sent == [source.positions[3]], "one at a time"
        assert source.replicator.hindrance == why
        source.confirm(DUPLICATE)
    assert source.replicator.backlog() == 2
    source.wait_for_links(5)
    source.confirm(STORED)
    assert not source.replicator.hindrance
    assert source.link.sent == source.positions[3:]
    source.confirm(STORED)
    assert not source.replicator.backlog()


def test_a_cut_while_entries_go_one_by_one_does_not_confirm_them() -> None:
    source = Source(0)
    source.store(2)
    source.settle()
    source.confirm(DUPLICATE)
    source.wait_for_links(2)
    source.cut()
    source.wait_for_links(3)
    source.confirm(DUPLICATE)
    assert source.replicator.backlog() == 2
    assert "drops entry" in source.replicator.hindrance


def _long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a commit on the simulated disk."""
    monkeypatch.setattr(replicator, "_GATHERING_SECONDS", 1.0)


def _store_at_once(source: Source, count: int) -> None:
    """Publishes entries that one commit has room for."""
    first, stored = len(source.positions), source.topic.managed_ledger.last_confirmed
    source.producer.connection.data_received(b"".join(send_frame(first + index) for index in range(count)))
    source.until(lambda: source.topic.managed_ledger.last_confirmed[1] == stored[1] + count)
    source.positions += [(stored[0], stored[1] + 1 + index) for index in range(count)]


def test_a_busy_topic_is_sent_in_runs_with_pauses_between(monkeypatch: pytest.MonkeyPatch) -> None:
    _long_pauses(monkeypatch)
    source = Source(1)
    _store_at_once(source, 10)
    source.until(lambda: len(source.link.sent) == 11)
    sent_at = source.loop.time()
    _store_at_once(source, 3)
    _store_at_once(source, 3)
    assert len(source.link.sent) == 11
    source.until(lambda: len(source.link.sent) > 11)
    assert source.loop.time() >= sent_at + 0.99
    assert source.link.sent == source.positions
    # That run had few messages: the next one has no pause before it.
    [position] = source.store(1)
    source.until(lambda: len(source.link.sent) > 17)
    assert source.link.sent[-1] == position
    assert source.loop.time() < sent_at + 1.9


def test_a_busy_topic_sends_many_entries_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    _long_pauses(monkeypatch)
    source = Source(1)
    _store_at_once(source, 10)
    source.until(lambda: len(source.link.sent) == 11)
    sent_at = source.loop.time()
    _store_at_once(source, 300)
    source.until(lambda: len(source.link.sent) > 11)
    assert source.loop.time() < sent_at + 0.9


def test_a_replicator_that_stops_while_it_gathers_sends_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _long_pauses(monkeypatch)
    source = Source(1)
    _store_at_once(source, 10)
    source.until(lambda: len(source.link.sent) == 11)
    _store_at_once(source, 3)
    source.replicator.stop()
    source.world.wait(1.0)
    assert len(source.link.sent) == 11
