"""The shadow topics of each loaded topic: replicators start and stop according to the topic's policy."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from magnetar.broker.replication.clusters import Common
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.shadow import ShadowTopic
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.position import LATEST
from magnetar.naming.replicators import is_shadow_cursor, shadow_cursor
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.replication.shadow_replicator import ShadowReplicator

log = logging.getLogger(__name__)


class ShadowReplication:
    """The replicators of all loaded topics to their shadow topics, in the same cluster."""

    def __init__(self, common: Common, managed_ledgers: ManagedLedgerFactory) -> None:
        self._common = common
        self._managed_ledgers = managed_ledgers
        self._running: dict[tuple[Topic, str], ShadowReplicator] = {}

    def _wanted(self, topic: Topic) -> dict[str, TopicName]:
        """Returns the shadow topics in a topic's policy, by their full names."""
        if isinstance(topic, ShadowTopic) or not topic.policies.shadow_topics:
            return {}
        names = (TopicName.parse(each) for each in topic.policies.shadow_topics)
        index = topic.name.partition_index
        shadows = (each.partition(index) if each.partition_index < 0 else each for each in names)
        return {str(each): each for each in shadows}

    def _cursors(self, topic: Topic) -> set[str]:
        prefix = topic.settings.replicator_prefix
        return {name for name in topic.managed_ledger.cursors if is_shadow_cursor(prefix, name)}

    def is_settled(self, topic: Topic) -> bool:
        """Whether the topic has the replicators that its policy requires, and no cursors for other shadow
        topics."""
        wanted, prefix = self._wanted(topic), topic.settings.replicator_prefix
        if not wanted and not topic.shadow_replicators:
            return not self._cursors(topic)
        named = {shadow_cursor(prefix, each) for each in wanted.values()}
        return wanted.keys() == topic.shadow_replicators.keys() and named == self._cursors(topic)

    async def go_by_policies(self, topic: Topic) -> None:
        """Starts and stops replicators according to the topic's policy.

        :raises ManagedLedgerError: a cursor cannot be created or deleted
        """
        wanted, prefix = self._wanted(topic), topic.settings.replicator_prefix
        for gone in topic.shadow_replicators.keys() - wanted.keys():
            self._end(topic, gone)
        named = {shadow_cursor(prefix, each) for each in wanted.values()}
        for cursor in self._cursors(topic) - named:
            log.info("shadow topic removed", extra={"topic": topic.full_name, "cursor": cursor})
            await topic.managed_ledger.cursors.delete(cursor)
        for full_name, shadow in wanted.items():
            if full_name not in topic.shadow_replicators and not topic.closing:
                await self._begin(topic, shadow)

    async def _begin(self, topic: Topic, shadow: TopicName) -> None:
        from magnetar.broker.replication.shadow_replicator import ShadowReplicator

        name, ledger = shadow_cursor(topic.settings.replicator_prefix, shadow), topic.managed_ledger
        # The last entry tells a loaded shadow topic of everything that is stored.
        last = ledger.last_confirmed
        start = last if ledger.ledgers.exists(last) else LATEST
        cursor = await self._managed_ledgers.open_cursor(ledger, name, start, {})
        if topic.closing:
            return
        replicator = ShadowReplicator(self._common, topic, shadow, cursor)
        self._running[topic, str(shadow)] = topic.shadow_replicators[str(shadow)] = replicator

    def _end(self, topic: Topic, full_name: str) -> None:
        topic.shadow_replicators.pop(full_name, None)
        replicator = self._running.pop((topic, full_name), None)
        if replicator is not None:
            replicator.stop()

    def stop(self, topic: Topic) -> None:
        """Stops the replicators of a topic that is about to be closed or deleted."""
        for full_name in list(topic.shadow_replicators):
            self._end(topic, full_name)

    def reconnect(self, reason: str) -> None:
        """Connects again after a change of the own cluster's record."""
        for replicator in list(self._running.values()):
            replicator.reconnect(reason)
