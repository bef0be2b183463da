"""Deletion of inactive topics and subscriptions, if policies require it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from magnetar.broker.ownership.peers import Beside
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.serving.live_topics import LiveTopics
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError, SubscriptionNotFound
from magnetar.io.slices import PAUSE_SECONDS, each
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName

log = logging.getLogger(__name__)
CAUGHT_UP = "delete_when_subscriptions_caught_up"
"""The mode in which a subscription keeps its topic only while it has a backlog."""
_MINUTE_MS = 60_000


def is_used(topic: AnyTopic, mode: str) -> bool:
    """Whether clients, subscriptions or backlogs keep a topic from being inactive.

    Replicators of other clusters do not count, because otherwise no replicated topic would ever be inactive.
    Messages that must still be replicated count.

    :param mode: the mode of the policy, for example :data:`CAUGHT_UP`
    """
    if topic.producers.local() or topic.is_awaited:
        return True
    if isinstance(topic, NonPersistentTopic):
        # Its subscriptions do not keep it: only connected clients count.
        return topic.subscriptions.consumer_count() > 0
    if any(replicator.backlog() for replicator in topic.replicators.values()):
        return True
    keeping = [s for s in topic.subscriptions.values() if s.kind.keeps_topic or s.consumers]
    if mode == CAUGHT_UP:
        return any(s.consumers or (s.durable and s.cursor.backlog()) for s in keeping)
    return bool(keeping)


def is_topic_due(topic: AnyTopic, now: float) -> bool:
    """Whether a topic must be deleted: it has been inactive long enough, none of its replicators is
    connected, and no replicator of another cluster is connected to it.

    A replicator of another cluster closes its producer when its own topic is inactive.

    :param now: seconds of the monotonic clock
    """
    if not is_inactive(topic, now) or topic.producers.remote:
        return False
    return not any(replicator.connected for replicator in topic.replicators.values())


def is_inactive(topic: AnyTopic, now: float) -> bool:
    """Whether a topic has been inactive for the time in its policies; if it is in use, records ``now`` as the
    time of its last use.

    :param now: seconds of the monotonic clock
    """
    policy = topic.policies.inactive_topics
    if not policy.delete or topic.closing or topic.fenced:
        return False
    if is_used(topic, policy.mode):
        topic.last_active = now
        return False
    idle = now - topic.last_active
    minutes = topic.policies.retention.minutes
    retained = topic.name.persistent and (minutes < 0 or idle < minutes * 60)
    return not retained and idle >= policy.seconds


def seconds_unused(policies: EffectivePolicies, *, persistent: bool) -> float:
    """Returns the number of seconds after which an unused topic is deleted; infinity: it is never deleted."""
    minutes = policies.retention.minutes if persistent else 0
    if not policies.inactive_topics.delete or minutes < 0:
        return float("inf")
    return max(float(policies.inactive_topics.seconds), minutes * 60.0)


class InactiveTopicsCheck:
    """Deletes inactive topics, if policies require it.

    Only loaded topics are checked: how long other topics have been idle is unknown.
    """

    def __init__(self, served: ServedTopics, beside: Beside | None) -> None:
        """:param beside: the other brokers of the cluster; None in a standalone broker"""
        self._served = served
        self._live = LiveTopics(served, beside)

    async def run(self) -> None:
        """Deletes inactive topics, one after another."""
        due: list[AnyTopic] = []
        resting: list[AnyTopic] = []
        clock = self._served.io.clock

        def look(topic: AnyTopic) -> None:
            if is_topic_due(topic, clock.monotonic()):
                due.append(topic)
            elif topic.replicators and is_inactive(topic, clock.monotonic()):
                resting.append(topic)

        topics: Mapping[str, AnyTopic] = self._served.loaded
        await each(self._served.io, "inactive topics", list(topics.values()), look, pause=PAUSE_SECONDS)
        for idle in resting:
            # The other clusters' replicators do the same when the topic is inactive there; then it can be
            # deleted.
            for replicator in idle.replicators.values():
                replicator.rest()
        for topic in due:
            # A client may have come meanwhile. From here to the closing none can.
            if topics.get(topic.full_name) is topic and is_topic_due(topic, clock.monotonic()):
                await self._delete(topic)

    async def _delete(self, topic: AnyTopic) -> None:
        name = topic.name
        try:
            await self._served.delete_topic(topic)
            if name.partition_index < 0:
                await self._served.policies.forget(name)
            elif self._served.settings.delete_inactive_partitioned:
                await self._delete_partitioned(name.base)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            # The next load of the topic finds what is left.
            log.warning(
                "cannot delete an inactive topic", extra={"topic": topic.full_name, "error": str(error)}
            )
            return
        log.info("deleted an inactive topic", extra={"topic": topic.full_name})

    async def _delete_partitioned(self, name: TopicName) -> None:
        """Deletes a partitioned topic that has no partitions left."""
        count = await self._served.namespaces.partitions(name)
        partitions = [name.partition(index) for index in range(count)]
        if name.persistent:
            for partition in partitions:
                if await self._served.managed_ledgers.exists(partition.path):
                    return
        elif await self._is_live(partitions):
            return
        if await self._served.namespaces.delete_partitioned(name):
            await self._served.delete_schema(name)
            await self._served.policies.forget(name)
            log.info("deleted an inactive partitioned topic", extra={"topic": str(name)})

    async def _is_live(self, partitions: Sequence[TopicName]) -> bool:
        """Whether any of these non-persistent partitions is loaded, on any broker.

        :raises BrokerError: the owner of a partition is unknown, or does not answer
        """
        names = {str(partition) for partition in partitions}
        bundles = {await self._served.bundles.of_topic(partition): None for partition in partitions}
        for bundle in bundles:
            if names.intersection(await self._live.of_bundle(bundle)):
                return True
        return False


def is_subscription_due(topic: Topic, subscription: Subscription) -> bool:
    """Whether a subscription must be deleted: it has been inactive for the time in the topic's policies."""
    minutes = topic.policies.subscription_expiration_minutes
    if minutes <= 0 or subscription.consumers or subscription.closing or subscription.replicated:
        return False
    if not subscription.durable or not subscription.kind.expires:
        return False
    last = max(subscription.last_active_ms, subscription.last_consumed_ms, subscription.last_acked_ms)
    return topic.clock.wall_ms() - last > minutes * _MINUTE_MS


