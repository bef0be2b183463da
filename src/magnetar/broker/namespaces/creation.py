"""Creation of topics, on use or by an operator: whether it is permitted, and the number of existing
topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from magnetar.broker.namespaces.registry import Namespaces
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import PolicyStore
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import AlreadyExists, NotAllowed, PartitionCountRefused, TopicNotFound
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.interface import Change, ChangeKind, MetadataStore, SessionEvent
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.replicators import SHADOW_SOURCE, shadow_source
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import BROKER, Principal

if TYPE_CHECKING:
    from magnetar.broker.settings import BrokerSettings


log = logging.getLogger(__name__)
_MOST_PARTITIONS = 2**31 - 1
"""The largest number of partitions that fits into Pulsar's records and clients."""
_MOST_NAMES = 1_000_000
"""The maximum number of topic names in memory. If there are more, all are dropped, and read again when
needed.
"""
_SYSTEM = "__"
_PERSISTENT = "persistent"


class TopicCreation:
    def __init__(
        self,
        namespaces: Namespaces,
        policies: PolicyStore,
        managed_ledgers: ManagedLedgerFactory,
        live: Mapping[str, AnyTopic],
        counts: TopicCounts,
        limits: Callable[[], BrokerSettings],
    ) -> None:
        """:param live: loaded topics by their full names; a non-persistent topic exists only while it is
            loaded

        :param limits: returns the current limits
        """
        self._limits = limits
        self._non_persistent: dict[str, int] = {}
        """The number of loaded non-persistent topics, by tenant."""
        self.refused_partitions = 0
        """The number of requests refused because of too many partitions."""
        self.refused_topics = 0
        """The number of topics refused because of the limit of their tenant."""
        self._namespaces = namespaces
        self._policies = policies
        self._managed_ledgers = managed_ledgers
        self._live = live
        self._counts = counts

    def loaded(self, name: TopicName) -> None:
        """Counts a topic that was loaded."""
        if not name.persistent:
            self._non_persistent[name.tenant] = self._non_persistent.get(name.tenant, 0) + 1

    def unloaded(self, name: TopicName) -> None:
        """Subtracts a topic that was unloaded."""
        if not name.persistent:
            left = self._non_persistent[name.tenant] - 1
            if left:
                self._non_persistent[name.tenant] = left
            else:
                del self._non_persistent[name.tenant]

    async def exists(self, name: TopicName) -> bool:
        """Whether the topic exists and is not partitioned."""
        if name.persistent:
            return await self._managed_ledgers.exists(name.path)
        return str(name) in self._live or await self.is_partition(name)

    async def is_partition(self, name: TopicName) -> bool:
        """Whether ``name`` is one of the partitions of a partitioned topic; such a partition may be created
        on use.
        """
        index = name.partition_index
        if index < 0 or index >= await self._namespaces.partitions(name.base):
            return False
        return not await self._namespaces.is_being_deleted(name.base)

    async def is_beyond(self, name: TopicName) -> bool:
        """Whether ``name`` has a partition index at or above the number of partitions of its topic."""
        index = name.partition_index
        count = await self._namespaces.partitions(name.base) if index >= 0 else 0
        if not count or index < count:
            return False
        # Another broker may just have added partitions.
        return index >= await self._namespaces.partitions_now(name.base)

    async def check_not_deleted(self, name: TopicName) -> None:
        """Checks that the topic is not a partition of a topic that is being deleted.

        :raises TopicNotFound: the partitioned topic is being deleted
        """
        if name.partition_index >= 0 and await self._namespaces.is_being_deleted(name.base):
            raise TopicNotFound(f"Topic {name.base} is being deleted")

    async def source_of(self, name: TopicName) -> TopicName | None:
        """Returns the source of a shadow topic, whichever broker serves it; None if it is not a shadow
        topic."""
        if not name.persistent:
            return None
        properties = await self._managed_ledgers.properties(name.path)
        if properties is None:
            properties = (await self._namespaces.partitioned(name)).get("properties") or {}
        return shadow_source(properties, name)

    async def inherited(self, name: TopicName) -> Mapping[str, str] | None:
        """Returns the properties that a new partition inherits from its partitioned topic: if the partitioned
        topic is a shadow topic, the property with its source. None: the partition inherits nothing.
        """
        if name.partition_index < 0 or not name.persistent or name.reserved:
            return None
        record = await self._namespaces.partitioned(name.base)
        source = shadow_source(record.get("properties") or {}, name)
        return {SHADOW_SOURCE: str(source)} if source is not None else None

    def non_persistent(self, namespace: NamespaceName) -> list[TopicName]:
        """Returns the non-persistent topics of a namespace."""
        live = (topic.name for topic in self._live.values())
        return [name for name in live if not name.persistent and name.namespace_name == namespace]

    async def partitions_or_create(self, name: TopicName, principal: Principal = BROKER) -> int:
        """Returns the number of partitions; creates a missing topic with partitions if policies permit it.

        :param principal: the principal of the client
        :raises TopicNotFound: the topic is missing, and topics are not created on use
        :raises NotAllowed: the namespace has reached its limit of topics
        :raises PartitionCountRefused: the policies require more partitions than a topic may have
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
            log.debug("partitioned topic was created concurrently", extra={"topic": name})
            return await self._namespaces.partitions(name)
        return rule.partitions

    async def existing_partitions(self, name: TopicName, principal: Principal) -> int:
        """Returns the number of partitions of an existing topic; 0 if it is not partitioned.

        :param principal: the principal of the client
        :raises TopicNotFound: the topic is missing
        """
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count and not await self.exists(name):
            raise TopicNotFound(f"Topic {name} not found")
        return count

    async def may_create(self, name: TopicName, policies: EffectivePolicies) -> bool:
        """Whether a missing topic is created on use: by policy, or as a partition of an existing topic.

        :raises NotAllowed: the namespace or its tenant has reached its limit of topics
        """
        if await self.is_partition(name):
            # The namespace's limit was checked for the whole partitioned topic. The tenant's topics are
            # counted as they are created: otherwise any number of topics with unused partitions would be
            # admitted.
            await self._check_tenant(name, 1)
            return True
        if await self.is_beyond(name):
            return False
        await self.check_room(name, 1)
        return policies.auto_topics.allowed

    def check_partitions(self, count: int) -> None:
        """Checks a number of partitions that an operator or a policy requests.

        :raises PartitionCountRefused: the number is below 1, or above ``maxNumPartitionsPerPartitionedTopic``
            or, if that is 0, ``magnetarMaxPartitionsPerTopic``
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
        """Checks that more topics may be created.

        :param more: the number of topics to be created, each partition counted as one
        :raises NotAllowed: the namespace or its tenant would exceed its limit of topics
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
        """Checks that a non-persistent partition may be loaded, and thereby created.

        :raises NotAllowed: the tenant has reached its limit of topics
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


