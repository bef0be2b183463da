"""The policy store: reads and changes policies, and notifies topics when the policies in effect change."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from magnetar.broker.policies.effective import (
    EffectivePolicies,
    in_this_cluster,
    of_heartbeats,
    of_namespace,
    of_system_topic,
    of_topic,
)
from magnetar.broker.policies.namespaces import NamespaceRecords, missing
from magnetar.broker.policies.offload import offload_policy
from magnetar.broker.policies.records import Clusters, Record, Tenants
from magnetar.errors import BrokerError, MetadataFailure, NamespaceNotFound
from magnetar.io.interfaces import Io
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.settings import OffloadStorage
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import Change, MetadataError, MetadataStore, SessionEvent
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import LOCAL_POLICIES, POLICIES, NamespaceName, heartbeat_of
from magnetar.naming.topic_name import PARTITION_SUFFIX, TopicName

log = logging.getLogger(__name__)

_MAX_KNOWN = 10_000
"""The maximum number of namespaces whose policies are cached."""

_RETRY_SECONDS = 1.0
"""The delay in seconds before listeners are called again, if they could not read changed policies."""

Listener = Callable[[NamespaceName | None, TopicName | None], Awaitable[None]]
"""Called with a namespace whose policies changed, and with a topic if only the policies of that topic and its
partitions changed. Without a namespace, the policies of any namespace may have changed. A change may be
reported more than once."""


CHANGE_EVENTS = "__change_events"
"""The topic of a namespace that holds the policies of its other topics."""


class TopicPolicies(Protocol):
    """The topics' own policies, which a higher layer stores in system topics."""

    async def of(self, topic: TopicName) -> Mapping[str, object]:
        """Returns the ``TopicPolicies`` of a topic (not a partition); empty if no policy is set."""
        ...

    async def own(self, topic: TopicName, *, everywhere: bool) -> Mapping[str, object]:
        """Returns the policies of a topic for the local cluster or, with ``everywhere``, for all clusters."""
        ...

    async def change(self, topic: TopicName, work: Callable[[Record], None], *, everywhere: bool) -> None:
        """Applies ``work`` to the policies of a topic; the change is durable when this returns.

        :param everywhere: change the policies for all clusters instead of the policies for the local cluster
        """
        ...

    async def delete(self, topic: TopicName, *, elsewhere: bool = False) -> None:
        """Deletes all policies of a topic.

        :param elsewhere: also delete them for other clusters, where the topic may still exist
        """
        ...

    def appeared(self, namespace: NamespaceName) -> None:
        """Reports that the system topic of the namespace was created."""
        ...

    def forget(self, namespace: NamespaceName) -> None:
        """Reports that the namespace was deleted."""
        ...

    async def close(self) -> None:
        """Stops following system topics."""
        ...


