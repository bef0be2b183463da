"""Partitioned topics that are deleted while clients come back to their partitions."""

from __future__ import annotations

from typing import Any

import pytest
from lived import NAME, Lived

from magnetar.broker.admin.partitions import PartitionAdmin
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.errors import ServiceNotReady, TopicNotFound

COUNT = 3


class Partitioned(Lived):
    def __init__(self) -> None:
        super().__init__(EffectivePolicies())
        self.admin = PartitionAdmin(self.broker)
        self.world.run(self.admin.create(str(NAME), COUNT, {}))

    def left(self) -> list[str]:
        return self.world.run(self.broker.namespaces.persistent_topics(NAME.namespace_name))


def test_a_client_that_comes_back_meanwhile_does_not_make_its_partition_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived = Partitioned()
    delete, refused = lived.broker.delete_topic, []

    async def comes_back(topic: Any) -> None:
        await delete(topic)
        try:
            await lived.broker.topic(topic.name, create=True)
        except TopicNotFound:
            refused.append(topic.name.partition_index)

    monkeypatch.setattr(lived.broker, "delete_topic", comes_back)
    lived.world.run(lived.admin.delete(str(NAME), force=True))
    assert refused == list(range(COUNT))
    assert lived.left() == []
    with pytest.raises(TopicNotFound):
        lived.world.run(lived.admin.describe(str(NAME)))


def test_a_partition_that_is_just_being_made_goes_with_the_others() -> None:
    lived = Partitioned()
    gone = lived.topic(NAME.partition(1))
    lived.world.run(lived.broker.delete_topic(gone))
    loop = lived.world.simulation.loop
    making = loop.create_task(lived.broker.topic(NAME.partition(1), create=True))
    deleting = loop.create_task(lived.admin.delete(str(NAME), force=True))
    lived.world.run(making)
    lived.world.run(deleting)
    assert lived.left() == []


def test_what_a_crash_left_of_a_deletion_is_deleted_by_the_next() -> None:
    lived = Partitioned()
    lived.world.run(lived.broker.namespaces.mark_deleted(NAME, deleted=True))
    lived.world.run(lived.broker.delete_topic(lived.topic(NAME.partition(0))))
    for made in (lived.broker.topic(NAME.partition(0), create=True), lived.admin.create_missing(str(NAME))):
        with pytest.raises(TopicNotFound):
            lived.world.run(made)
    assert lived.world.run(lived.admin.describe(str(NAME)))["deleted"] is True
    lived.world.run(lived.admin.delete(str(NAME), force=False))
    assert lived.left() == []
    assert lived.topic(NAME.partition(0))


def test_a_deletion_that_fails_leaves_a_topic_that_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Partitioned()

    async def fails(_topic: Any) -> None:
        raise ServiceNotReady("not now")

    with monkeypatch.context() as patch:
        patch.setattr(lived.broker, "delete_topic", fails)
        with pytest.raises(ServiceNotReady):
            lived.world.run(lived.admin.delete(str(NAME), force=True))
    assert lived.world.run(lived.admin.describe(str(NAME)))["deleted"] is False
    assert lived.topic(NAME.partition(0))
    lived.world.run(lived.admin.delete(str(NAME), force=True))
    assert lived.left() == []