class TopicCounts:
    """The number of topics of each namespace and tenant, for limits.

    The topics of a namespace are listed once; then notifications of the metadata store update their number.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._known: dict[str, set[str]] = {}
        self._early: dict[str, list[Change]] = {}
        """Notifications for namespaces that are being listed."""
        self._held = 0
        self._tenants: dict[str, int] = {}
        """The number of persistent topics by tenant, for tenants whose namespaces were all listed."""
        self._unknown = 0
        """The number of notifications of new topics in namespaces that were not listed."""
        metadata.listen(ROOT, self._changed)
        metadata.listen_session(self._session_changed)

    async def persistent(self, namespace: NamespaceName) -> int:
        """Returns the number of a namespace's persistent topics, except system topics; each partition counts
        as one."""
        path = f"{ROOT}/{namespace.path}/persistent"
        while path not in self._known:
            await self._list(path)
        return len(self._known[path])

    async def of_tenant(self, tenant: str) -> int:
        """Returns the number of a tenant's persistent topics, except system topics; each partition counts as
        one."""
        count = self._tenants.get(tenant)
        if count is not None:
            return count
        unknown = self._unknown
        paths = await self._paths_of(tenant)
        count = 0
        for path in paths:
            while path not in self._known:
                await self._list(path)
            count += len(self._known[path])
        if unknown == self._unknown and all(path in self._known for path in paths):
            count = self._tenants[tenant] = sum(len(self._known[path]) for path in paths)
        return count

    async def _paths_of(self, tenant: str) -> list[str]:
        """Returns the paths that list a tenant's persistent topics; paths of legacy namespaces are one level
        deeper."""
        root = f"{ROOT}/{tenant}"
        found = []
        for first in await self._metadata.children(root):
            for second in await self._metadata.children(f"{root}/{first}"):
                below = () if second == _PERSISTENT else (_PERSISTENT,)
                found.append("/".join((root, first, second, *below)))
        return found

    async def _list(self, path: str) -> None:
        early = self._early.setdefault(path, [])
        try:
            children = await self._metadata.children(path)
        finally:
            early_is_over = self._early.get(path) is not early
            if not early_is_over:
                del self._early[path]
        if early_is_over:
            # Another listing finished first; this list lacks the changes since then.
            return
        names = {child for child in children if not child.startswith(_SYSTEM)}
        for change in early:
            _apply(names, change)
        if self._held + len(names) > _MOST_NAMES:
            self._forget()
        self._held += len(names)
        self._known[path] = names
        # The namespace may be new in its tenant.
        self._tenants.pop(_tenant_of(path), None)

    def _forget(self) -> None:
        self._known.clear()
        self._early.clear()
        self._tenants.clear()
        self._held = 0

    def _changed(self, change: Change) -> None:
        if change.kind not in (ChangeKind.CREATED, ChangeKind.DELETED):
            return
        parent = change.path.rpartition("/")[0]
        early = self._early.get(parent)
        if early is not None:
            early.append(change)
        names = self._known.get(parent)
        if names is not None:
            more = _apply(names, change)
            self._held += more
            tenant = _tenant_of(parent)
            if tenant in self._tenants:
                self._tenants[tenant] += more
        elif change.kind is ChangeKind.CREATED and parent.endswith("/" + _PERSISTENT):
            self._unknown += 1
            self._tenants.pop(_tenant_of(parent), None)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.CONNECTED:
            # Notifications may have been lost.
            self._forget()


def _tenant_of(path: str) -> str:
    return path[len(ROOT) + 1 :].partition("/")[0]


def _apply(names: set[str], change: Change) -> int:
    """Applies the creation or deletion of a topic; returns the change in the number of topics."""
    name = change.path.rpartition("/")[2]
    before = len(names)
    if change.kind is ChangeKind.DELETED:
        names.discard(name)
    elif not name.startswith(_SYSTEM):
        names.add(name)
    return len(names) - before
