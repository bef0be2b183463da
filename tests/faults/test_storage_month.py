"""Thirty days of a broker's storage, with policies, traffic and crashes drawn at random."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from storage_lifetime import Lifetime, TopicModel, with_policies

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import BacklogQuota, Retention
from magnetar.broker.upkeep.backlog_quotas import EVICTION
from magnetar.naming.topic_name import TopicName

RUNS = int(os.environ.get("MAGNETAR_MONTHS", "4"))
DAY = 86_400.0
DAYS = 30

_RETENTIONS = st.one_of(
    st.just(Retention(0, 0)),
    st.just(Retention(-1, -1)),
    st.builds(Retention, st.sampled_from([-1, 30, 600, 4320]), st.sampled_from([-1, 1, 3])),
)
_QUOTAS = st.sampled_from([-1, -1, 1_000_000, 3_000_000]).map(
    lambda limit: BacklogQuota(limit, -1, EVICTION) if limit > 0 else BacklogQuota()
)
_POLICIES: st.SearchStrategy[EffectivePolicies] = st.builds(
    lambda retention, ttl, quota: with_policies(
        retention=retention, message_ttl_seconds=ttl, storage_quota=quota
    ),
    _RETENTIONS,
    st.sampled_from([0, 0, 3600, 86_400, 5 * 86_400]),
    _QUOTAS,
)
_STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 60), st.sampled_from([10, 2_000, 20_000])),
    st.tuples(st.just("interleave"), st.integers(1, 30), st.none()),
    st.tuples(st.just("acknowledge"), st.sampled_from("ab"), st.sampled_from([0.3, 0.7, 1.0, 1.0])),
    st.tuples(st.just("subscribe"), st.sampled_from("ab"), st.none()),
    st.tuples(st.just("unsubscribe"), st.sampled_from("ab"), st.none()),
    st.tuples(st.just("change"), _POLICIES, st.none()),
    st.tuples(st.just("crash"), st.booleans(), st.none()),
)


def lifetime(*policies: EffectivePolicies) -> Lifetime:
    """Two topics, each in a namespace of its own."""
    names = [TopicName.parse(f"persistent://public/n{number}/t") for number in range(2)]
    return Lifetime([TopicModel(*each) for each in zip(names, policies, strict=True)])


def interleave(life: Lifetime, count: int) -> None:
    """Small entries of one topic between large ones of the other."""
    for _ in range(count):
        life.publish(0, 1, 10)
        life.publish(1, 1, 20_000)


@settings(
    max_examples=RUNS,
    deadline=None,
    derandomize="MAGNETAR_MONTHS" not in os.environ,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(policies=st.tuples(_POLICIES, _POLICIES), draw=st.data())
def test_a_month(policies: tuple[EffectivePolicies, EffectivePolicies], draw: st.DataObject) -> None:
    life = lifetime(*policies)
    life.subscribe(0, "a")
    left = DAYS * DAY
    while left > 0:
        index = draw.draw(st.integers(0, 1))
        what, first, second = draw.draw(_STEPS)
        known = life.models[index].acknowledged
        if what == "publish":
            life.publish(index, first, second)
        elif what == "interleave":
            interleave(life, first)
        elif what == "acknowledge" and first in known:
            life.acknowledge(index, first, second)
        elif what == "subscribe":
            life.subscribe(index, first)
        elif what == "unsubscribe" and first in known:
            life.unsubscribe(index, first)
        elif what == "change":
            life.change(index, first)
        elif what == "crash":
            life.crash(cleanly=first)
        life.check()
        pause = draw.draw(st.sampled_from([60.0, 1800.0, 7 * 3600.0, 20 * 3600.0]))
        life.wait(pause)
        left -= pause


def test_small_entries_that_stay_do_not_keep_the_space_of_large_ones_that_went() -> None:
    life = lifetime(with_policies(retention=Retention(-1, -1)), with_policies(retention=Retention(0, 0)))
    for _ in range(DAYS):
        interleave(life, 15)
        life.wait(DAY)
    assert len(life.models[0].entries) == 15 * DAYS
    assert life.world.store.space().compactions.reclaimed_bytes > 2_000_000
    # What went before its segment was full is missed, too.
    assert life.world.store.space().stored_bytes < 1_000_000
