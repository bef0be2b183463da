"""The snapshots that wait for a subscription, and rounds of taking them."""

from __future__ import annotations

from itertools import pairwise

from magnetar.broker.replication.subscriptions.markers import TakenSnapshot
from magnetar.broker.replication.subscriptions.snapshots import PendingSnapshot, SnapshotCache


def cache(limit: int, *entry_ids: int) -> SnapshotCache:
    made = SnapshotCache(limit, lambda start, end: end[1] - start[1])
    for entry_id in entry_ids:
        made.add(TakenSnapshot(str(entry_id), (1, entry_id), {"west": (9, entry_id)}))
    return made


def entries(kept: SnapshotCache) -> list[int]:
    return [entry_id for _ledger_id, entry_id in kept.positions()]


def test_the_newest_that_was_passed_counts_and_the_older_ones_go() -> None:
    kept = cache(10, 3, 5, 9)
    assert kept.passed((1, 2)) is None
    passed = kept.passed((1, 8))
    assert passed is not None
    assert passed.local == (1, 5)
    assert entries(kept) == [9]


def test_one_that_is_met_twice_counts_once_and_order_does_not_matter() -> None:
    assert entries(cache(10, 5, 3, 5, 9, 3)) == [3, 5, 9]


def test_a_subscription_that_lags_finds_snapshots_all_along_its_way() -> None:
    kept = entries(cache(10, *range(1000)))
    assert len(kept) == 10
    assert kept[0] == 0
    assert kept[-1] == 999
    assert max(after - before for before, after in pairwise(kept)) < 400


def test_of_one_place_the_oldest_is_kept() -> None:
    assert entries(cache(1, 4, 5, 6)) == [4]
    assert entries(cache(2, 4, 5, 6)) == [4, 6]


def test_with_one_other_cluster_one_round_is_enough() -> None:
    pending = PendingSnapshot("id", ["west"], 0.0)
    assert not pending.answered("other", "west", (1, 1))
    assert not pending.answered("id", "north", (1, 1))
    assert pending.answered("id", "west", (1, 1))
    assert not pending.needs_second_round
    assert pending.positions == {"west": (1, 1)}


def test_with_more_the_positions_are_those_of_the_first_round() -> None:
    pending = PendingSnapshot("id", ["west", "north"], 0.0)
    assert not pending.answered("id", "west", (1, 1))
    assert not pending.answered("id", "west", (1, 2))
    assert pending.waits_for == {"north"}
    assert pending.answered("id", "north", (5, 1))
    assert pending.needs_second_round
    pending.begin_second_round("again")
    assert not pending.answered("id", "west", (1, 3)), "an answer of the first round that comes twice"
    assert not pending.answered("again", "north", (5, 2))
    assert pending.answered("again", "west", (1, 4))
    assert not pending.needs_second_round
    assert pending.positions == {"west": (1, 1), "north": (5, 1)}
