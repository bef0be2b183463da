"""Whether topics may be made, on use or by an operator, and what is made on use."""

from __future__ import annotations

import logging

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import PolicyStore
from magnetar.errors import AlreadyExists, NotAllowed, TopicNotFound
from magnetar.managed_ledger.opening import ManagedLedgers
from magnetar.naming.topic_name import TopicName

log = logging.getLogger(__name__)


class TopicCreation:
    def __init__(
        self, namespaces: Namespaces, policies: PolicyStore, managed_ledgers: ManagedLedgers
    ) -> None:
        self._namespaces = namespaces
        self._policies = policies
        self._managed_ledgers = managed_ledgers

    async def partitions_or_create(self, name: TopicName) -> int:
        """The number of partitions; a topic that is missing is made with partitions where policies say so.

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
        if await self._managed_ledgers.exists(name.path):
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

    async def existing_partitions(self, name: TopicName) -> int:
        """The number of partitions of a topic that is there; 0 when it has none.

        :raises TopicNotFound: it is missing
        """
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count and not await self._managed_ledgers.exists(name.path):
            raise TopicNotFound(f"Topic {name} not found")
        return count

    async def may_create(self, name: TopicName, policies: EffectivePolicies) -> bool:
        """Whether a missing topic is made on use: by policy, or because it is a partition of one that exists.

        :raises NotAllowed: the namespace has as many topics as it may
        """
        index = name.partition_index
        if index >= 0 and index < await self._namespaces.partitions(name.base):
            # Its partitioned topic was let in with all of them.
            return True
        await self.check_room(name, 1)
        return policies.auto_topics.allowed

    async def check_room(self, name: TopicName, more: int) -> None:
        """:param more: topics to be made, each partition one

        :raises NotAllowed: the namespace would have more topics than it may
        """
        cap = (await self._policies.of_namespace(name.namespace_name)).max_topics
        if not cap or name.reserved:
            return
        known = await self._namespaces.persistent_topics(name.namespace_name)
        if sum(not TopicName.parse(other).reserved for other in known) + more > cap:
            raise NotAllowed("Exceed maximum number of topics in namespace.")
