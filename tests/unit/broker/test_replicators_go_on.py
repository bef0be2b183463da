"""A replicator goes on by itself after whatever kept it from reading or sending, and leaves nothing out."""

from __future__ import annotations

from typing import Any

import pytest
from sending import DUPLICATE, Source

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
