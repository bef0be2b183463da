"""Who gets a bundle."""

from __future__ import annotations

import pytest
from tests.unit.broker.load.cluster_of import below, bundle, cluster, report

from magnetar.broker.load.candidates import (
    Isolation,
    IsolationPolicy,
    Kinds,
    Rules,
    allowed,
    may_leave,
    preferred,
)
from magnetar.broker.load.placing import (
    Anywhere,
    LeastLongTermMessageRate,
    LeastResourceUsageWithWeight,
    RoundRobin,
)
from magnetar.broker.load.reports import BundleStats, Identity
from magnetar.broker.load.settings import LoadSettings
from magnetar.errors import InvalidRequest

A, B, C, NEW = bundle(0), bundle(1), bundle(2), bundle(9, "public/new")
SETTINGS = LoadSettings()
PERSISTENT = Kinds()


def isolation(
    primary: str = "one", secondary: str = "two", min_limit: int = 1, usage: int = 100
) -> Isolation:
    record = {
        "namespaces": ["public/isolated.*"],
        "primary": [primary],
        "secondary": [secondary],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": str(min_limit), "usage_threshold": str(usage)},
        },
    }
    return Isolation([IsolationPolicy.from_json("mine", record)])


def test_the_least_messages_a_second_over_long_win() -> None:
    load = cluster({"one:1": report({A: BundleStats(100)}), "two:1": report({B: BundleStats(90)})})
    choice = LeastLongTermMessageRate().choose(load.brokers, NEW, load, SETTINGS, below())
    assert choice is not None
    assert choice.broker_id == "two:1"
    assert "90.0" in choice.why
    load.give("two:1", NEW)
    again = LeastLongTermMessageRate().choose(load.brokers, C, load, SETTINGS, below())
    assert again is not None
    assert again.broker_id == "one:1", "what two:1 was given counts"


def test_an_overloaded_broker_gets_nothing_unless_all_are() -> None:
    idle_but_hot, busy = report({}, percent=86), report({A: BundleStats(1000)})
    load = cluster({"one:1": idle_but_hot, "two:1": busy})
    choice = LeastLongTermMessageRate().choose(load.brokers, NEW, load, SETTINGS, below())
    assert choice is not None
    assert choice.broker_id == "two:1"
    hot = cluster({"one:1": idle_but_hot, "two:1": idle_but_hot})
    chosen = {
        _broker(LeastLongTermMessageRate().choose(hot.brokers, NEW, hot, SETTINGS, below(n)))
        for n in range(20)
    }
    assert chosen == {"one:1", "two:1"}


def _broker(choice: object) -> str:
    broker_id = getattr(choice, "broker_id", None)
    assert isinstance(broker_id, str)
    return broker_id


def test_the_least_usage_is_smoothed() -> None:
    busy = report({A: BundleStats(10)}, percent=80)
    strategy = LeastResourceUsageWithWeight()
    load = cluster({"one:1": busy, "two:1": report({B: BundleStats(10)}, percent=40)})
    assert _broker(strategy.choose(load.brokers, NEW, load, SETTINGS, below())) == "two:1"
    load.take("one:1", report({A: BundleStats(10)}, percent=20, updated_ms=2), {})
    assert _broker(strategy.choose(load.brokers, NEW, load, SETTINGS, below())) == "two:1", (
        "it was 80 % a moment ago"
    )
    strategy.brokers_changed(["two:1"])
    assert _broker(strategy.choose(load.brokers, NEW, load, SETTINGS, below())) == "one:1"


def test_one_after_the_other() -> None:
    load = cluster({f"{name}:1": report({}) for name in "abc"})
    strategy = RoundRobin()
    given = [_broker(strategy.choose(load.brokers, NEW, load, SETTINGS, below())) for _ in range(4)]
    assert given == ["a:1", "b:1", "c:1", "a:1"]


@pytest.mark.parametrize(
    "strategy", [LeastLongTermMessageRate(), LeastResourceUsageWithWeight(), RoundRobin(), Anywhere()]
)
def test_nobody_is_chosen_of_nobody(strategy: LeastLongTermMessageRate) -> None:
    assert strategy.choose((), NEW, cluster({}), SETTINGS, below()) is None


def test_namespaces_are_spread() -> None:
    load = cluster(
        {"one:1": report({A: BundleStats(), B: BundleStats()}), "two:1": report({C: BundleStats(5000)})}
    )
    found = preferred(bundle(7), PERSISTENT, load, Rules(), SETTINGS)
    assert found.brokers == {"two:1"}
    assert "more than 1 bundles" in found.against["one:1"]
    assert preferred(A, PERSISTENT, load, Rules(), SETTINGS).brokers == {"one:1", "two:1"}, (
        "itself does not count"
    )


def test_a_broker_with_too_many_topics_is_left_out_while_others_have_fewer() -> None:
    full = report({A: BundleStats(topics=50_001)})
    load = cluster({"one:1": full, "two:1": report({})})
    assert preferred(NEW, PERSISTENT, load, Rules(), SETTINGS).brokers == {"two:1"}
    assert preferred(NEW, PERSISTENT, cluster({"one:1": full}), Rules(), SETTINGS).brokers == {"one:1"}


