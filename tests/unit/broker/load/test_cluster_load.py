"""What a leader knows of its cluster's load."""

from __future__ import annotations

from tests.unit.broker.load.cluster_of import bundle, cluster, report

from magnetar.broker.load.cluster_load import ClusterLoad, belongs_to_a_broker
from magnetar.broker.load.reports import BundleStats

A, B, C = bundle(0), bundle(1), bundle(2, "public/other")


def test_a_report_taken_twice_is_one_sample() -> None:
    load = cluster({"one:1": report({A: BundleStats(100)})})
    load.take("one:1", report({A: BundleStats(100)}), {})
    assert load.bundles[A].long.samples == 1
    load.take("one:1", report({A: BundleStats(200)}, updated_ms=2), {})
    assert load.bundles[A].long.samples == 2
    assert load.brokers["one:1"].rate() == 150


def test_what_a_broker_was_given_counts_until_somebody_tells_of_it() -> None:
    load = cluster({"one:1": report({A: BundleStats(100)}), "two:1": report({})})
    load.give("two:1", B)
    assert load.brokers["two:1"].rate() == 100, "what is assumed of a bundle that nobody knows"
    assert load.brokers["two:1"].namespaces == {"public/default": 1}
    load.take("one:1", report({A: BundleStats(100), B: BundleStats(1)}, updated_ms=2), {})
    assert load.brokers["two:1"].rate() == 0
    assert not load.brokers["two:1"].namespaces["public/default"]
    load.give("two:1", C)
    load.take("two:1", report({}, updated_ms=2), {})
    assert not load.brokers["two:1"].pending, "it has told since that it has not got it"


def test_a_bundle_given_again_is_with_one_broker() -> None:
    load = cluster({"one:1": report({}), "two:1": report({})})
    load.give("one:1", A)
    load.give("two:1", A)
    assert not load.brokers["one:1"].pending
    assert list(load.brokers["two:1"].pending) == [A]


def test_histories_last_while_somebody_tells_of_a_bundle() -> None:
    load = cluster({"one:1": report({A: BundleStats(5)}), "two:1": report({B: BundleStats(5)})})
    load.take("one:1", report({}, updated_ms=2), {})
    load.take("two:1", report({A: BundleStats(7), B: BundleStats(5)}, updated_ms=2), {})
    assert load.bundles[A].long.samples == 2, "it moved, with its history"
    assert not load.drop_unused()
    assert set(load.keep_only(["one:1"])) == {"two:1"}
    assert set(load.drop_unused()) == {A, B}
    assert not load.bundles


def test_bundles_that_try_a_broker_stay_with_it() -> None:
    assert belongs_to_a_broker("pulsar/lab/127.0.0.1:18081/0x00000000_0xffffffff")
    assert belongs_to_a_broker("pulsar/127.0.0.1:18081/0x00000000_0xffffffff")
    assert belongs_to_a_broker("sla-monitor/lab/127.0.0.1:18081/0x00000000_0xffffffff")
    assert not belongs_to_a_broker("pulsar/system/0x00000000_0xffffffff")
    assert not belongs_to_a_broker("public/default/0x00000000_0xffffffff")


def test_bundles_moved_of_late_are_not_moved_again() -> None:
    load = cluster({"one:1": report({A: BundleStats(5), B: BundleStats(5)})})
    load.moved = {A: 10.0}
    assert [name for name, _ in load.movable("one:1")] == [B]
    load.forgive(11.0)
    assert [name for name, _ in load.movable("one:1")] == [A, B]


def test_nobody_knows_of_bundles_at_first() -> None:
    assert list(ClusterLoad().unknown(report({A: BundleStats()}))) == [A]
