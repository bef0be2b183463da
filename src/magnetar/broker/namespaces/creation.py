"""Whether topics may be made, on use or by an operator, and what is made on use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from magnetar.broker.namespaces.counts import TopicCounts
from magnetar.broker.namespaces.registry import Namespaces
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import PolicyStore
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import AlreadyExists, NotAllowed, PartitionCountRefused, TopicNotFound
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.shadows import SHADOW_SOURCE, shadow_source
from magnetar.naming.topic_name import TopicName
from magnetar.security.principal import BROKER, Principal

log = logging.getLogger(__name__)

_MOST_PARTITIONS = 2**31 - 1
"""What Pulsar's records and clients have room for."""


class CreationLimits(Protocol):
    """The broker's limits on new topics."""

    @property
    def max_partitions(self) -> int:
        """Partitions of one topic, 0 for any number."""
        ...

    @property
    def max_topics_per_tenant(self) -> int:
        """Each partition is one; 0 for any number."""
        ...


class TopicCreation:
    def __init__(
        self,
        namespaces: Namespaces,
        policies: PolicyStore,
        managed_ledgers: ManagedLedgerFactory,
        live: Mapping[str, AnyTopic],
        counts: TopicCounts,
        limits: Callable[[], CreationLimits],
    ) -> None:
        """:param live: loaded topics by their full names: non-persistent ones are nowhere else

        :param limits: as they are now
        """
        self._limits = limits
        self._non_persistent: dict[str, int] = {}
        """Loaded non-persistent topics by tenant."""
        self.refused_partitions = 0
        """How often more partitions were asked for than a topic may have."""
        self.refused_topics = 0
        """How often more topics were asked for than a tenant may have."""
        self._namespaces = namespaces
        self._policies = policies
        self._managed_ledgers = managed_ledgers
        self._live = live
        self._counts = counts

    def loaded(self, name: TopicName) -> None:
        """A topic was loaded."""
        if not name.persistent:
            self._non_persistent[name.tenant] = self._non_persistent.get(name.tenant, 0) + 1

    def unloaded(self, name: TopicName) -> None:
        """A topic that was loaded is not any more."""
        if not name.persistent:
            left = self._non_persistent[name.tenant] - 1
            if left:
                self._non_persistent[name.tenant] = left
            else:
                del self._non_persistent[name.tenant]

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

    async def source_of(self, name: TopicName) -> TopicName | None:
        """The topic that one is the shadow of, whichever broker serves it; None: it is missing, or none."""
        if not name.persistent:
            return None
        properties = await self._managed_ledgers.properties(name.path)
        if properties is None:
            properties = (await self._namespaces.partitioned(name)).get("properties") or {}
        return shadow_source(properties, name)

    async def inherited(self, name: TopicName) -> Mapping[str, str] | None:
        """The properties that a partition which is about to be made has from its topic: the source, where
        that is a shadow. None: there are none."""
        if name.partition_index < 0 or not name.persistent or name.reserved:
            return None
        record = await self._namespaces.partitioned(name.base)
        source = shadow_source(record.get("properties") or {}, name)
        return {SHADOW_SOURCE: str(source)} if source is not None else None

    def non_persistent(self, namespace: NamespaceName) -> list[TopicName]:
        """The non-persistent topics of a namespace."""
        live = (topic.name for topic in self._live.values())
        return [name for name in live if not name.persistent and name.namespace_name == namespace]

    async def partitions_or_create(self, name: TopicName, principal: Principal = BROKER) -> int:
        """The number of partitions; a topic that is missing is made with partitions where policies say so.

        :param principal: who asks
        :raises TopicNotFound: it is missing and topics are not made on use
        :raises NotAllowed: the namespace has as many topics as it may
        :raises PartitionCountRefused: the policies ask for more partitions than a topic may have
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
        self.check_partitions(rule.partitions)
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

        :raises NotAllowed: the namespace or its tenant has as many topics as it may
        """
        if await self.is_partition(name):
            # The namespace has let its partitioned topic in with all of them. The tenant's topics are counted
            # as they are made: else topics whose partitions nobody has used would be let in without end.
            await self._check_tenant(name, 1)
            return True
        if await self.is_beyond(name):
            return False
        await self.check_room(name, 1)
        return policies.auto_topics.allowed

    def check_partitions(self, count: int) -> None:
        """Checks a number of partitions that an operator or a policy asks for.

        :raises PartitionCountRefused: below 1, or above ``maxNumPartitionsPerPartitionedTopic`` or, where
            that is 0, ``magnetarMaxPartitionsPerTopic``
        """
        cap = self._limits().max_partitions
        if count < 1:
            raise PartitionCountRefused("Number of partitions should be more than 0")
        if count > _MOST_PARTITIONS:
            raise PartitionCountRefused(
                f"{count} partitions are more than the protocol can return to a client"
            )
        if cap and count > cap:
            self.refused_partitions += 1
            raise PartitionCountRefused(f"Number of partitions should be less than or equal to {cap}")

    async def check_room(self, name: TopicName, more: int) -> None:
        """:param more: topics to be made, each partition one

        :raises NotAllowed: the namespace or its tenant would have more topics than it may
        """
        if name.reserved:
            return
        cap = (await self._policies.of_namespace(name.namespace_name)).max_topics
        if cap:
            there = await self._counts.persistent(name.namespace_name)
            if not name.persistent:
                there += len(self.non_persistent(name.namespace_name))
            if there + more > cap:
                raise NotAllowed("Exceed maximum number of topics in namespace.")
        await self._check_tenant(name, more)

    async def check_use(self, name: TopicName) -> None:
        """Checks a non-persistent partition that is about to be loaded, which makes it.

        :raises NotAllowed: its tenant has as many topics as it may
        """
        if await self.is_partition(name):
            await self._check_tenant(name, 1)

    async def _check_tenant(self, name: TopicName, more: int) -> None:
        if name.reserved:
            return
        cap = self._limits().max_topics_per_tenant
        if cap:
            there = await self._counts.of_tenant(name.tenant) + self._non_persistent.get(name.tenant, 0)
            if there + more > cap:
                self.refused_topics += 1
                raise NotAllowed(
                    f"Exceed maximum number of topics in tenant: {cap} (magnetarMaxTopicsPerTenant)."
                )