def test_brokers_that_serve_no_topics_of_a_kind_get_none() -> None:
    load = cluster(
        {
            "one:1": report({}, identity=Identity(non_persistent_topics=False)),
            "two:1": report({}, identity=Identity(persistent_topics=False)),
        }
    )
    assert allowed(NEW, Kinds(), load, Rules(), SETTINGS).brokers == {"one:1"}
    assert allowed(NEW, Kinds(False, True), load, Rules(), SETTINGS).brokers == {"two:1"}
    assert not allowed(NEW, Kinds(True, True), load, Rules(), SETTINGS).brokers


def test_brokers_of_another_load_manager_get_nothing() -> None:
    other = Identity(load_manager="org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl")
    found = allowed(NEW, PERSISTENT, cluster({"one:1": report({}, identity=other)}), Rules(), SETTINGS)
    assert found.against == {"one:1": "its load manager is ExtensibleLoadManagerImpl"}


def test_isolation_keeps_namespaces_on_their_brokers_and_others_away() -> None:
    load = cluster({f"{name}:1": report({}) for name in ("one", "two", "three")})
    rules = Rules(isolation())
    inside = bundle(1, "public/isolated-1")
    assert allowed(inside, PERSISTENT, load, rules, SETTINGS).brokers == {"one:1"}
    assert allowed(NEW, PERSISTENT, load, rules, SETTINGS).brokers == {"two:1", "three:1"}
    assert may_leave(inside, "one:1", PERSISTENT, load, rules, SETTINGS) == "no other broker may serve it"


def test_secondary_brokers_stand_in_for_too_few_primary_ones() -> None:
    load = cluster({f"{name}:1": report({}) for name in ("one", "two", "three")})
    inside = bundle(1, "public/isolated-1")
    assert allowed(inside, PERSISTENT, load, Rules(isolation(min_limit=2)), SETTINGS).brokers == {
        "one:1",
        "two:1",
    }
    hot = cluster({"one:1": report({}, percent=80), "two:1": report({})})
    assert allowed(inside, PERSISTENT, hot, Rules(isolation(usage=80)), SETTINGS).brokers == {
        "one:1",
        "two:1",
    }
    assert allowed(inside, PERSISTENT, hot, Rules(isolation(usage=81)), SETTINGS).brokers == {"one:1"}


@pytest.mark.parametrize(
    "change",
    [
        {"namespaces": []},
        {"primary": None},
        {"primary": ["("]},
        {"secondary": "two"},
        {"auto_failover_policy": {"policy_type": "other"}},
        {"auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "x"}}},
    ],
)
def test_policies_that_say_nothing_usable_are_refused(change: dict[str, object]) -> None:
    good: dict[str, object] = {
        "namespaces": ["a/b"],
        "primary": ["one"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    IsolationPolicy.from_json("good", good)
    with pytest.raises(InvalidRequest):
        IsolationPolicy.from_json("bad", good | change)


def test_namespaces_of_a_group_are_kept_apart_over_domains_and_brokers() -> None:
    first, second, third = (bundle(0, f"public/{name}") for name in ("x", "y", "z"))
    groups = {"public/x": "g", "public/y": "g", "public/z": "g"}
    domains = {"one:1": "d1", "two:1": "d1", "three:1": "d2"}
    load = cluster(
        {
            "one:1": report({first: BundleStats()}),
            "two:1": report({}),
            "three:1": report({}),
        }
    )
    near, far = Rules(groups=groups), Rules(domains=domains, groups=groups)
    over_domains = LoadSettings(failure_domains=True)
    assert preferred(second, PERSISTENT, load, near, SETTINGS).brokers == {"two:1", "three:1"}
    assert preferred(second, PERSISTENT, load, far, over_domains).brokers == {"three:1"}
    load.give("three:1", second)
    assert preferred(third, PERSISTENT, load, far, over_domains).brokers == {"two:1"}
    load.give("two:1", third)
    stays = may_leave(first, "one:1", PERSISTENT, load, near, SETTINGS)
    assert stays == "all other brokers serve more namespaces of its anti-affinity group"


def test_later_versions_are_preferred_where_all_can_be_compared() -> None:
    of = [("one:1", "4.0.8"), ("two:1", "4.0.10"), ("three:1", "4.0.10-SNAPSHOT")]
    load = cluster({broker: report({}, identity=Identity(version=version)) for broker, version in of})
    wanted = LoadSettings(later_versions=True)
    assert preferred(NEW, PERSISTENT, load, Rules(), wanted).brokers == {"two:1", "three:1"}
    load.take("one:1", report({}, identity=Identity(version="magnetar-0.1"), updated_ms=2), {})
    assert len(preferred(NEW, PERSISTENT, load, Rules(), wanted).brokers) == 3
