"""A question about all partitions while one of them is unloaded."""

from __future__ import annotations

from array import array

import pytest
from test_namespace_admin import Mine

from magnetar.errors import ServiceNotReady
from magnetar.managed_ledger.position import EARLIEST
from magnetar.naming.topic_name import TopicName

NAME = TopicName.parse("persistent://mine/n/t")


def _unloading(monkeypatch: pytest.MonkeyPatch) -> Mine:
    """With two partitions, of which the first one is unloaded each time when the second one is loaded."""
    mine = Mine()
    mine.run(mine.admin.partitions.create(str(NAME), 2, {}))
    first, second = (mine.topic(NAME.partition(index)) for index in range(2))
    for number, each in enumerate((first, second)):
        subscription = f"s{number}" if number else "s"
        mine.run(each.subscriptions.subscribe(subscription, EARLIEST, {"k": "v"}, durable=True, create=True))
        each.managed_ledger.append(b"12345", array("q", [0]), array("q", [5]), 1, 5, None)
    load = mine.broker.topics.load

    async def unloading(name: TopicName, *, create: bool) -> object:
        found = await load(name, create=create)
        if name == second.name:
            await mine.broker.topics.unload_topic(first)
        return found

    monkeypatch.setattr(mine.broker.topics, "load", unloading)
    return mine


def test_answers_about_a_partition_that_is_unloaded_meanwhile_count(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _unloading(monkeypatch)
    admin, topic = mine.admin, str(NAME)
    assert mine.run(admin.subscriptions.names(topic)) == ["s", "s1"]
    assert mine.run(admin.subscriptions.properties(topic, "s")) == {"k": "v"}
    sizes = mine.run(admin.backlogs.estimate(topic))
    assert (sizes["storageSize"], sizes["totalMessages"], sizes["messageBacklog"]) == (10, 2, 2)


def test_a_partition_that_is_unloaded_meanwhile_is_not_taken_for_one_without_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = _unloading(monkeypatch)
    with pytest.raises(ServiceNotReady):
        mine.run(mine.admin.backlogs.expire_all(str(NAME), 10))
