"""Administration of subscriptions, and explanations of why a topic or subscription receives nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.admin.partitions import marked
from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.service import BrokerService
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription, seek_to
from magnetar.broker.topics.any_topic import still_open
from magnetar.broker.topics.entries import first_published_at
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    AlreadyExists,
    InUse,
    InvalidRequest,
    NotAllowed,
    PersistentTopicRequired,
    SubscriptionNotFound,
)
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST, LATEST, LATEST_ID, Position
from magnetar.managed_ledger.side_ledgers import users_own
from magnetar.naming.topic_name import TopicName, subscription_piece
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_entry

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator


Json = Mapping[str, object]


class SubscriptionAdmin:
    """Administration of the subscriptions of topics. Topics are given by their full names. Operations on a
    partitioned topic apply to each partition.
    """

    def __init__(self, broker: BrokerService, topics: TopicAdmin) -> None:
        self._broker = broker
        self._topics = topics

    async def _each(self, topic: str, subscription: str) -> Sequence[Subscription]:
        return [_with_cursor(found) for found in await self._any(topic, subscription)]

    async def _consuming(self, topic: str, name: str) -> Sequence[Subscription | Replicator]:
        """Returns the subscription of that name, or the replicator whose cursor has that name, per partition.

        :raises SubscriptionNotFound: no such subscription
        """
        parts = [part for part in await self._topics.existing_parts(topic) if isinstance(part, Topic)]
        replicators = [r for part in parts for r in part.all_replicators() if r.name == name]
        return replicators or await self._each(topic, name)

    async def _any(self, topic: str, subscription: str) -> Sequence[Subscription | NonPersistentSubscription]:
        found = [part.subscriptions.get(subscription) for part in await self._topics.existing_parts(topic)]
        there = [s for s in found if s is not None]
        if not there:
            raise missing(topic, subscription)
        return there

    async def one(self, topic: str, subscription: str, refusal: str) -> Subscription:
        """Returns a subscription of a persistent topic that is not partitioned.

        :param refusal: error text for a partitioned topic
        :raises NotAllowed: the topic is partitioned
        :raises TopicNotFound: no such topic
        :raises SubscriptionNotFound: no such subscription
        """
        found = await self._one_consuming(topic, subscription, refusal)
        if not isinstance(found, Subscription):
            raise missing(topic, subscription)
        return found

    async def _one_consuming(self, topic: str, name: str, refusal: str) -> Subscription | Replicator:
        """Returns a subscription like :meth:`one`, or the replicator whose cursor has the given name."""
        if await self._broker.namespaces.partitions(self._broker.parse_topic(topic)):
            raise NotAllowed(refusal)
        found = (await self._topics.persistent(topic)).consuming_as(name)
        if found is None:
            raise missing(topic, name)
        return found

    async def names(self, topic: str) -> Sequence[str]:
        """Returns the names of a topic's subscriptions.

        :raises TopicNotFound: no such topic
        """
        found, _ = await self._topics.of_each(topic, self._names, "/subscriptions")
        return sorted({name for names in found.values() for name in names})

    async def _names(self, name: TopicName) -> Sequence[str]:
        return list((await self._broker.topics.load(name, create=False)).subscriptions)

    async def create(
        self,
        topic: str,
        subscription: str,
        start: Position | None,
        properties: Mapping[str, str],
        *,
        replicated: bool = False,
    ) -> None:
        """Creates a durable subscription, and the topic if it is missing and may be created.

        :param start: the first position to deliver; None: messages published from now on
        :param replicated: make it a replicated subscription
        :raises AlreadyExists: the subscription exists; for a partitioned topic: on all its partitions
        :raises NotAllowed: a limit is reached, or a position is given for a partitioned topic
        :raises InvalidRequest: the topic is non-persistent
        """
        name = self._broker.parse_topic(topic)
        if not name.persistent:
            raise InvalidRequest(
                "Create subscription on non-persistent topic can only be done through client"
            )
        position = _start(start)
        count = await self._broker.topics.creation.partitions_or_create(name)
        if count and position not in (EARLIEST, LATEST):
            raise NotAllowed("Create subscription at a position is not allowed for a partitioned topic")
        names = [name.partition(index) for index in range(count)] if count else [name]
        topics = still_open([await self._broker.topics.load(part, create=True) for part in names])
        if all(subscription in found.subscriptions for found in topics):
            raise AlreadyExists("Subscription already exists for topic")
        for found in topics:
            made = await found.subscriptions.subscribe(
                subscription, position, properties, durable=True, create=True
            )
            await marked(made, replicated=replicated)

    async def delete(self, topic: str, subscription: str, *, force: bool) -> None:
        """Deletes a subscription.

        :param force: disconnect the subscription's consumers instead of raising InUse
        :raises SubscriptionNotFound: no such subscription
        :raises InUse: the subscription has consumers
        """
        found = await self._any(topic, subscription)
        if not force and any(s.consumers for s in found):
            raise InUse("Subscription has active connected consumers")
        for one in found:
            one.disconnect_all()
            await one.topic.subscriptions.unsubscribe(subscription)

    async def properties(self, topic: str, subscription: str) -> Mapping[str, str]:
        """Returns the properties of a subscription.

        :raises SubscriptionNotFound: no such subscription
        """
        path = f"/subscription/{subscription_piece(subscription)}/properties"
        found, _ = await self._topics.of_each(topic, partial(self._properties, subscription), path)
        for properties in found.values():
            return dict(properties)
        raise missing(topic, subscription)

    async def _properties(self, subscription: str, name: TopicName) -> Mapping[str, str]:
        return (await self._any(str(name), subscription))[0].properties

    async def set_properties(self, topic: str, subscription: str, properties: Mapping[str, str]) -> None:
        """Replaces the properties; those of a durable subscription are stored when this returns.

        :raises SubscriptionNotFound: no such subscription
        """
        for found in await self._any(topic, subscription):
            if isinstance(found, Subscription) and found.cursor.storage is not None:
                await found.cursor.storage.set_cursor_properties(dict(properties))
            found.properties = users_own(properties)

    async def skip_all(self, topic: str, subscription: str) -> None:
        """Acknowledges all messages for a subscription.

        :raises SubscriptionNotFound: no such subscription
        """
        for found in await self._consuming(topic, subscription):
            found.skip_to(found.topic.managed_ledger.last_confirmed)
            await found.cursor.flush()

    async def skip(self, topic: str, subscription: str, count: int) -> None:
        """Acknowledges the next ``count`` unacknowledged entries.

        :raises SubscriptionNotFound: no such subscription
        :raises NotAllowed: the topic is partitioned
        """
        refusal = "Skip messages on a partitioned topic is not allowed"
        found = await self._one_consuming(topic, subscription, refusal)
        found.skip_to(found.cursor.nth_unconsumed(count))
        await found.cursor.flush()

    async def reset_to_time(self, topic: str, subscription: str, publish_time_ms: int) -> None:
        """Seeks a subscription to the first message published at or after a time; its consumers reconnect.

        :raises SubscriptionNotFound: no such subscription
        :raises ServiceNotReady: another seek is in progress
        """
        for found in await self._each(topic, subscription):
            await seek_to(found, await first_published_at(found.topic.managed_ledger, publish_time_ms))

    async def reset_to(
        self, topic: str, subscription: str, position: Position, *, behind: bool, batch_index: int = -1
    ) -> None:
        """Seeks a subscription to a position, from which messages are delivered again; its consumers
        reconnect.

        :param behind: begin at the position after ``position``
        :param batch_index: the index in the batch of the first message to deliver; -1: the whole batch
        :raises SubscriptionNotFound: no such subscription
        :raises NotAllowed: the topic is partitioned
        :raises ServiceNotReady: another seek is in progress
        """
        found = await self.one(
            topic, subscription, "Reset-cursor at position is not allowed for partitioned-topic"
        )
        target = _start(position)
        if target in (EARLIEST, LATEST):
            await seek_to(found, target)
            return
        size = await _batch_size(found.topic.managed_ledger, target) if batch_index >= 0 else 0
        first = (batch_index if size else 0) + behind
        if first >= max(size, 1):
            await seek_to(found, (target[0], target[1] + 1))
        else:
            await seek_to(found, target, (1 << size) - (1 << first) if first else 0, size)

    async def replicated(self, topic: str, subscription: str) -> Mapping[str, bool]:
        """Returns whether the subscription is replicated, by the full name of each partition.

        :raises SubscriptionNotFound: no such subscription
        """
        path = f"/subscription/{subscription_piece(subscription)}/replicatedSubscriptionStatus"
        found, _ = await self._topics.of_each(topic, partial(self._replicated, subscription), path)
        if not found:
            raise missing(topic, subscription)
        return {part: replicated for answer in found.values() for part, replicated in answer.items()}

    async def _replicated(self, subscription: str, name: TopicName) -> Mapping[str, bool]:
        return {s.topic.full_name: s.replicated for s in await self._each(str(name), subscription)}

    async def set_replicated(self, topic: str, subscription: str, wanted: bool) -> None:
        """Makes a subscription replicated, or no longer replicated; durable when this returns.

        :raises SubscriptionNotFound: no such subscription
        """
        for found in await self._each(topic, subscription):
            found.replicate(wanted)
            await found.cursor.flush()


def _with_cursor(found: Subscription | NonPersistentSubscription) -> Subscription:
    if isinstance(found, Subscription):
        return found
    raise PersistentTopicRequired("Need to provide a persistent topic name")


def missing(topic: str, subscription: str) -> SubscriptionNotFound:
    return SubscriptionNotFound(f"Subscription {subscription} not found for topic {topic}")


def _start(position: Position | None) -> Position:
    if position is None or position[0] == LATEST_ID:
        return LATEST
    return EARLIEST if position[0] < 0 else position


async def _batch_size(ledger: ManagedLedger, position: Position) -> int:
    """Returns the number of messages in an entry; 0 if the entry does not exist or cannot be parsed."""
    if not ledger.ledgers.exists(position) or position > ledger.last_confirmed:
        return 0
    run = await ledger.reader.read_one(position)
    try:
        return parse_entry(run.entry(0), verify_checksum=False).metadata.num_messages_in_batch
    except EntryError:
        return 0


class ExplainAdmin:
    """Explains why a topic or a subscription receives nothing; topics are given by their full names."""

    def __init__(self, broker: BrokerService, topics: TopicAdmin) -> None:
        self._broker = broker
        self._topics = topics

    async def explain(self, topic: str, subscription: str | None) -> Json:
        """Explains a topic, or each partition of a partitioned topic at its owner.

        :param subscription: only this subscription; None: all of them
        :raises TopicNotFound: no such topic
        :raises SubscriptionNotFound: no such subscription
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        if not await self._broker.namespaces.partitions(name):
            return await self._here(subscription, name)
        query = {} if subscription is None else {"subscription": subscription}
        each, missing = await self._topics.of_each(
            topic, partial(self._here, subscription), "/explain", query
        )
        if missing is not None and not each:
            raise missing
        return {"topic": str(name), "partitions": each}

    async def _here(self, subscription: str | None, name: TopicName) -> Json:
        # A topic that is being unloaded cannot be loaded, but can still be explained.
        found = self._broker.topics.loaded.get(str(name)) or await self._broker.topics.load(
            name, create=False
        )
        # Imported on first use, as most brokers never get such a request.
        from magnetar.broker.explaining.topic import explain_topic

        return await explain_topic(self._broker, found, subscription)
