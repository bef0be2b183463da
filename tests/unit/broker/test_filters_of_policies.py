"""Entry filters that namespaces and topics name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from peers import TOPIC, Brokers
from test_dispatch_rates import EXCLUSIVE, KEY_SHARED, SHARED, UNBOUNDED, sent, store, take

from magnetar.broker.admin.all import Admin
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import (
    EntryFilter,
    FilterContext,
    FilteredEntry,
    FilterResult,
    UnknownFilter,
)
from magnetar.broker.policies.values import DispatchRate
from magnetar.errors import InvalidRequest


class Odd:
    """Only entries with odd ids."""

    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult:
        return FilterResult.ACCEPT if entry.position[1] % 2 else FilterResult.REJECT


class Nothing:
    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult:
        return FilterResult.REJECT


FOUND: dict[str, EntryFilter] = {"odd": Odd(), "nothing": Nothing()}


def find(names: Sequence[str]) -> Sequence[EntryFilter]:
    for name in names:
        if name not in FOUND:
            raise UnknownFilter(name)
    return [FOUND[name] for name in names]


def brokers(names: tuple[str, ...] = (), *, override: bool = True, own: str = "") -> Brokers:
    filters = (FOUND[own],) if own else ()
    made = Brokers(
        policies=replace(UNBOUNDED, entry_filters=names), dispatch=DispatchSettings(filters=filters)
    )
    topic = replace(made.broker.settings.topic, override_filters=override, find_filters=find)
    made.broker.settings = replace(made.broker.settings, topic=topic)
    return made


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_a_policy_s_filter_is_asked_instead_of_the_broker_s(kind: int) -> None:
    world = brokers(("odd",), own="nothing")
    take(world.subscribed("s", kind))
    store(world, 10)
    world.until(lambda: sent(world) == 5)


def test_where_policies_may_name_none_the_broker_s_counts() -> None:
    world = brokers(("odd",), override=False, own="nothing")
    take(world.subscribed("s", SHARED))
    store(world, 10)
    world.world.wait(0.5)
    assert sent(world) == 0


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_a_changed_policy_counts_for_what_is_sent_next(kind: int) -> None:
    world = brokers()
    take(world.subscribed("s", kind))
    store(world, 10)
    world.until(lambda: sent(world) == 10)
    topic = world.broker.topics.loaded[TOPIC]
    topic.apply_policies(replace(topic.policies, entry_filters=("odd",)))
    store(world, 10)
    world.until(lambda: sent(world) == 15)
    topic.apply_policies(replace(topic.policies, entry_filters=()))
    store(world, 10)
    world.until(lambda: sent(world) == 25)


def test_a_filter_that_is_gone_is_told_and_the_broker_s_counts(caplog: pytest.LogCaptureFixture) -> None:
    world = brokers(("gone",))
    take(world.subscribed("s", SHARED))
    store(world, 10)
    world.until(lambda: sent(world) == 10)
    assert "cannot use the entry filters of the topic" in caplog.text


def test_only_filters_that_are_there_can_be_named() -> None:
    world = brokers()
    admin = Admin(world.broker).namespaces
    given = {"entryFilterNames": "odd, nothing"}
    world.world.run(admin.set_policy("public/default", "entryFilters", given, per_cluster=False, key=None))
    with pytest.raises(InvalidRequest, match="Entry filter 'other' not found"):
        world.world.run(
            admin.set_policy(
                "public/default",
                "entryFilters",
                {"entryFilterNames": "odd,other"},
                per_cluster=False,
                key=None,
            )
        )


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@pytest.mark.parametrize(("charged", "least", "most"), [(False, 60, 60), (True, 25, 31)])
def test_what_is_rejected_counts_for_rates_where_it_is_said(
    kind: int, charged: bool, least: int, most: int
) -> None:
    world = Brokers(
        policies=replace(UNBOUNDED, subscription_dispatch_rate=DispatchRate(10)),
        dispatch=DispatchSettings(filters=(Odd(),), throttle_filtered=charged),
    )
    take(world.subscribed("s", kind))
    store(world, 300)
    world.world.wait(5.0)
    assert least - 2 <= sent(world) <= most + 2
