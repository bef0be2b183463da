"""The choice of the active consumer; what is expected was asked of Apache Pulsar 4.0.8."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.broker.dispatch.single import in_order, pick_active

TOPIC = "persistent://public/default/t-partition-3"
PICKED = ["x1", "x2", "x1", "x2", "x1", "x3", "x2", "x3"]


def consumer(name: str, priority: int = 0) -> Any:
    return cast(Any, SimpleNamespace(name=name, priority=priority))


@pytest.mark.parametrize("number", range(8))
def test_by_topic_name(number: int) -> None:
    consumers = in_order([consumer(name) for name in ("x3", "x1", "x2")])
    topic = f"persistent://public/default/subs-e5f828h{number}"
    for partition, hashing in ((-1, False), (-1, True), (4, True)):
        picked = pick_active(consumers, topic, partition, consistent_hashing=hashing)
        assert picked.name == PICKED[number]


def test_by_partition_among_the_best_priority() -> None:
    low = consumer("a", 1)
    consumers = in_order([consumer("c"), low, consumer("B"), consumer("b")])
    assert [c.name for c in consumers] == ["B", "b", "c", "a"]
    picks = [pick_active(consumers, TOPIC, n, consistent_hashing=False).name for n in range(7)]
    assert picks == ["B", "b", "c", "B", "b", "c", "B"]


def test_names_are_ordered_as_java_does() -> None:
    """By UTF-16 units: a surrogate pair comes before U+FFxx."""
    assert [c.name for c in in_order([consumer("\uff01"), consumer("\U0001f600")])] == [
        "\U0001f600",
        "\uff01",
    ]
