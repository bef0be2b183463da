"""The policy store: asks and changes policies, and tells topics when what counts for them has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from magnetar.broker.policies.clusters import Clusters
from magnetar.broker.policies.effective import (
    EffectivePolicies,
    of_namespace,
    of_system_topic,
    of_topic,
)
from magnetar.broker.policies.namespaces import NamespaceRecords, missing
from magnetar.broker.policies.records import Record
from magnetar.broker.policies.tenants import Tenants
from magnetar.io.interfaces import Io
from magnetar.metadata.interface import Change, MetadataStore
from magnetar.naming.errors import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

_POLICIES = "/admin/policies/"
_MAX_KNOWN = 10_000
"""Namespaces whose policies are remembered."""

Listener = Callable[[NamespaceName, TopicName | None], Awaitable[None]]
"""Told of a namespace whose policies changed; with a topic when only its own did (its partitions' too)."""


class TopicPolicies(Protocol):
    """Where topics have policies of their own."""

    async def of(self, topic: TopicName) -> Mapping[str, Any]:
        """``TopicPolicies`` that count for a topic (not a partition); empty where nothing is set."""
        ...

    async def own(self, topic: TopicName, *, everywhere: bool) -> Mapping[str, Any]:
        """Those for this cluster, or those for all."""
        ...

    async def change(self, topic: TopicName, work: Callable[[Record], None], *, everywhere: bool) -> None:
        """Applies ``work``; durable when this returns."""
        ...

    async def delete(self, topic: TopicName) -> None:
        """Removes all of them."""
        ...

    def appeared(self, namespace: NamespaceName) -> None:
        """Where they are kept was made."""
        ...

    def forget(self, namespace: NamespaceName) -> None:
        """The namespace is gone."""
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
        self._known: dict[NamespaceName, EffectivePolicies] = {}
        self._drops = 0
        self._changing: dict[NamespaceName, int] = {}
        self._listeners: list[Listener] = []
        metadata.listen(self._metadata_changed)

    def listen(self, listener: Listener) -> None:
        """``listener`` is awaited before a change is answered."""
        self._listeners.append(listener)

    # What counts

    async def of_namespace(self, name: NamespaceName) -> EffectivePolicies:
        """What counts for topics of a namespace that have no policies of their own.

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: what is stored is not what a broker writes
        """
        known = self._known.get(name)
        if known is None:
            drops = self._drops
            record = await self.namespaces.get(name)
            if record.get("deleted"):
                raise missing()
            known = of_namespace(self.defaults, record, self._cluster)
            if drops == self._drops:
                self._remember(name, known)
        return known

    def _remember(self, name: NamespaceName, policies: EffectivePolicies) -> None:
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[name] = policies

    async def of_topic(self, name: TopicName) -> EffectivePolicies:
        """What counts for a topic, which need not exist; partitions share what is set for their topic.

        :raises NamespaceNotFound: there is no such namespace
        :raises MetadataFailure: what is stored is not what a broker writes
        """
        found = await self.of_namespace(name.namespace_name)
        if name.reserved:
            return of_system_topic(found)
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

        self._changing[name] = self._changing.get(name, 0) + 1
        try:
            await self.namespaces.change(name, checked)
        finally:
            self._changing[name] -= 1
            if not self._changing[name]:
                del self._changing[name]
        self._forget(name)
        await self.tell(name, None)

    async def tell(self, namespace: NamespaceName, topic: TopicName | None) -> None:
        """Tells all listeners of a change."""
        for listener in self._listeners:
            await listener(namespace, topic)

    def _forget(self, name: NamespaceName) -> None:
        self._drops += 1
        self._known.pop(name, None)

    def _metadata_changed(self, change: Change) -> None:
        if not change.path.startswith(_POLICIES):
            return
        try:
            name = NamespaceName.parse(change.path[len(_POLICIES) :])
        except InvalidName:
            # That of a tenant, or nothing that a broker writes.
            return
        self._forget(name)
        if name not in self._changing:
            self._io.loop.create_task(self.tell(name, None))
