"""Whether topics may be made, on use or by an operator, and what is made on use."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from magnetar.broker.namespaces.counts import TopicCounts
from magnetar.broker.namespaces.registry import Namespaces
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import PolicyStore
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import AlreadyExists, NotAllowed, TopicNotFound
from magnetar.managed_ledger.opening import ManagedLedgers
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.security.principal import BROKER, Principal

log = logging.getLogger(__name__)


class TopicCreation:
    def __init__(
        self,
        namespaces: Namespaces,
        policies: PolicyStore,
        managed_ledgers: ManagedLedgers,
        live: Mapping[str, AnyTopic],
        counts: TopicCounts,
    ) -> None:
        """:param live: loaded topics by their full names: non-persistent ones are nowhere else"""
        self._namespaces = namespaces
        self._policies = policies
        self._managed_ledgers = managed_ledgers
        self._live = live
        self._counts = counts

    async def exists(self, name: TopicName) -> bool:
        """Whether there is such a topic, itself without partitions."""
        if name.persistent:
            return await self._managed_ledgers.exists(name.path)
        return str(name) in self._live or await self.is_partition(name)

    async def is_partition(self, name: TopicName) -> bool:
        """Whether it is one of the partitions of a topic: it may be made when somebody wants it."""
        index = name.partition_index
        if index < 0 or index >= await self._namespaces.partitions(name.base):
            return False
        return not await self._namespaces.is_being_deleted(name.base)

    async def is_beyond(self, name: TopicName) -> bool:
        """Whether it has the name of a partition that its topic does not have: nobody would look there."""
        index = name.partition_index
        count = await self._namespaces.partitions(name.base) if index >= 0 else 0
        if not count or index < count:
            return False
        # Another broker may have added it a moment ago.
        return index >= await self._namespaces.partitions_now(name.base)

    async def check_not_deleted(self, name: TopicName) -> None:
        """:raises TopicNotFound: it is a partition of a topic that is being deleted"""
        if name.partition_index >= 0 and await self._namespaces.is_being_deleted(name.base):
            raise TopicNotFound(f"Topic {name.base} is being deleted")

    def non_persistent(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of a namespace."""
        live = (topic.name for topic in self._live.values())
        return [name for name in live if not name.persistent and name.namespace_name == namespace]

    async def partitions_or_create(self, name: TopicName, principal: Principal = BROKER) -> int:
        """The number of partitions; a topic that is missing is made with partitions where policies say so.

        :param principal: who asks
        :raises TopicNotFound: it is missing and topics are not made on use
        :raises NotAllowed: the namespace has as many topics as it may
        """
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if count or name.partition_index >= 0 or name.reserved:
            return count
        rule = (await self._policies.of_namespace(name.namespace_name)).auto_topics
        if rule.allowed and not rule.partitions:
            return 0
        if await self.exists(name):
            return 0
        if not rule.allowed:
            raise TopicNotFound(f"Topic {name} not found")
        await self.check_room(name, rule.partitions)
        try:
            await self._namespaces.create_partitioned(name, rule.partitions, {})
        except AlreadyExists:
            log.debug("made by somebody else at the same time", extra={"topic": name})
            return await self._namespaces.partitions(name)
        return rule.partitions

    async def existing_partitions(self, name: TopicName, principal: Principal) -> int:
        """The number of partitions of a topic that is there; 0 when it has none.

        :param principal: who asks
        :raises TopicNotFound: it is missing
        """
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count and not await self.exists(name):
            raise TopicNotFound(f"Topic {name} not found")
        return count

    async def may_create(self, name: TopicName, policies: EffectivePolicies) -> bool:
        """Whether a missing topic is made on use: by policy, or because it is a partition of one that exists.

        :raises NotAllowed: the namespace has as many topics as it may
        """
        if await self.is_partition(name):
            # Its partitioned topic was let in with all of them.
            return True
        if await self.is_beyond(name):
            return False
        await self.check_room(name, 1)
        return policies.auto_topics.allowed

    async def check_room(self, name: TopicName, more: int) -> None:
        """:param more: topics to be made, each partition one

        :raises NotAllowed: the namespace would have more topics than it may
        """
        cap = (await self._policies.of_namespace(name.namespace_name)).max_topics
        if not cap or name.reserved:
            return
        there = await self._counts.persistent(name.namespace_name)
        if not name.persistent:
            there += len(self.non_persistent(name.namespace_name))
        if there + more > cap:
            raise NotAllowed("Exceed maximum number of topics in namespace.")
