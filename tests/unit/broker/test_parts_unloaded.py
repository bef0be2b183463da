"""A question about all partitions while one of them is unloaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from test_namespace_admin import Mine

from magnetar.errors import ServiceNotReady
from magnetar.managed_ledger.position import EARLIEST
from magnetar.naming.topic_name import TopicName

NAME = TopicName.parse("persistent://mine/n/t")

ASKED: dict[str, Callable[[Mine], Awaitable[object]]] = {
    "names": lambda mine: mine.admin.subscriptions.names(str(NAME)),
    "properties": lambda mine: mine.admin.subscriptions.properties(str(NAME), "s"),
    "estimate": lambda mine: mine.admin.backlogs.estimate(str(NAME)),
    "expire": lambda mine: mine.admin.backlogs.expire_all(str(NAME), 10),
}


@pytest.mark.parametrize("question", list(ASKED))
def test_a_partition_that_is_unloaded_meanwhile_is_not_taken_for_one_without_subscriptions(
    question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Mine()
    mine.run(mine.admin.partitions.create(str(NAME), 2, {}))
    first, second = (mine.topic(NAME.partition(index)) for index in range(2))
    for each in (first, second):
        mine.run(each.subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=True))
    load = mine.broker.topics.load

    async def unloading(name: TopicName, *, create: bool) -> object:
        found = await load(name, create=create)
        if name == second.name:
            await mine.broker.topics.unload_topic(first)
        return found

    monkeypatch.setattr(mine.broker.topics, "load", unloading)
    with pytest.raises(ServiceNotReady):
        mine.run(ASKED[question](mine))
