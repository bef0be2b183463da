"""How often cursors are written, where a policy says it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import Persistence
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.position import Position
from magnetar.naming.topic_name import TopicName


def positions(topic: Topic, start: Position, count: int) -> list[Position]:
    ledgers = topic.managed_ledger.ledgers
    return [ledgers.nth_after(start, number + 1) for number in range(count)]


def writes(lived: Lived, topic: Topic, subscription: Subscription, seconds: int) -> int:
    """How often its state is written while something is consumed all the time."""
    storage = subscription.cursor.storage
    assert storage is not None
    lived.publish(topic, seconds * 20)
    lived.world.run(subscription.cursor.flush())
    before = storage.entries_in_ledger
    for position in positions(topic, subscription.cursor.mark_delete, seconds * 20):
        subscription.cursor.mark_delete_to(position)
        lived.world.wait(0.05)
    return storage.entries_in_ledger - before


@pytest.fixture
def lived() -> Lived:
    return Lived(EffectivePolicies())


@pytest.mark.parametrize(("rate", "least", "most"), [(1.0, 4, 6), (0.5, 2, 3), (0.0, 90, 101)])
def test_a_policy_s_rate_is_how_often_cursors_are_written(
    lived: Lived, rate: float, least: int, most: int
) -> None:
    topic = lived.topic()
    lived.use(topic, persistence=Persistence(mark_delete_rate=rate, own_rate=True))
    subscription = lived.subscribe(topic)
    assert least <= writes(lived, topic, subscription, 5) <= most


def test_a_state_that_is_costly_to_encode_is_written_within_a_second_all_the_same(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause grew with the cost, up to managedLedgerCursorPositionFlushSeconds: a minute."""
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    storage = subscription.cursor.storage
    assert storage is not None
    monkeypatch.setattr(storage, "_encode", lambda: costly(storage, 0.5))
    assert 4 <= writes(lived, topic, subscription, 5) <= 6


def costly(storage: CursorStorage, seconds: float) -> bytes:
    """The state as an entry, encoded as if that took so long."""
    entry = CursorStorage._encode(storage)
    storage._took(seconds)
    return entry


def test_a_rate_counts_at_once_and_without_one_the_store_has_its_say(lived: Lived) -> None:
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    usual = writes(lived, topic, subscription, 5)
    assert usual > 20
    lived.use(topic, persistence=Persistence(mark_delete_rate=1.0, own_rate=True))
    assert writes(lived, topic, subscription, 5) <= 6
    lived.use(topic, persistence=Persistence())
    assert writes(lived, topic, subscription, 5) >= usual - 2


def test_what_a_namespace_says_is_a_policy_s_rate() -> None:
    given = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
    read = Persistence.read({**given, "managedLedgerMaxMarkDeleteRate": 2.5})
    assert (read.own_rate, read.mark_delete_rate) == (True, 2.5)
    assert not Persistence().own_rate


def test_what_a_write_would_leave_out_is_known(lived: Lived) -> None:
    few = replace(
        lived.world.managed.settings, max_unacked_ranges_to_persist=2, max_batch_indexes_to_persist=2
    )
    lived.world.managed.settings = few
    topic = lived.topic(TopicName.parse("persistent://public/default/few"))
    subscription = lived.subscribe(topic)
    lived.publish(topic, 20, batch=4)
    storage = subscription.cursor.storage
    assert storage is not None
    where = positions(topic, subscription.cursor.mark_delete, 20)
    for position in where[1::2]:
        subscription.cursor.delete(*position)
    assert storage.keeps_all, "many holes are kept as bits"
    for position in where[0:4:2]:
        subscription.cursor.consume_batch_indexes(*position, 0b1110, 4)
    assert storage.keeps_all
    subscription.cursor.consume_batch_indexes(*where[4], 0b1110, 4)
    assert not storage.keeps_all, "of batches only so many"
