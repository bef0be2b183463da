"""What goes wrong with one of many ends with it: the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from lived import Lived

from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy, Throttle
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import DispatchRate
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import LedgerError
from magnetar.naming.topic_name import TopicName


class Wheel:
    """Timers that go off when they are told to."""

    def __init__(self) -> None:
        self.planned: list[Callable[[], None]] = []

    def schedule(self, _seconds: float, work: Callable[[], None]) -> Wheel:
        self.planned.append(work)
        return self

    def cancel(self) -> None:
        self.planned.clear()


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_who_waits_for_a_limit_is_served_though_another_one_fails() -> None:
    wheel, clock, served = Wheel(), Clock(), list[str]()
    limiter = DispatchLimiter(cast(TimerWheel, wheel), cast(Any, clock), LimitedBy.TOPIC, DispatchRate(1))

    def fails() -> None:
        raise RuntimeError("a dispatcher that is broken")

    for go_on in (fails, lambda: served.append("other")):
        throttle = Throttle(cast(Any, clock), go_on, lambda: False, lambda _error: None)
        throttle.use([limiter])
        limiter.take(1, 0)
        assert not throttle.admits()
    clock.now = 10.0
    for _ in range(2):
        work = wheel.planned.pop()
        try:
            work()
        except RuntimeError:
            continue
    assert served == ["other"]


def test_other_topics_go_by_changed_policies_where_one_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(EffectivePolicies())
    topics = [lived.topic(TopicName.parse(f"persistent://public/default/t{number}")) for number in range(3)]

    async def fails() -> None:
        raise LedgerError("what was published last cannot be read")

    monkeypatch.setattr(topics[0], "prepare", fails)
    with pytest.raises(LedgerError):
        lived.world.run(
            lived.broker.policies.change_namespace(
                topics[0].name.namespace_name, lambda record: record.update(max_producers_per_topic=2)
            )
        )
    assert [topic.policies.max_producers for topic in topics] == [2, 2, 2]


def test_a_changed_topic_is_applied_to_its_partitions_and_to_no_other_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived = Lived(EffectivePolicies())
    changed = TopicName.parse("persistent://public/default/t")
    names = ("t", "t-partition-0", "t-partition-10", "t-partition-x", "t2", "u")
    applied: list[str] = []
    for local in names:
        topic = lived.topic(TopicName.parse(f"persistent://public/default/{local}"))
        monkeypatch.setattr(topic, "apply_policies", lambda _policies, local=local: applied.append(local))
    lived.world.run(lived.broker.policies.tell(changed.namespace_name, changed))
    assert applied == ["t", "t-partition-0", "t-partition-10"]
    applied.clear()
    lived.world.run(lived.broker.policies.tell(changed.namespace_name, None))
    assert applied == [*names]
