"""Administration of namespaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.dispatch.filters import UnknownFilter
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.policies.effective import counting, filter_names, of_namespace
from magnetar.broker.policies.namespaces import divided, new_policies
from magnetar.broker.policies.offload import remove_old_fields, shown, unmasked
from magnetar.broker.policies.records import Record
from magnetar.broker.policies.rules import check_allowed, check_allows_replication, check_namespace
from magnetar.broker.service import BrokerService
from magnetar.broker.serving.live_topics import LiveTopics
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    BrokerError,
    HasChildren,
    InvalidName,
    InvalidRequest,
    MetadataFailure,
    NamespaceNotFound,
    NotAllowed,
    NotSupported,
    PreconditionFailed,
    ServiceNotReady,
)
from magnetar.io.slices import Slice, each
from magnetar.io.waiting import finished, together
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursors import AT_ONCE
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming import name_rules as naming
from magnetar.naming.bundles import MAX_BUNDLES, Bundles
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.security.authentication import Principal
from magnetar.security.authorization import NamespaceOperation, Target, TopicOperation

if TYPE_CHECKING:
    from magnetar.broker.admin.offloaded_objects import OffloadedObjects

_MOST_LOOKED_AT = 2000
_MOST_REACHABLE = 100
_TOPICS_AT_ONCE = 8
"""The maximum number of topics of a bundle that are processed at the same time, so that they share
commits."""


class NamespaceAdmin:
    """Administration of namespaces, given as ``tenant/namespace`` or ``tenant/cluster/namespace``."""

    def __init__(self, broker: BrokerService, bundles: BundleAdmin) -> None:
        self._broker = broker
        self._bundles = bundles
        self._live = LiveTopics(broker.topics, broker.beside)
        self._policies = broker.policies
        self._records = broker.policies.namespaces

    async def offloaded_objects(self, namespace: str, *, others: bool) -> OffloadedObjects:
        """Begins to list the namespace's tiered storage; see
        :meth:`magnetar.broker.admin.offloaded_objects.OffloadedObjects.of`."""
        # Imported here because such lists are rarely requested.
        from magnetar.broker.admin.offloaded_objects import OffloadedObjects

        return await OffloadedObjects.of(self._broker, namespace, others=others)

    # Creating and deleting

    async def create(self, namespace: str, given: Mapping[str, Any]) -> None:
        """Creates a namespace.

        :param given: ``Policies``; missing fields get the defaults of a new namespace
        :raises TenantNotFound: no such tenant
        :raises ClusterNotFound: the cluster in a legacy name does not exist
        :raises AlreadyExists: the namespace exists
        :raises InvalidRequest: a policy is malformed or breaks a rule
        :raises Conflict: two clusters of a list are peers
        :raises AuthorizationFailure: the name or a policy contains a cluster that the tenant may not use
        :raises PreconditionFailed: the tenant has too many namespaces
        """
        name = self._broker.parse_namespace(namespace)
        tenant = await self._policies.tenants.get(name.tenant)
        most = self._broker.settings.max_namespaces_per_tenant
        if most and len(await self._records.of_tenant(name.tenant)) >= most:
            raise PreconditionFailed(f"Exceed the maximum number of namespace in tenant :{name.tenant}")
        clusters = given.get("replication_clusters") or []
        own = [] if name.is_global else [str(name.cluster)]
        check_allowed(name.tenant, [*own, *clusters, *given.get("allowed_clusters", ())], tenant)
        await self._policies.clusters.check_peers(clusters)
        await self._policies.clusters.check_peers(given.get("allowed_clusters") or ())
        for cluster in own:
            await self._policies.clusters.get(cluster)
        check_filters(self._broker, "entryFilters", given.get("entryFilters"))
        if not clusters and name.is_global:
            clusters = [self._broker.settings.cluster]
        check_allows_replication(given.get("allowed_clusters") or (), clusters)
        bundles = _bundles(given.get("bundles"), self._broker.settings.default_bundles)
        policies = {**new_policies(clusters, bundles), **given}
        policies.update(replication_clusters=list(clusters), bundles=bundles, deleted=False)
        try:
            settings = self._broker.settings
            counting = of_namespace(self._policies.defaults, policies, settings.cluster)
            check_namespace(counting, one_copy=settings.one_copy)
        except MetadataFailure as error:
            raise InvalidRequest(str(error)) from error
        await self._records.create(name, policies)

    async def delete(self, namespace: str, *, force: bool) -> None:
        """Deletes a namespace.

        :param force: also delete all topics; ``forceDeleteNamespaceAllowed`` must be true
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: the namespace is replicated, or legacy namespaces exist below its name
        :raises ServedElsewhere: the namespace is replicated only to another cluster
        :raises HasChildren: the namespace has topics, on any broker
        :raises ServiceNotReady: a broker that serves some of its bundles does not answer, so nothing is
            deleted
        :raises NotAllowed: forced deletion is disabled
        """
        name = self._broker.parse_namespace(namespace)
        if not await self._records.exists(name):
            raise NamespaceNotFound(f"Namespace {name} does not exist.")
        await self._records.check_nothing_below(name)
        clusters = (await self._records.get(name)).get("replication_clusters") or ()
        if len(clusters) > 1:
            raise PreconditionFailed(
                f"Cannot delete the global namespace {name}. There are still more than one replication "
                "clusters configured."
            )
        if name.is_global and clusters and clusters[0] != self._broker.settings.cluster:
            raise (await self._broker.serving_clusters.named(clusters[0])).redirect()
        if force:
            if not self._broker.settings.force_delete_namespaces:
                raise NotAllowed("Broker doesn't allow forced deletion of namespaces")
            await self.delete_with_topics(name)
            return
        await self._check_empty(name)
        await self._mark(name, deleted=True)
        try:
            # A load that began before the mark may still create a topic.
            await self._loads_settled(name)
            await self._check_empty(name, marked=True)
        except (BrokerError, MetadataError):
            # Nothing has been deleted yet, and a marked namespace serves nothing.
            await self._mark(name, deleted=False)
            raise
        await self._delete_all(name)

    async def delete_with_topics(self, name: NamespaceName) -> None:
        """Deletes a namespace with all its topics; clients are disconnected.

        :raises NamespaceNotFound: no such namespace
        """
        await self._mark(name, deleted=True)
        await self._loads_settled(name)
        await self._delete_all(name)

    async def _mark(self, name: NamespaceName, *, deleted: bool) -> None:
        """Marks a namespace as deleted, or unmarks it. Brokers load no topics of a marked namespace."""
        await self._policies.change_namespace(name, lambda record: record.update(deleted=deleted))

    async def _loads_settled(self, name: NamespaceName) -> None:
        for loading in self._broker.topics.loading_in(name):
            await finished(self._broker.io.loop, loading)

    async def _check_empty(self, name: NamespaceName, *, marked: bool = False) -> None:
        """Checks that a namespace has no topics, on any broker.

        :param marked: whether the namespace is marked as deleted, so that no broker loads its topics
        :raises HasChildren: the namespace has topics
        """
        names = await self._broker.namespaces.persistent_topics(name)
        partitioned = await self._partitioned(name)
        own = (topic for topic in (*names, *partitioned) if not TopicName.parse(topic).reserved)
        if any(own) or await self._live.of_namespace(name, deleting=marked):
            raise HasChildren("Cannot delete non empty namespace")

    async def _partitioned(self, name: NamespaceName) -> list[str]:
        found = await self._broker.namespaces.partitioned_topics(name)
        return found + await self._broker.namespaces.partitioned_topics(name, Domain.NON_PERSISTENT)

    async def _delete_all(self, name: NamespaceName) -> None:
        if self._broker.beside is not None:
            # Every owner gives its bundles up, and because of the mark no broker loads topics of them again.
            await self._bundles.unload_all(str(name))
        topics = map(TopicName.parse, await self._broker.namespaces.persistent_topics(name))
        # Those of the system last: they have records about the others.
        for topic in sorted(topics, key=lambda each: each.reserved):
            await self._broker.topics.delete_stored_topic(topic)
        for live in self._broker.topics.creation.non_persistent(name):
            await self._broker.topics.delete_topic(self._broker.topics.loaded[str(live)])
        for partitioned in await self._partitioned(name):
            await self._broker.namespaces.delete_partitioned(TopicName.parse(partitioned))
        await self._records.delete(name)
        if self._policies.topics is not None:
            self._policies.topics.forget(name)
        if self._broker.topics.snapshots is not None:
            self._broker.topics.snapshots.forget(name)

    # Policies

    async def policies(self, namespace: str) -> Mapping[str, Any]:
        """Returns ``Policies``: the policies set for a namespace.

        :raises NamespaceNotFound: no such namespace
        """
        found = dict(await self._records.get(self._broker.parse_namespace(namespace)))
        local = await self._records.local(self._broker.parse_namespace(namespace))
        if local.get("migrated"):
            # The flag belongs to this cluster alone, even if clusters share the policies.
            found["migrated"] = True
        if found.get("is_allow_auto_update_schema") is None:
            # Stored only if it was set, but always returned, as in Pulsar.
            found["is_allow_auto_update_schema"] = self._broker.policies.defaults.auto_update_schema
        if found.get("offload_policies"):
            found["offload_policies"] = shown(found["offload_policies"])
        clusters = found.get("replication_clusters") or ()
        if clusters:
            return {**found, "clusterThatCanDeleteNamespace": clusters[0]}
        return found

    async def all_of(self, namespace: str) -> Mapping[str, object]:
        """Returns ``own``, the policies set for the namespace, and ``counting``, the policies in effect for
        its topics that have no policies of their own.

        :raises NamespaceNotFound: no such namespace
        """
        own = await self.policies(namespace)
        effective = await self._policies.of_namespace(self._broker.parse_namespace(namespace))
        return {"own": own, "counting": counting(effective)}

    async def set_policy(
        self, namespace: str, field: str, value: object, *, per_cluster: bool, key: str | None
    ) -> None:
        """Sets a field of ``Policies``; the value None removes the field.

        :param per_cluster: whether the field is a map by cluster, of which only the local cluster's entry is
            set
        :param key: the key of the entry to set if the field is a map; None: set the whole field
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: other policies forbid the value, or the broker cannot apply it
        :raises InvalidRequest: the policy contradicts itself
        """
        check_filters(self._broker, field, value)
        cluster = self._broker.settings.cluster
        inner = cluster if per_cluster else key

        def work(record: Record) -> None:
            if field == "offload_policies":
                _put(record, field, unmasked(value, record.get(field)))
                if value is None:
                    remove_old_fields(record)
            elif inner is None:
                _put(record, field, value)
            else:
                table = dict(record.get(field) or {})
                _put(table, inner, value)
                record[field] = table
            if value is not None:
                counting = of_namespace(self._policies.defaults, record, cluster)
                check_namespace(counting, field, one_copy=self._broker.settings.one_copy)

        await self._policies.change_namespace(self._broker.parse_namespace(namespace), work)

    async def change_map(self, namespace: str, field: str, changes: Mapping[str, object], path: str) -> None:
        """Merges changes into a map of ``Policies``; the value None removes a key.

        :param path: the key of the map inside the field; empty: the field itself is the map
        :raises NamespaceNotFound: no such namespace
        """

        def work(record: Record) -> None:
            table = dict(record.get(field) or {})
            inner = dict(table.get(path) or {}) if path else table
            for key, value in changes.items():
                _put(inner, key, value)
            record[field] = {**table, path: inner} if path else inner

        await self._policies.change_namespace(self._broker.parse_namespace(namespace), work)

    # Local policies

    async def set_migrated(self, namespace: str, migrated: bool) -> None:
        """Sets whether clients of the namespace migrate to the cluster in the local cluster's
        ``ClusterPolicies``.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_namespace(namespace)
        await self._records.get(name)
        await self._records.set_migrated(name, migrated)

    async def local_policies(self, namespace: str) -> Mapping[str, Any]:
        """Returns ``LocalPolicies``; empty for a namespace that does not exist."""
        return await self._records.local(self._broker.parse_namespace(namespace))

    async def set_local_policy(self, namespace: str, field: str, value: object) -> None:
        """Sets a field of ``LocalPolicies``; the value None removes the field.

        :raises NamespaceNotFound: no such namespace
        :raises NotSupported: the ledger store keeps one copy of entries, and has no groups of bookies
        """
        name = self._broker.parse_namespace(namespace)
        if field == "bookieAffinityGroup" and value is not None and self._broker.settings.one_copy:
            raise NotSupported("Bookie affinity groups need a cluster with BookKeeper")
        await self._policies.change_local(name, lambda record: _put(record, field, value))

    # Listing

    async def of_tenant(self, tenant: str) -> Sequence[str]:
        """Returns the full names of a tenant's namespaces, sorted.

        :raises TenantNotFound: no such tenant
        """
        return await self._records.of_tenant(tenant)

    async def reachable(self, principal: Principal) -> Mapping[str, object]:
        """Returns the names that a client may see: in ``namespaces`` the namespaces whose topics it may list,
        and in ``topics`` the topics of other namespaces on which it has a permission.

        At most :data:`_MOST_LOOKED_AT` namespaces and topics are checked, and at most :data:`_MOST_REACHABLE`
        names returned; ``complete`` is false if there may be more.
        """
        may = self._broker.authorizer.refusal
        namespaces: list[str] = []
        topics: list[str] = []
        looked_at, time_slice = 0, Slice(self._broker.io, "requests")
        for tenant in await self._policies.tenants.names():
            for text in await self._records.of_tenant(tenant):
                name = self._broker.parse_namespace(text)
                # The namespace itself, and then the topics on which somebody has a permission.
                places = [Target.of_namespace(name)]
                for place in places:
                    if looked_at == _MOST_LOOKED_AT or len(namespaces) + len(topics) == _MOST_REACHABLE:
                        return {"namespaces": namespaces, "topics": topics, "complete": False}
                    looked_at += 1
                    await time_slice.rest()
                    if place.topic is not None:
                        if await may(principal, TopicOperation.GET_STATS, place) is None:
                            topics.append(str(place.topic))
                    elif await may(principal, NamespaceOperation.GET_TOPICS, place) is None:
                        namespaces.append(text)
                    else:
                        grants = (await self._records.get(name)).get("auth_policies") or {}
                        granted = islice(grants.get("destination_auth") or {}, _MOST_LOOKED_AT)
                        places += [Target.of_topic(TopicName.parse(each)) for each in granted]
        return {"namespaces": namespaces, "topics": topics, "complete": True}

    async def of_tenant_and_cluster(self, tenant: str, cluster: str) -> Sequence[str]:
        """Returns the full names of a tenant's legacy namespaces with ``cluster`` in their names.

        :raises ClusterNotFound: no such cluster
        :raises TenantNotFound: no such tenant
        """
        await self._policies.clusters.get(cluster)
        names = await self._records.of_tenant(tenant)
        return [name for name in names if name.startswith(f"{tenant}/{cluster}/")]

    async def topics(self, namespace: str, *, mode: str, system: bool) -> Sequence[str]:
        """Returns the full names of a namespace's topics, with each partition as a topic, sorted.

        :param mode: ``PERSISTENT``, ``NON_PERSISTENT`` or ``ALL``
        :param system: include system topics
        :raises NamespaceNotFound: no such namespace
        """
        return await self._broker.topic_names(namespace, mode=mode, system=system)

    async def partitioned_topics(self, namespace: str, domain: Domain, *, system: bool) -> Sequence[str]:
        """Returns the full names of a namespace's partitioned topics, sorted.

        :param system: include system topics
        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        found = await self._broker.namespaces.partitioned_topics(name, domain)
        return [topic for topic in found if system or not TopicName.parse(topic).reserved]

    # All topics of a namespace

    async def clear_backlog(
        self, namespace: str, bundle: str | None, subscription: str | None, *, authoritative: bool = False
    ) -> None:
        """Acknowledges all messages of a namespace or a bundle, for one or all subscriptions.

        Calls for the same bundle and subscription are carried out one at a time; all calls that arrive
        meanwhile share one further execution.

        :param bundle: the hash range of the bundle; None: all bundles of the namespace
        :param subscription: the name of the subscription; None: all subscriptions
        :param authoritative: whether the leader has chosen this broker to own ``bundle``, if the bundle has
            no owner
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: no such bundle
        :raises ServiceNotReady: a topic is being unloaded, or was unloaded in the meantime
        """

        async def clear(part: Bundle) -> None:
            await self._broker.clearings.run((part, subscription), partial(clear_now, part))

        async def clear_now(part: Bundle) -> None:
            running = Slice(self._broker.io, "clearing")

            async def clear_topic(name: TopicName) -> None:
                # Processed right after it is loaded, as it may be unloaded while others are loaded.
                topic = await self._broker.topics.persistent_topic(name)
                try:
                    await self._clear(topic, subscription, running)
                except (LedgerError, ManagedLedgerError, MetadataError) as error:
                    if not topic.closing:
                        raise
                    raise ServiceNotReady(
                        f"{name} was unloaded in the meantime: clear its backlog again"
                    ) from error

            await together(self._broker.io.loop, await self._names(part), clear_topic, _TOPICS_AT_ONCE)

        path = f"/clearBacklog/{quote(subscription, '')}" if subscription else "/clearBacklog"
        await self._everywhere(namespace, bundle, clear, path, authoritative=authoritative)

    async def unsubscribe(
        self, namespace: str, bundle: str | None, subscription: str, *, authoritative: bool = False
    ) -> None:
        """Deletes a subscription from all topics of a namespace or a bundle.

        :param bundle: the hash range of the bundle; None: all bundles of the namespace
        :param authoritative: as for :meth:`clear_backlog`
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: the subscription has consumers; or no such bundle
        :raises ServiceNotReady: a topic was unloaded in the meantime
        """

        async def unsubscribe(part: Bundle) -> None:
            for topic in await self._topics(part):
                # Changing a topic that was unloaded meanwhile would have no effect: its next owner loads it
                # from storage.
                topic.check_open()
                found = topic.subscriptions.get(subscription)
                if found is None:
                    continue
                if found.consumers:
                    raise PreconditionFailed("Subscription has active connected consumers")
                await topic.subscriptions.unsubscribe(subscription)

        path = f"/unsubscribe/{quote(subscription, '')}"
        await self._everywhere(namespace, bundle, unsubscribe, path, authoritative=authoritative)

    async def _everywhere(
        self,
        namespace: str,
        bundle: str | None,
        work: Callable[[Bundle], Awaitable[None]],
        path: str,
        *,
        authoritative: bool,
    ) -> None:
        """Applies ``work`` to one bundle of this broker, or to all bundles of a namespace, each at its
        owner."""
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        if bundle is None:
            await self._bundles.each_owner(name, work, "POST", path, place=True)
            return
        part = await self._bundles.named(name, bundle)
        await self._bundles.check_here(part, authoritative=authoritative)
        await work(part)

    async def _clear(self, topic: Topic, subscription: str | None, running: Slice) -> None:
        """Acknowledges all messages of a topic, for one or all subscriptions; several cursors share a
        commit."""

        async def flush(cursor: Cursor) -> None:
            await cursor.flush()
            await running.rest()

        moved: list[Cursor] = []
        for found in list(topic.consuming()):
            if subscription in (None, found.name) and found.cursor.durable:
                found.skip_to(topic.managed_ledger.last_confirmed)
                moved.append(found.cursor)
            await running.rest()
        await together(self._broker.io.loop, moved, flush, AT_ONCE)
        await running.rest()

    async def _names(self, part: Bundle) -> Sequence[TopicName]:
        """Returns the names of all persistent topics of a bundle except system topics."""
        texts = await self._broker.namespaces.persistent_topics(part.namespace)
        names: list[TopicName] = []

        def take(text: str) -> None:
            name = TopicName.parse(text)
            if name in part and not name.reserved:
                names.append(name)

        await each(self._broker.io, "listing", texts, take)
        return names

    async def _topics(self, part: Bundle) -> Sequence[Topic]:
        """Loads and returns all persistent topics of a bundle except system topics."""
        topics = []
        running = Slice(self._broker.io, "loading")
        for name in await self._names(part):
            topics.append(await self._broker.topics.persistent_topic(name))
            await running.rest()
        return topics


def _put(record: Record, field: str, value: object) -> None:
    if value is None:
        record.pop(field, None)
    else:
        record[field] = value


def _bundles(given: object, default: int) -> Record:
    if not isinstance(given, dict) or not (given.get("boundaries") or given.get("numBundles")):
        return divided(default)
    try:
        if given.get("boundaries"):
            texts = Bundles.parse(given["boundaries"]).texts()
            return {"boundaries": texts, "numBundles": len(texts) - 1}
        if type(given["numBundles"]) is not int or not 1 <= given["numBundles"] <= MAX_BUNDLES:
            raise InvalidRequest(f"Invalid number of bundles: 1 to {MAX_BUNDLES} are allowed")
        return divided(given["numBundles"])
    except (naming.InvalidName, TypeError) as error:
        raise InvalidName(f"Invalid bundles: {error}") from error


def check_filters(broker: BrokerService, field: str, value: object) -> None:
    """Checks the names of entry filters. A value of any other field is not checked.

    :param field: a field of the policies of a namespace or a topic
    :param value: the new value; None removes the policy
    :raises InvalidRequest: the broker has no filter of one of the names
    """
    if field != "entryFilters" or value is None:
        return
    try:
        broker.settings.topic.find_filters(filter_names(value))
    except UnknownFilter as error:
        raise InvalidRequest(str(error)) from error
