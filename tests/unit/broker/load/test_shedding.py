"""Which bundles leave, where they go, which are split."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.load.cluster_of import below, bundle, cluster, report
from tests.unit.broker.load.test_placing import isolation

from magnetar.broker.load.candidates import Kinds, Rules, allowed
from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.placing import (
    LeastLongTermMessageRate,
    LeastResourceUsageWithWeight,
    PlacementStrategy,
)
from magnetar.broker.load.planning import Placer
from magnetar.broker.load.reports import BundleStats, Identity
from magnetar.broker.load.settings import LoadSettings, ShedderSettings, SplitSettings
from magnetar.broker.load.shedding import (
    AvgShedder,
    OverloadShedder,
    Shedder,
    Split,
    ThresholdShedder,
    UniformLoadShedder,
    too_large,
    within_bounds,
)

MIB = 1024 * 1024
SETTINGS = LoadSettings()
HEARTBEAT = "pulsar/lab/one:8080/0x00000000_0xffffffff"


def busy(count: int, mib: float, first: int = 0, rate: float = 1000) -> dict[str, BundleStats]:
    return {bundle(first + n): BundleStats(rate, mib * MIB) for n in range(count)}


def names(shedder: Shedder, load: ClusterLoad, settings: LoadSettings = SETTINGS) -> list[str]:
    return [move.bundle for move in shedder.find(load, settings)]


def test_a_broker_above_the_average_gives_as_much_as_brings_it_down() -> None:
    load = cluster(
        {
            "one:1": report(busy(10, 20), percent=80),
            "two:1": report({}),
            "three:1": report(busy(1, 1, 20), percent=10),
        }
    )
    moves = ThresholdShedder().find(load, SETTINGS)
    # 80 % - 30 % on average - 10 % + 5 % of 200 MiB/s
    assert [move.bundle for move in moves] == [bundle(n) for n in range(5)]
    assert {move.source for move in moves} == {"one:1"}
    assert "usage 80.0 %, average 30.0 %: 90.0 MiB/s are to be moved" in moves[0].why


def test_history_counts_for_more_than_a_moment() -> None:
    calm = {"one:1": report(busy(10, 20), percent=30), "two:1": report(busy(1, 1, 20), percent=30)}
    load, shedder = cluster(calm), ThresholdShedder()
    assert not names(shedder, load)
    load.take("one:1", report(busy(10, 20), percent=100, updated_ms=2), {})
    assert not names(shedder, load), "30 % smoothed with one look at 100 % is 37 %"
    assert names(ThresholdShedder(), load)


def test_too_little_throughput_is_not_worth_a_move() -> None:
    load = cluster({"one:1": report(busy(10, 1), percent=90), "two:1": report({})})
    assert not names(ThresholdShedder(), load)
    little = LoadSettings(shed=ShedderSettings(min_throughput=MIB))
    assert names(ThresholdShedder(), load, little)


def test_an_idle_broker_is_reason_enough_where_it_is_wanted() -> None:
    reports = {f"{n}:1": report(busy(10, 30, 10 * n), percent=40) for n in range(5)}
    load = cluster(reports | {"idle:1": report({})})
    assert not names(ThresholdShedder(), load)
    wanted = LoadSettings(shed=ShedderSettings(lower_boundary=True))
    assert names(ThresholdShedder(), load, wanted) == [bundle(0)]


def test_bundles_that_belong_to_a_broker_stay_and_so_does_the_last_one() -> None:
    stats = {HEARTBEAT: BundleStats(1, 500 * MIB), bundle(0): BundleStats(1, 200 * MIB)}
    load = cluster({"one:1": report(stats, percent=95), "two:1": report({})})
    assert names(ThresholdShedder(), load) == [bundle(0)]
    assert names(OverloadShedder(), load) == [bundle(0)]
    alone = cluster({"one:1": report(busy(1, 500), percent=95), "two:1": report({})})
    for shedder in (ThresholdShedder(), OverloadShedder(), UniformLoadShedder()):
        assert not names(shedder, alone)


def test_an_overloaded_broker_gives_at_least_one() -> None:
    load = cluster({"one:1": report(busy(4, 10), percent=86), "two:1": report(busy(4, 10, 9), percent=84)})
    assert names(OverloadShedder(), load) == [bundle(0)]
    load.moved[bundle(0)] = 1.0
    assert names(OverloadShedder(), load) == [bundle(1)]


def test_the_most_messages_come_nearer_to_the_fewest() -> None:
    load = cluster({"one:1": report(busy(10, 0, rate=2000)), "two:1": report(busy(1, 0, 20, rate=1000))})
    moves = UniformLoadShedder().find(load, SETTINGS)
    # a fifth of 19,000 messages a second
    assert len(moves) == 2
    one = LoadSettings(shed=ShedderSettings(max_bundles=1))
    assert len(UniformLoadShedder().find(load, one)) == 1
    few = cluster({"one:1": report(busy(10, 0, rate=100)), "two:1": report(busy(1, 0, 20, rate=10))})
    assert not names(UniformLoadShedder(), few), "not worth a move"


def test_where_messages_are_even_bytes_count() -> None:
    load = cluster({"one:1": report(busy(10, 9)), "two:1": report(busy(10, 1, 20))})
    assert names(UniformLoadShedder(), load) == [bundle(0)]


def test_pairs_are_relieved_after_several_looks() -> None:
    load = cluster(
        {
            "one:1": report(busy(10, 10), percent=90),
            "two:1": report(busy(1, 1, 20), percent=10),
            "three:1": report(busy(5, 5, 30), percent=50),
        }
    )
    shedder = AvgShedder()
    assert not names(shedder, load)
    moves = shedder.find(load, SETTINGS)
    assert moves
    assert {(move.source, move.target) for move in moves} == {("one:1", "two:1")}
    assert sum(1000 for _ in moves) <= 0.2 * 9000
    assert not names(shedder, load), "it begins to count anew"


def test_a_small_difference_takes_more_looks() -> None:
    load = cluster({"one:1": report(busy(10, 10), percent=40), "two:1": report({}, percent=20)})
    shedder = AvgShedder()
    assert [bool(names(shedder, load)) for _ in range(8)] == [False] * 7 + [True]
    even = cluster({"one:1": report(busy(10, 10), percent=30), "two:1": report({}, percent=20)})
    for _ in range(7):
        shedder.find(load, SETTINGS)
    shedder.find(even, SETTINGS)
    assert not names(shedder, load), "the row was broken"


def test_bundles_above_a_bound_are_split_while_there_may_be_more() -> None:
    large = {
        bundle(0): BundleStats(topics=1001),
        bundle(1): BundleStats(consumers=600, producers=600, topics=2),
        bundle(2): BundleStats(40_000, topics=2),
        bundle(3): BundleStats(1, 101 * MIB, topics=2),
        bundle(4): BundleStats(40_000, topics=1),
        bundle(5): BundleStats(20_000, topics=900),
    }
    load = cluster({"one:1": report(large)})

    def find_splits(bounds: SplitSettings, counts: dict[str, int]) -> Sequence[Split]:
        return within_bounds(too_large(load, bounds), bounds, counts)

    counts = {"public/default": 6}
    assert [split.bundle for split in find_splits(SplitSettings(), counts)] == [bundle(n) for n in range(4)]
    assert find_splits(SplitSettings(), counts)[0].why == "1001 topics"
    assert len(find_splits(SplitSettings(max_bundles=8), counts)) == 2
    assert not find_splits(SplitSettings(), {}), "nobody knows how many there are"


SHEDDERS: list[Callable[[], Shedder]] = [ThresholdShedder, OverloadShedder, UniformLoadShedder, AvgShedder]
PLACEMENTS: list[Callable[[], PlacementStrategy]] = [LeastLongTermMessageRate, LeastResourceUsageWithWeight]

EAGER = LoadSettings(
    shed=ShedderSettings(
        min_throughput=1, min_unload_rate=1, min_unload_throughput=1, hits_high=1, hits_low=1
    )
)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterLoad:
    """Up to six brokers; usage follows from what goes through, and from what machines are like."""
    reports = {}
    number = 0
    for index in range(draw(st.integers(1, 6))):
        flows = draw(st.lists(st.integers(0, 200), max_size=8))
        stats = {}
        for flow in flows:
            namespace = draw(st.sampled_from(["public/default", "public/isolated-1", "public/other"]))
            stats[bundle(number, namespace)] = BundleStats(flow * 100, flow * MIB, topics=2)
            number += 1
        identity = Identity(persistent_topics=draw(st.booleans()), non_persistent_topics=draw(st.booleans()))
        percent = min(100.0, sum(flows) * draw(st.sampled_from([0.05, 0.2])))
        name = ("one", "two", "three", "four", "five", "six")[index]
        reports[f"{name}:1"] = report(stats, percent, identity)
    return cluster(reports)


def planned(
    load: ClusterLoad, shedder: Shedder, placement: PlacementStrategy, seed: int
) -> list[tuple[str, str, str]]:
    placer = Placer(load, Rules(isolation(min_limit=2)), EAGER, placement, below(seed))
    plan = placer.plan(shedder.find(load, EAGER), lambda _: Kinds())
    return [(move.bundle, move.source, move.target or "") for move in plan.moves]


@pytest.mark.parametrize("shedder", SHEDDERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
@settings(max_examples=40, deadline=None)
@given(load=clusters(), seed=st.integers(0, 5))
def test_nothing_goes_where_policies_forbid_it_and_every_move_gains(
    shedder: Callable[[], Shedder], placement: Callable[[], PlacementStrategy], load: ClusterLoad, seed: int
) -> None:
    rules = Rules(isolation(min_limit=2))
    may = {name: allowed(name, Kinds(), load, rules, EAGER).brokers for name in load.bundles}
    traffic = {
        broker_id: [broker.report.total.rate, broker.report.total.throughput, broker.report.resources.most]
        for broker_id, broker in load.brokers.items()
    }
    for name, source, target in planned(load, shedder(), placement(), seed):
        assert target in may[name]
        assert target != source
        short = load.bundles[name].short
        giver, taker = traffic[source], traffic[target]
        per_byte = (taker if taker[1] and taker[2] else giver)[2] / (
            (taker if taker[1] and taker[2] else giver)[1] or 1
        )
        cost = [short.rate, short.throughput, short.throughput * per_byte]
        # In the order of the product, or rounding would decide between equal loads.
        relief = [short.rate, short.throughput, short.throughput * (giver[2] / (giver[1] or 1))]
        assert any(taker[n] + cost[n] < giver[n] for n in range(3)), "it would only move the trouble"
        traffic[source] = [giver[n] - relief[n] for n in range(3)]
        traffic[target] = [taker[n] + cost[n] for n in range(3)]


@pytest.mark.parametrize("shedder", SHEDDERS)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=st.integers(0, 5))
def test_equal_load_and_equal_chance_give_equal_moves(
    shedder: Callable[[], Shedder], data: st.DataObject, seed: int
) -> None:
    load = data.draw(clusters())
    again = cluster({broker_id: broker.report for broker_id, broker in reversed(load.brokers.items())})
    first = planned(load, shedder(), LeastLongTermMessageRate(), seed)
    assert planned(again, shedder(), LeastLongTermMessageRate(), seed) == first
