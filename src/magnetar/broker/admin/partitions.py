"""Partitioned topics, as operators steer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.service import BrokerService
from magnetar.errors import (
    AlreadyExists,
    BrokerError,
    Conflict,
    InUse,
    NotAllowed,
    PartitionCountRefused,
    PreconditionFailed,
    TopicNotFound,
    Unprocessable,
)
from magnetar.io.waiting import finished
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName

_MOST_PARTITIONS = 2**31 - 1
"""What Pulsar's records and clients have room for."""


async def check_room(broker: BrokerService, name: TopicName, more: int) -> None:
    """:raises PreconditionFailed: the namespace would have more topics than it may"""
    try:
        await broker.creation.check_room(name, more)
    except NotAllowed as error:
        raise PreconditionFailed(str(error)) from error


class PartitionAdmin:
    """Topics are given by their full names."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._namespaces = broker.namespaces

    async def count(self, topic: str, *, create: bool) -> int:
        """The number of partitions, 0 for a topic without.

        :param create: makes a topic that is missing, where the settings allow it
        :raises TopicNotFound: no such topic
        """
        name = self._broker.parse_topic(topic)
        if create:
            return await self._broker.creation.partitions_or_create(name)
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count and not await self._exists(name):
            raise TopicNotFound(f"Topic {name} not found")
        return count

    async def create(self, topic: str, partitions: int, properties: Mapping[str, str]) -> None:
        """Makes a partitioned topic and its partitions.

        :raises AlreadyExists: there is a topic of that name
        :raises PartitionCountRefused: below 1, or above ``maxNumPartitionsPerPartitionedTopic``
        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        self._check_count(partitions)
        await self._namespaces.check(name.namespace_name)
        if await self._namespaces.partitions(name) or await self._exists(name):
            raise AlreadyExists("This topic already exists")
        await check_room(self._broker, name, partitions)
        await self._namespaces.create_partitioned(name, partitions, properties)
        await self._make(name, range(partitions))

    async def _exists(self, name: TopicName) -> bool:
        return await self._broker.creation.exists(name)

    def _check_count(self, partitions: int) -> None:
        cap = self._broker.settings.max_partitions
        if partitions < 1:
            raise PartitionCountRefused("Number of partitions should be more than 0")
        if partitions > _MOST_PARTITIONS:
            raise PartitionCountRefused(f"{partitions} partitions are more than a client can be told of")
        if cap and partitions > cap:
            raise PartitionCountRefused(f"Number of partitions should be less than or equal to {cap}")

    async def _make(self, name: TopicName, indexes: Sequence[int]) -> None:
        """Makes partitions, each with the subscriptions of the first."""
        if not name.persistent:
            # They are there as long as somebody uses them.
            return
        subscriptions = await self._subscriptions(name)
        for index in indexes:
            made = await self._broker.create_topic(name.partition(index))
            for subscription, properties in subscriptions.items():
                await made.subscribe(subscription, (-1, -1), properties, durable=True, create=True)

    async def _subscriptions(self, name: TopicName) -> dict[str, dict[str, str]]:
        """Durable subscriptions of the first partition, with their properties."""
        first = name.partition(0)
        if not await self._exists(first):
            return {}
        topic = await self._broker.topic(first, create=False)
        return {s.name: dict(s.properties) for s in topic.subscriptions.values() if s.durable}

    async def update(self, topic: str, partitions: int, *, force: bool) -> None:
        """More partitions; new ones have the subscriptions of the others.

        :param force: also when partitions beyond the present count exist already
        :raises Conflict: it is not partitioned, or such partitions exist
        :raises Unprocessable: fewer than there are
        :raises PartitionCountRefused: above ``maxNumPartitionsPerPartitionedTopic``
        """
        name = self._broker.parse_topic(topic)
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count:
            raise Conflict(f"Topic {name} is not the partitioned topic.")
        if partitions < count:
            raise Unprocessable(
                f"Desired partitions {partitions} can't be less than the current partitions {count}."
            )
        self._check_count(partitions)
        if not force:
            for index in range(count, partitions):
                if await self._exists(name.partition(index)):
                    raise Conflict(
                        f"Already have partition {name.partition(index)} that is beyond the present "
                        f"{count} partitions"
                    )
        await check_room(self._broker, name, partitions - count)
        await self._namespaces.change_partitioned(name, partitions=partitions)
        await self._make(name, range(count, partitions))

    async def create_missing(self, topic: str) -> None:
        """Makes partitions that are missing.

        :raises TopicNotFound: there is no such partitioned topic
        """
        name = self._broker.parse_topic(topic)
        count = await self._count(name, f"Topic {name} does not exist")
        missing = [index for index in range(count) if not await self._exists(name.partition(index))]
        await self._make(name, missing)

    async def _count(self, name: TopicName, otherwise: str) -> int:
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count:
            raise TopicNotFound(otherwise)
        return count

    async def delete(self, topic: str, *, force: bool) -> None:
        """Deletes a partitioned topic and all partitions.

        :param force: also with producers or consumers
        :raises TopicNotFound: no such topic
        :raises InUse: it has producers or consumers
        """
        name = self._broker.parse_topic(topic)
        count = await self._count(name, f"Topic {name} not found.")
        partitions = [name.partition(index) for index in range(count)]
        existing = [p for p in partitions if await self._is_there(p)]
        topics = [await self._broker.topic(partition, create=False) for partition in existing]
        if not force and any(t.producers or t.consumer_count() for t in topics):
            raise InUse("Topic has active producers/subscriptions")
        # From here on no partition is made anew by clients that come back.
        await self._namespaces.mark_deleted(name, deleted=True)
        try:
            await self._delete_partitions(partitions)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError):
            await self._namespaces.mark_deleted(name, deleted=False)
            raise
        await self._namespaces.delete_partitioned(name)
        await self._broker.schemas.delete(name.schema_path)
        await self._broker.forget_policies(name)

    async def _delete_partitions(self, partitions: Sequence[TopicName]) -> None:
        for loading in self._broker.loading_in(partitions[0].namespace_name):
            # It may have begun to make one before.
            await finished(self._broker.io.loop, loading)
        for partition in partitions:
            if await self._is_there(partition):
                await self._broker.delete_topic(await self._broker.topic(partition, create=False))

    async def _is_there(self, partition: TopicName) -> bool:
        """Whether there is anything to delete of it."""
        if partition.persistent:
            return await self._exists(partition)
        return str(partition) in self._broker.topics

    async def terminate(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Ends all partitions for ever; answers the last position of each.

        :raises TopicNotFound: no such topic
        :raises NotAllowed: it is not partitioned
        """
        name = self._broker.parse_topic(topic)
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count:
            if not await self._exists(name):
                raise TopicNotFound(f"Topic {name} not found")
            raise NotAllowed(
                "Termination of a non-partitioned topic is not allowed using partitioned-terminate, "
                "please use terminate commands"
            )
        ends = {}
        for index in range(count):
            partition = await self._broker.persistent_topic(name.partition(index))
            ends[index] = await partition.terminate()
        return ends

    async def describe(self, topic: str) -> Mapping[str, Any]:
        """``PartitionedTopicMetadata`` as stored.

        :raises TopicNotFound: no such partitioned topic
        """
        name = self._broker.parse_topic(topic)
        await self._count(name, f"Partitioned Topic {name} not found")
        return await self._namespaces.partitioned(name)
