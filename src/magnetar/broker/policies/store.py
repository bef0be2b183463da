"""The policy store: asks and changes policies, and tells topics when what counts for them has changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from magnetar.broker.policies.clusters import Clusters
from magnetar.broker.policies.effective import (
    EffectivePolicies,
    in_this_cluster,
    of_heartbeats,
    of_namespace,
    of_system_topic,
    of_topic,
)
from magnetar.broker.policies.namespaces import LOCAL, NamespaceRecords, missing
from magnetar.broker.policies.records import Record
from magnetar.broker.policies.tenants import Tenants
from magnetar.errors import BrokerError, NamespaceNotFound
from magnetar.io.interfaces import Io
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.interface import Change, MetadataError, MetadataStore, SessionEvent
from magnetar.naming.errors import InvalidName
from magnetar.naming.heartbeats import heartbeat_of
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import PARTITION_SUFFIX, TopicName

log = logging.getLogger(__name__)

_POLICIES = "/admin/policies"
_MAX_KNOWN = 10_000
"""Namespaces whose policies are remembered."""

_RETRY_SECONDS = 1.0
"""Until listeners are told again of a change that they could not read."""

Listener = Callable[[NamespaceName | None, TopicName | None], Awaitable[None]]
"""Told of a namespace whose policies changed; with a topic when only its own did (its partitions' too).
Without a namespace those of any may have changed. May be told of one change more than once."""


CHANGE_EVENTS = "__change_events"
"""The topic of a namespace that has the policies of the others."""


class TopicPolicies(Protocol):
    """Where topics have policies of their own: in system topics, a room above this one."""

    async def of(self, topic: TopicName) -> Mapping[str, Any]:
        """``TopicPolicies`` that count for a topic (not a partition); empty where nothing is set."""
        ...

    async def own(self, topic: TopicName, *, everywhere: bool) -> Mapping[str, Any]:
        """Those for this cluster, or those for all."""
        ...

    async def change(self, topic: TopicName, work: Callable[[Record], None], *, everywhere: bool) -> None:
        """Applies ``work``; durable when this returns."""
        ...

    async def delete(self, topic: TopicName, *, elsewhere: bool = False) -> None:
        """Removes all of them.

        :param elsewhere: in other clusters, too. A topic that is deleted here may go on there
        """
        ...

    def appeared(self, namespace: NamespaceName) -> None:
        """Where they are kept was made."""
        ...

    def forget(self, namespace: NamespaceName) -> None:
        """The namespace is gone."""
        ...

    async def close(self) -> None:
        """Nothing is followed any more."""
        ...


class PolicyStore:
    """Answers from memory where it can: what it knows is dropped when the metadata changes."""

    def __init__(
        self, io: Io, metadata: MetadataStore, cluster: str, defaults: EffectivePolicies | None = None
    ) -> None:
        """:param defaults: what the broker's settings say"""
        self._io = io
        self._cluster = cluster
        self.defaults = defaults or EffectivePolicies()
        self.clusters = Clusters(metadata)
        self.tenants = Tenants(metadata)
        self.namespaces = NamespaceRecords(metadata)
        self.topics: TopicPolicies | None = None
        """None: topics have none of their own."""
        self._listeners: list[Listener] = []
        # Before the listeners here: what they read is read anew.
        self._known = MetadataCache(metadata, _POLICIES, self._read, most=_MAX_KNOWN)
        metadata.listen(_POLICIES, self._metadata_changed)
        metadata.listen(LOCAL, self._local_changed)
        metadata.listen_session(self._session_changed)

    async def use(self, defaults: EffectivePolicies) -> None:
        """The broker's settings say something else from now on; listeners know when this returns."""
        self.defaults = defaults
        self._known.forget_all()
        await self._tell(None)

    def listen(self, listener: Listener) -> None:
        """``listener`` is awaited before a change is answered."""
        self._listeners.append(listener)

    async def all_namespaces(self) -> Sequence[str]:
        """Of all tenants. :raises MetadataFailure: they cannot be listed now"""
        tenants = await self.tenants.names()
        return [name for tenant in tenants for name in await self.namespaces.of_tenant(tenant)]

    # What counts

    async def of_namespace(self, name: NamespaceName) -> EffectivePolicies:
        """What counts for topics of a namespace that have no policies of their own.

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: what is stored is not what a broker writes
        """
        return await self._known.get(f"{_POLICIES}/{name.path}")

    async def _read(self, path: str) -> EffectivePolicies:
        if heartbeat_of(_namespace(path)) is not None:
            return of_heartbeats(self.defaults)
        record = await self.namespaces.get(_namespace(path))
        if record.get("deleted"):
            raise missing()
        found = of_namespace(self.defaults, record, self._cluster)
        return in_this_cluster(found, await self.namespaces.local(_namespace(path)))

    async def of_topic(self, name: TopicName) -> EffectivePolicies:
        """What counts for a topic, which need not exist; partitions share what is set for their topic.

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: what is stored is not what a broker writes
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
        """Applies ``work`` to the policies of a namespace; live topics go by them when this returns.

        ``work`` may be called again when somebody else wrote in between.

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: ``work`` left something that is no policy
        """

        def checked(record: Record) -> None:
            work(record)
            of_namespace(self.defaults, record, self._cluster)

        await self.namespaces.change(name, checked)
        self._known.forget(f"{_POLICIES}/{name.path}")
        await self.tell(name, None)

    async def forget_grants(self, topic: TopicName) -> None:
        """Takes back what was granted for a topic that is gone: another one may have its name.

        :raises MetadataFailure: it cannot be done now
        """
        name = topic.namespace_name
        try:
            if _granted_for(await self.namespaces.get(name), topic):
                await self.change_namespace(name, lambda record: _take_back(record, topic))
        except NamespaceNotFound:
            # It went as well, with all that it granted.
            return

    async def change_local(self, name: NamespaceName, work: Callable[[Record], None]) -> None:
        """The same for its ``LocalPolicies``.

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: ``work`` left something that is no policy
        """

        def checked(record: Record) -> None:
            work(record)
            in_this_cluster(self.defaults, record)

        await self.namespaces.change_local(name, checked)
        self._known.forget(f"{_POLICIES}/{name.path}")
        await self.tell(name, None)

    async def tell(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        """Tells all listeners of a change."""
        for listener in self._listeners:
            await listener(namespace, topic)

    def _metadata_changed(self, change: Change) -> None:
        try:
            name = _namespace(change.path)
        except InvalidName:
            # That of a tenant, or nothing that a broker writes.
            return
        self._tell_soon(name)

    def _local_changed(self, change: Change) -> None:
        path = _POLICIES + change.path[len(LOCAL) :]
        self._known.forget(path)
        self._metadata_changed(Change(change.kind, path))

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._tell_soon(None)

    def _tell_soon(self, name: NamespaceName | None) -> None:
        """Of what somebody else changed, or this broker: who is told twice reads what is remembered."""
        self._io.loop.create_task(self._tell(name))

    async def _tell(self, name: NamespaceName | None) -> None:
        try:
            await self.tell(name, None)
        except (BrokerError, MetadataError, LedgerError, ManagedLedgerError) as error:
            log.warning(
                "changed policies are not read, trying again",
                extra={"namespace": str(name or "all"), "error": str(error)},
            )
            self._io.loop.call_later(_RETRY_SECONDS, self._tell_soon, name)


def _namespace(path: str) -> NamespaceName:
    """:raises InvalidName: it is no namespace's node"""
    return NamespaceName.parse(path[len(_POLICIES) + 1 :])


def _granted_for(record: Record, topic: TopicName) -> list[str]:
    """Under which names a namespace grants something for a topic: its own, and those of its partitions."""
    granted = (record.get("auth_policies") or {}).get("destination_auth") or {}
    return [name for name in granted if str(topic) in (name, name.rpartition(PARTITION_SUFFIX)[0])]


def _take_back(record: Record, topic: TopicName) -> None:
    gone = _granted_for(record, topic)
    if gone:
        grants = record["auth_policies"]
        left = {name: roles for name, roles in grants["destination_auth"].items() if name not in gone}
        record["auth_policies"] = {**grants, "destination_auth": left}
