"""What is delivered again when the ledger that it is in has been lost meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from peers import Brokers
from test_dispatch_rates import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    UNBOUNDED,
    sent,
    store,
    subscription,
    take,
    topic_of,
)
from world import SMALL

from magnetar.broker.stats.assembled import StatsSelection, stats_of
from magnetar.ledger.interface import LedgerError
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def with_a_lost_ledger(kind: int, *, skip: bool) -> Brokers:
    """Fifteen entries in three ledgers, sent and not acknowledged; the first five are lost, and all are to be
    delivered again."""
    brokers = Brokers(ledgers=replace(SMALL, skip_lost_data=skip), policies=UNBOUNDED)
    peer = brokers.subscribed("s", kind)
    for _ in range(3):
        store(brokers, 5)
        brokers.world.wait(0.5)
    take(peer)
    brokers.until(lambda: sent(brokers) == 15)
    ledger = topic_of(brokers).managed_ledger
    ids = [summary.ledger_id for summary in ledger.ledgers if summary.entries]
    assert len(ids) == 3
    for ledger_id in ids:
        ledger.reader.forget(ledger_id)
    brokers.world.run(brokers.world.managed.store.delete(ids[0]))
    peer.send(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1)
    brokers.world.wait(3)
    return brokers


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_it_is_left_out_where_settings_say_so(kind: int) -> None:
    brokers = with_a_lost_ledger(kind, skip=True)
    assert sent(brokers) == 25
    assert subscription(brokers).cursor.backlog() == 10
    assert brokers.world.managed.lost_data.entries == 5
    subscription(brokers).cursor.check()


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
def test_it_is_tried_again_and_again_else(kind: int) -> None:
    brokers = with_a_lost_ledger(kind, skip=False)
    assert sent(brokers) == 15
    assert subscription(brokers).read_errors > 1
    assert subscription(brokers).cursor.backlog() == 15


def test_figures_of_its_topic_are_told_without_the_age_of_what_is_lost() -> None:
    brokers = with_a_lost_ledger(SHARED, skip=False)
    topic = topic_of(brokers)
    stats = brokers.world.run(stats_of(brokers.broker.io, topic, "127.0.0.1:8080", StatsSelection()))
    assert stats["subscriptions"]["s"]["msgBacklog"] == 15
    assert stats["oldestBacklogMessageAgeSeconds"] == -1
    assert "oldestBacklogMessageSubscriptionName" not in stats
    # Who asks for publish times is told that they are not to be had.
    with pytest.raises(LedgerError):
        brokers.world.run(
            stats_of(brokers.broker.io, topic, "127.0.0.1:8080", StatsSelection(earliest_time=True))
        )
