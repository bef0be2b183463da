"""Administration of backlogs: analysing, expiring and truncating them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from magnetar.broker.admin.subscriptions import SubscriptionAdmin, missing
from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.service import BrokerService
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import persistent
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.expiry import count_expired, expire, has_expired
from magnetar.errors import (
    Conflict,
    InvalidRequest,
    NamespaceNotFound,
    TopicNotFound,
)
from magnetar.managed_ledger.position import Position
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator


_NEARLY_CAUGHT_UP = 1_000
"""If clients are connected and the backlog has fewer entries than this, expiring is refused unless the oldest
message has expired, as in Pulsar.
"""

_SIZES = ("storageSize", "totalMessages", "messageBacklog")
"""The fields of ``PersistentOfflineTopicStats`` that add up over partitions."""


class BacklogAdmin:
    """Administration of the backlogs of topics. Topics are given by their full names. Operations on a
    partitioned topic apply to each partition.
    """

    def __init__(self, broker: BrokerService, topics: TopicAdmin, subscriptions: SubscriptionAdmin) -> None:
        self._broker = broker
        self._topics = topics
        self._subscriptions = subscriptions

    async def _parts(self, topic: str) -> Sequence[Topic]:
        """Returns the topic, or its existing partitions.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        :raises ServiceNotReady: a partition was unloaded while the next partition was loaded
        """
        return [persistent(part) for part in await self._topics.existing_parts(topic)]

    # Expiry

    async def expire(self, topic: str, subscription: str, seconds: int) -> None:
        """Acknowledges, for one subscription, all messages that were published more than ``seconds`` ago. If
        ``seconds`` is 0, no message expires.

        :raises SubscriptionNotFound: no such subscription
        :raises PersistentTopicRequired: the topic is non-persistent
        :raises Conflict: on at least one partition, there is nothing to expire or an expiry is in progress
        :raises InvalidRequest: ``seconds`` is below 0
        """
        parts = await self._parts(topic)
        there = [found for part in parts if (found := part.consuming_as(subscription)) is not None]
        if not there:
            raise missing(topic, subscription)
        await self._expire_each(there, seconds)

    async def expire_all(self, topic: str, seconds: int) -> None:
        """Acknowledges, for each subscription of a topic, all messages that were published more than
        ``seconds`` ago. If ``seconds`` is 0, no message expires.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        :raises Conflict: for at least one subscription, there is nothing to expire or an expiry is in
            progress; the other subscriptions are still processed
        :raises InvalidRequest: ``seconds`` is below 0
        """
        parts = await self._parts(topic)
        await self._expire_each([each for part in parts for each in list(part.consuming())], seconds)

    async def _expire_each(self, subscriptions: Sequence[Subscription | Replicator], seconds: int) -> None:
        if seconds < 0:
            raise InvalidRequest(f"expireTimeInSeconds must be 0 or more, not {seconds}")
        # 0 means never, as in a time to live.
        before_ms = self._broker.io.clock.wall_ms() - seconds * 1000 if seconds else 0
        left = [each for each in subscriptions if not await self._expire_one(each, before_ms)]
        if left:
            raise Conflict(
                f"Expire message by timestamp not issued on topic {left[0].topic.full_name} for subscription "
                f"{left[0].name} due to ongoing message expiration not finished or subscription almost catch "
                "up. If it's performed on a partitioned topic operation might succeeded on other partitions, "
                "please check stats of individual partition."
            )

    async def _expire_one(self, subscription: Subscription | Replicator, before_ms: int) -> bool:
        """Expires messages published before ``before_ms``; returns False if there is nothing to expire or an
        expiry is in progress."""
        cursor = subscription.cursor
        backlog = cursor.backlog()
        if not backlog or subscription.expiring or subscription.closing:
            return False
        connected = (
            subscription.consumers if isinstance(subscription, Subscription) else subscription.connected
        )
        nearly = connected and backlog < _NEARLY_CAUGHT_UP
        if nearly and not await has_expired(subscription, before_ms):
            return False
        await expire(subscription, before_ms)
        await cursor.flush()
        return True

    async def expire_to(self, topic: str, subscription: str, position: Position, *, behind: bool) -> None:
        """Acknowledges everything up to a position, as if it had expired.

        :param behind: whether to acknowledge the entry after the position, too, as Pulsar does
        :raises SubscriptionNotFound: no such subscription
        :raises NotAllowed: the topic is partitioned
        :raises Conflict: the position is beyond the end of the topic, or an expiry check is in progress
        """
        found = await self._subscriptions.one(
            topic, subscription, "Expire message at position is not supported for partitioned-topic"
        )
        last = (position[0], position[1] + 1) if behind else position
        found.last_expire_ms = self._broker.io.clock.wall_ms()
        if found.expiring or found.closing or last > found.topic.managed_ledger.last_confirmed:
            raise Conflict(
                f"Expire message by position not issued on topic {topic} for subscription {subscription} due "
                "to ongoing message expiration not finished or invalid message position provided."
            )
        count_expired(found, last)
        await found.cursor.flush()

    # Analysis and truncation

    async def analyze(self, topic: str, subscription: str, position: Position | None) -> Mapping[str, object]:
        """Reads a backlog, within limits of time and entries; returns ``AnalyzeSubscriptionBacklogResult``.

        :param position: where to begin; None: the first entry that is not acknowledged
        :raises SubscriptionNotFound: no such subscription
        :raises NotAllowed: the topic is partitioned
        """
        found = await self._subscriptions.one(
            topic,
            subscription,
            "Analyze backlog on a partitioned topic is not allowed, please try do it on specific topic "
            "partition",
        )
        settings = self._broker.settings
        # Imported here because most brokers never get such a request.
        from magnetar.broker.stats.backlog_scan import scan

        result = await scan(
            self._broker.io,
            found,
            position,
            max_entries=settings.max_backlog_scan_entries,
            max_seconds=settings.max_backlog_scan_seconds,
        )
        return result.json()

    async def truncate(self, topic: str) -> None:
        """Acknowledges all messages for all subscriptions, and deletes the messages regardless of retention.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        """
        for part in await self._parts(topic):
            part.check_open()
            for subscription in list(part.subscriptions.values()):
                subscription.skip_to(part.managed_ledger.last_confirmed)
                await subscription.cursor.flush()
            if part.deduplication is not None:
                part.deduplication.snapshot(part.clock.monotonic())
            await part.managed_ledger.trimmer.truncate()

    async def estimate(self, topic: str) -> Mapping[str, object]:
        """Returns ``PersistentOfflineTopicStats``: the stored bytes, messages and backlog of a topic; all 0
        for a topic that does not exist.

        :raises NamespaceNotFound: no such namespace
        """
        try:
            found, _ = await self._topics.of_each(topic, self._sizes, "/backlog")
        except NamespaceNotFound:
            raise
        except TopicNotFound:
            found = {}
        name = self._broker.parse_topic(topic)
        return {
            **{field: sum(sizes[field] for sizes in found.values()) for field in _SIZES},
            "brokerName": self._broker.settings.broker_id.rpartition(":")[0],
            "topicName": name.path,
            "dataLedgerDetails": [],
            "cursorDetails": {},
            "statGeneratedAt": self._broker.io.clock.wall_ms(),
        }

    async def _sizes(self, name: TopicName) -> Mapping[str, int]:
        topic = await self._broker.topics.persistent_topic(name)
        backlogs = [each.backlog() for each in topic.subscriptions.values() if each.durable]
        entries = topic.managed_ledger.ledgers.total_entries()
        return dict(zip(_SIZES, (topic.stored_bytes, entries, sum(backlogs)), strict=True))

    async def check_quotas(self) -> None:
        """Checks the backlog quotas of all topics now."""
        await self._broker.upkeep.quotas.run()