class PolicyStore:
    """Policies, cached until the metadata changes."""

    def __init__(
        self, io: Io, metadata: MetadataStore, cluster: str, defaults: EffectivePolicies | None = None
    ) -> None:
        """:param defaults: the broker's settings as policies; None: Pulsar's defaults"""
        self._io = io
        self._tasks = TaskScope(io.loop, "policies", owner_goes_on)
        self._cluster = cluster
        self.defaults = defaults or EffectivePolicies()
        self.clusters = Clusters(metadata)
        self.tenants = Tenants(metadata)
        self.namespaces = NamespaceRecords(metadata)
        self.topics: TopicPolicies | None = None
        """The topics' own policies; None if topics cannot have policies of their own."""
        self._listeners: list[Listener] = []
        # Registered before the listeners below, so that these read the changed records.
        self._known = MetadataCache(metadata, POLICIES, self._read, most=_MAX_KNOWN)
        metadata.listen(POLICIES, self._metadata_changed)
        metadata.listen(LOCAL_POLICIES, self._local_changed)
        metadata.listen_session(self._session_changed)

    async def storage_of(self, managed_ledger: str) -> OffloadStorage | None:
        """Returns the store to which new ledgers of a managed ledger are offloaded; None if new ledgers are
        not offloaded, or the policies cannot be read.

        :param managed_ledger: the name; its topic and namespace may have been deleted
        """
        try:
            name = TopicName.from_path(managed_ledger)
            found = await self.of_namespace(name.namespace_name)
        except (InvalidName, BrokerError):
            found = self.defaults
        try:
            policy = offload_policy(found.offload)
        except MetadataFailure:
            return None
        return None if policy is None else policy.storage

    async def use(self, defaults: EffectivePolicies) -> None:
        """Applies changed settings of the broker; all listeners have been called when this returns."""
        self.defaults = defaults
        self._known.forget_all()
        await self._tell(None)

    def listen(self, listener: Listener) -> None:
        """Adds a listener, which is awaited before the request for a change is answered."""
        self._listeners.append(listener)

    async def all_namespaces(self) -> Sequence[str]:
        """Returns the namespaces of all tenants.

        :raises MetadataFailure: the namespaces cannot be listed now
        """
        tenants = await self.tenants.names()
        return [name for tenant in tenants for name in await self.namespaces.of_tenant(tenant)]

    # Policies in effect

    async def of_namespace(self, name: NamespaceName) -> EffectivePolicies:
        """Returns the policies in effect for topics of a namespace that have no policies of their own.

        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: a record is not in the form that brokers write
        """
        return await self._known.get(f"{POLICIES}/{name.path}")

    async def _read(self, path: str) -> EffectivePolicies:
        if heartbeat_of(_namespace(path)) is not None:
            return of_heartbeats(self.defaults)
        record = await self.namespaces.get(_namespace(path))
        if record.get("deleted"):
            raise missing()
        found = of_namespace(self.defaults, record, self._cluster)
        return in_this_cluster(found, await self.namespaces.local(_namespace(path)))

    async def of_topic(self, name: TopicName) -> EffectivePolicies:
        """Returns the policies in effect for a topic; the topic need not exist. A partition has its topic's
        policies.

        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: a record is not in the form that brokers write
        """
        found = await self.of_namespace(name.namespace_name)
        if name.reserved:
            return of_system_topic(found)
        if heartbeat_of(name.namespace_name) is not None:
            return found
        if self.topics is not None:
            own = await self.topics.of(name.base)
            if own:
                found = of_topic(found, own)
        return found

    # Changes

    async def change_namespace(self, name: NamespaceName, work: Callable[[Record], None]) -> None:
        """Applies ``work`` to the policies of a namespace; loaded topics have applied them when this returns.

        ``work`` is called again if the record changed in between.

        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: ``work`` left an invalid policy
        """

        def checked(record: Record) -> None:
            work(record)
            of_namespace(self.defaults, record, self._cluster)

        await self.namespaces.change(name, checked)
        self._known.forget(f"{POLICIES}/{name.path}")
        await self.tell(name, None)

    async def forget(self, topic: TopicName) -> None:
        """Deletes the policies of a deleted topic and, for a persistent topic, the permissions on it."""
        if self.topics is not None:
            await self.topics.delete(topic)
        if topic.persistent:
            await self._forget_grants(topic)

    async def _forget_grants(self, topic: TopicName) -> None:
        """Revokes the permissions on a deleted topic, because a new topic may get its name.

        :raises MetadataFailure: the permissions cannot be revoked now
        """
        name = topic.namespace_name
        try:
            if _granted_for(await self.namespaces.get(name), topic):
                await self.change_namespace(name, lambda record: _take_back(record, topic))
        except NamespaceNotFound:
            # The namespace was deleted as well, with all its grants.
            return

    async def change_local(self, name: NamespaceName, work: Callable[[Record], None]) -> None:
        """Applies ``work`` to the ``LocalPolicies`` of a namespace.

        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: ``work`` left an invalid policy
        """

        def checked(record: Record) -> None:
            work(record)
            in_this_cluster(self.defaults, record)

        await self.namespaces.change_local(name, checked)
        self._known.forget(f"{POLICIES}/{name.path}")
        await self.tell(name, None)

    async def tell(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        """Reports a change of policies to all listeners; the arguments are those of :data:`Listener`."""
        for listener in self._listeners:
            await listener(namespace, topic)

    def _metadata_changed(self, change: Change) -> None:
        try:
            name = _namespace(change.path)
        except InvalidName:
            # The path is that of a tenant, or one that brokers do not write.
            return
        self._tell_soon(name)

    def _local_changed(self, change: Change) -> None:
        path = POLICIES + change.path[len(LOCAL_POLICIES) :]
        self._known.forget(path)
        self._metadata_changed(Change(change.kind, path))

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._tell_soon(None)

    def _tell_soon(self, name: NamespaceName | None) -> None:
        """Reports a change by this or another broker to the listeners, in a task."""
        self._tasks.start(self._tell(name), "reporting a change")

    async def _tell(self, name: NamespaceName | None) -> None:
        try:
            await self.tell(name, None)
        except (BrokerError, MetadataError, LedgerError, ManagedLedgerError) as error:
            log.warning(
                "cannot read changed policies; trying again",
                extra={"namespace": str(name or "all"), "error": str(error)},
            )
            self._io.loop.call_later(_RETRY_SECONDS, self._tell_soon, name)


def _namespace(path: str) -> NamespaceName:
    """Returns the namespace whose policies are stored at ``path``.

    :raises InvalidName: no namespace is stored at ``path``
    """
    return NamespaceName.parse(path[len(POLICIES) + 1 :])


def _granted_for(record: Record, topic: TopicName) -> list[str]:
    """Returns those names of a topic and its partitions that occur in the permissions of a namespace."""
    granted = (record.get("auth_policies") or {}).get("destination_auth") or {}
    return [name for name in granted if str(topic) in (name, name.rpartition(PARTITION_SUFFIX)[0])]


def _take_back(record: Record, topic: TopicName) -> None:
    gone = _granted_for(record, topic)
    if gone:
        grants = record["auth_policies"]
        left = {name: roles for name, roles in grants["destination_auth"].items() if name not in gone}
        record["auth_policies"] = {**grants, "destination_auth": left}