class InactiveSubscriptionsCheck:
    """Deletes inactive subscriptions, if policies require it.

    Only loaded topics are checked. A subscription is in use while consumers are connected; it counts as
    inactive from the time when the last consumer left, or its topic was loaded.
    """

    def __init__(self, served: ServedTopics) -> None:
        self._served = served

    async def run(self) -> None:
        """Deletes inactive subscriptions, one after another."""
        due: list[tuple[Topic, Subscription]] = []

        def look(topic: AnyTopic) -> None:
            if isinstance(topic, Topic) and topic.policies.subscription_expiration_minutes > 0:
                due.extend(
                    (topic, found)
                    for found in topic.subscriptions.values()
                    if is_subscription_due(topic, found)
                )

        topics: Mapping[str, AnyTopic] = self._served.loaded
        await each(
            self._served.io, "inactive subscriptions", list(topics.values()), look, pause=PAUSE_SECONDS
        )
        for topic, subscription in due:
            # A consumer may have joined meanwhile. From here to the deletion none can.
            known = topics.get(topic.full_name) is topic and not topic.closing
            if known and is_subscription_due(topic, subscription):
                await self._delete(topic, subscription)

    @staticmethod
    async def _delete(topic: Topic, subscription: Subscription) -> None:
        names = {"topic": topic.full_name, "subscription": subscription.name}
        try:
            await topic.subscriptions.unsubscribe(subscription.name)
        except SubscriptionNotFound:
            return
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            log.warning("cannot delete an inactive subscription", extra={**names, "error": str(error)})
            return
        log.info("deleted an inactive subscription", extra=names)
