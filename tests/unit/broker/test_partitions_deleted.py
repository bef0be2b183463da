"""Partitioned topics that are deleted while clients come back to their partitions."""

from __future__ import annotations

from typing import Any

import pytest
from lived import NAME, Lived
from test_backlog_quotas import Wire

from magnetar.broker.admin.partitions import PartitionAdmin
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.producer import AccessMode, Producer
from magnetar.errors import InUse, ServiceNotReady, TopicNotFound

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
    delete, refused = lived.broker.topics.delete_topic, []

    async def comes_back(topic: Any) -> None:
        await delete(topic)
        try:
            await lived.broker.topics.load(topic.name, create=True)
        except TopicNotFound:
            refused.append(topic.name.partition_index)

    monkeypatch.setattr(lived.broker.topics, "delete_topic", comes_back)
    lived.world.run(lived.admin.delete(str(NAME), force=True))
    assert refused == list(range(COUNT))
    assert lived.left() == []
    with pytest.raises(TopicNotFound):
        lived.world.run(lived.admin.describe(str(NAME)))


def test_a_partition_that_is_just_being_made_goes_with_the_others() -> None:
    lived = Partitioned()
    gone = lived.topic(NAME.partition(1))
    lived.world.run(lived.broker.topics.delete_topic(gone))
    loop = lived.world.simulation.loop
    making = loop.create_task(lived.broker.topics.load(NAME.partition(1), create=True))
    deleting = loop.create_task(lived.admin.delete(str(NAME), force=True))
    lived.world.run(making)
    lived.world.run(deleting)
    assert lived.left() == []


def test_what_a_crash_left_of_a_deletion_is_deleted_by_the_next() -> None:
    lived = Partitioned()
    lived.world.run(lived.broker.namespaces.mark_deleted(NAME, deleted=True))
    lived.world.run(lived.broker.topics.delete_topic(lived.topic(NAME.partition(0))))
    for made in (
        lived.broker.topics.load(NAME.partition(0), create=True),
        lived.admin.create_missing(str(NAME)),
    ):
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
        patch.setattr(lived.broker.topics, "delete_topic", fails)
        with pytest.raises(ServiceNotReady):
            lived.world.run(lived.admin.delete(str(NAME), force=True))
    assert lived.world.run(lived.admin.describe(str(NAME)))["deleted"] is False
    assert lived.topic(NAME.partition(0))
    lived.world.run(lived.admin.delete(str(NAME), force=True))
    assert lived.left() == []


def test_a_producer_that_came_after_the_check_keeps_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Partitioned()
    mark, kept = lived.broker.namespaces.mark_deleted, lived.topic(NAME.partition(1))
    producer = Producer(
        kept,
        Wire(),
        1,
        "p",
        user_provided_name=False,
        epoch=0,
        access_mode=AccessMode.Shared,
        topic_epoch=None,
        metadata={},
        connected_ms=0,
    )

    async def late(name: Any, *, deleted: bool) -> None:
        if deleted:
            await kept.producers.add(producer)
        await mark(name, deleted=deleted)

    with monkeypatch.context() as patch:
        patch.setattr(lived.broker.namespaces, "mark_deleted", late)
        with pytest.raises(InUse):
            lived.world.run(lived.admin.delete(str(NAME), force=False))
    assert not kept.closing
    assert kept.producers
    assert lived.world.run(lived.admin.describe(str(NAME)))["deleted"] is False
    kept.producers.remove(producer)
    lived.world.run(lived.admin.delete(str(NAME), force=False))
    assert lived.left() == []


def test_schema_and_policies_go_while_clients_are_still_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Partitioned()
    delete, marked = lived.broker.schemas.delete, []

    async def seen(path: str) -> None:
        marked.append(await lived.broker.namespaces.is_being_deleted(NAME))
        await delete(path)

    monkeypatch.setattr(lived.broker.schemas, "delete", seen)
    lived.world.run(lived.admin.delete(str(NAME), force=False))
    assert marked == [True]


def test_the_schema_of_a_topic_is_gone_before_the_topic_can_be_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    delete, refused = lived.broker.schemas.delete, []

    async def comes_back(path: str) -> None:
        with pytest.raises(ServiceNotReady):
            await lived.broker.topics.load(NAME, create=True)
        refused.append(path)
        await delete(path)

    monkeypatch.setattr(lived.broker.schemas, "delete", comes_back)
    lived.world.run(lived.broker.topics.delete_topic(topic))
    assert refused == [NAME.schema_path]
