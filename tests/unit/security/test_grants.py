"""What was granted to whom: of a namespace, of a topic and its partitions, by patterns of roles."""

from __future__ import annotations

import pytest

from magnetar.naming.topic_name import TopicName
from magnetar.security.rules import NamespaceGrants, actions_of, actions_on, fits


@pytest.mark.parametrize(
    ("pattern", "role", "stands_for"),
    [
        ("*", "anybody", True),
        ("app-*", "app-1", True),
        ("app-*", "app-", True),
        ("app-*", "app", False),
        ("app-*", "my-app-1", False),
        ("*-app", "my-app", True),
        ("*-app", "my-app-1", False),
        ("a*p", "app", False),
        ("*pp*", "apple", False),
        ("app", "app", False),
    ],
)
def test_a_pattern_has_its_star_at_one_end(pattern: str, role: str, stands_for: bool) -> None:
    assert fits(pattern, role) is stands_for


def topic(name: str) -> TopicName:
    return TopicName.parse(name)


OF_BOTH = NamespaceGrants(
    of_namespace={"reader": frozenset({"consume"}), "app-*": frozenset({"produce"})},
    of_topics={
        "persistent://t/n/orders": {"reader": frozenset({"produce"}), "*-shop": frozenset({"consume"})},
        "persistent://t/n/single-partition-1": {"reader": frozenset({"functions"})},
        "persistent://t/c/n/old": {"reader": frozenset({"produce"})},
    },
)


def test_what_a_topic_grants_comes_on_top_of_its_namespace() -> None:
    assert actions_on(OF_BOTH, topic("persistent://t/n/orders"), "reader", wildcards=False) == {
        "consume",
        "produce",
    }
    assert actions_on(OF_BOTH, topic("persistent://t/n/other"), "reader", wildcards=False) == {"consume"}
    assert actions_of(OF_BOTH, "reader", wildcards=False) == {"consume"}
    assert actions_of(OF_BOTH, "", wildcards=False) == set()


def test_a_partition_is_granted_what_its_topic_is_and_not_the_other_way() -> None:
    partition = topic("persistent://t/n/orders-partition-3")
    assert actions_on(OF_BOTH, partition, "reader", wildcards=False) == {"consume", "produce"}
    own = topic("persistent://t/n/single-partition-1")
    assert "functions" in actions_on(OF_BOTH, own, "reader", wildcards=False)
    assert "functions" not in actions_on(OF_BOTH, topic("persistent://t/n/single"), "reader", wildcards=False)
    sibling = topic("persistent://t/n/single-partition-2")
    assert "functions" not in actions_on(OF_BOTH, sibling, "reader", wildcards=False)


def test_a_permission_is_of_one_domain_and_one_name() -> None:
    for name in (
        "non-persistent://t/n/orders",
        "persistent://t/n/orders-partition-x",
        "persistent://t/n/Orders",
        "persistent://t/n/orders-partition-3-partition-1",
    ):
        assert actions_on(OF_BOTH, topic(name), "reader", wildcards=False) == {"consume"}, name


def test_a_legacy_name_is_another_topic_than_one_without_a_cluster() -> None:
    assert "produce" in actions_on(OF_BOTH, topic("persistent://t/c/n/old"), "reader", wildcards=False)
    assert "produce" not in actions_on(OF_BOTH, topic("persistent://t/n/old"), "reader", wildcards=False)
    partition = topic("persistent://t/c/n/old-partition-0")
    assert "produce" in actions_on(OF_BOTH, partition, "reader", wildcards=False)


def test_patterns_count_only_where_they_are_switched_on() -> None:
    orders = topic("persistent://t/n/orders")
    assert actions_on(OF_BOTH, orders, "app-7", wildcards=True) == {"produce"}
    assert actions_on(OF_BOTH, orders, "web-shop", wildcards=True) == {"consume"}
    assert actions_on(OF_BOTH, orders, "app-shop", wildcards=True) == {"produce", "consume"}
    assert actions_on(OF_BOTH, orders, "app-7", wildcards=False) == set()
    # A role that is called like the pattern is the one that was named.
    assert actions_on(OF_BOTH, orders, "app-*", wildcards=False) == {"produce"}
