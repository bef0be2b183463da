"""Namespaces in the metadata store: their policies and their bundles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from magnetar.broker.policies.records import ATTEMPTS, Record, change, create, encode, read
from magnetar.errors import (
    AlreadyExists,
    ConcurrentModification,
    MetadataFailure,
    NamespaceNotFound,
    PreconditionFailed,
    TenantNotFound,
)
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore, NodeMissing, NodeNotEmpty
from magnetar.naming.bundles import Bundles
from magnetar.naming.namespace_name import LOCAL_POLICIES, POLICIES, NamespaceName


def missing() -> NamespaceNotFound:
    return NamespaceNotFound("Namespace does not exist")


def _below(name: NamespaceName) -> PreconditionFailed:
    return PreconditionFailed(f"{name} is the prefix of other namespaces")


def new_policies(clusters: Sequence[str], bundles: Mapping[str, object]) -> Record:
    """Returns the policies of a new namespace.

    :param clusters: the names of its replication clusters
    :param bundles: ``BundlesData`` of the namespace
    """
    return {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": list(clusters),
        "allowed_clusters": [],
        "bundles": dict(bundles),
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


def divided(count: int) -> Record:
    """Returns ``BundlesData`` of ``count`` bundles of the same size.

    :param count: 1 … 65536
    """
    boundaries = Bundles.even(count).texts()
    return {"boundaries": boundaries, "numBundles": len(boundaries) - 1}


class NamespaceRecords:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def of_tenant(self, tenant: str) -> Sequence[str]:
        """Returns the full names of a tenant's namespaces, sorted.

        :raises TenantNotFound: the tenant does not exist
        """
        root = f"{POLICIES}/{tenant}"
        if not await self._metadata.exists(root):
            raise TenantNotFound("Tenant does not exist")
        names = []
        for child in await self._metadata.children(root):
            if await self._is_namespace(f"{root}/{child}"):
                names.append(f"{tenant}/{child}")
            below = await self._metadata.children(f"{root}/{child}")
            names.extend(f"{tenant}/{child}/{local}" for local in below)
        return sorted(names)

    async def of_cluster(self, tenant: str, cluster: str) -> Sequence[str]:
        """Returns the full names of a tenant's legacy namespaces that have the cluster in their names,
        sorted."""
        names = await self._metadata.children(f"{POLICIES}/{tenant}/{cluster}")
        return [f"{tenant}/{cluster}/{local}" for local in names]

    async def _is_namespace(self, path: str) -> bool:
        """Whether the node at ``path`` has policies; False also if the node cannot be read, as in Pulsar."""
        try:
            return await read(self._metadata, path) is not None
        except MetadataFailure:
            return False

    async def exists(self, name: NamespaceName) -> bool:
        return await read(self._metadata, f"{POLICIES}/{name.path}") is not None

    async def get(self, name: NamespaceName) -> Record:
        """Returns the policies of a namespace.

        :raises NamespaceNotFound: the namespace does not exist
        """
        found = await read(self._metadata, f"{POLICIES}/{name.path}")
        if found is None:
            raise missing()
        return found

    async def local(self, name: NamespaceName) -> Record:
        """Returns ``LocalPolicies``, which apply to the local cluster only; empty if there is no record."""
        return await read(self._metadata, f"{LOCAL_POLICIES}/{name.path}") or {}

    async def create(self, name: NamespaceName, policies: Mapping[str, object]) -> None:
        """Creates a namespace with its policies.

        :param policies: the complete policies, including ``bundles``
        :raises AlreadyExists: the namespace exists
        :raises ConcurrentModification: the local record of the namespace keeps changing
        """
        migrated = bool(policies.get("migrated"))
        await self._put_new_local(name, {"bundles": policies["bundles"], "migrated": migrated})
        if not await create(self._metadata, f"{POLICIES}/{name.path}", policies):
            raise AlreadyExists("Namespace already exists")

    async def _put_new_local(self, name: NamespaceName, local: Record) -> None:
        """Writes ``LocalPolicies`` of a namespace that is about to be created.

        An existing record belongs to a deleted namespace of that name, or to a namespace whose creation
        failed half-way; the record is replaced, so that it has no effect on the new namespace. Where several
        clusters share a configuration store, the two records of a namespace are in two stores, which one
        transaction cannot change. The local record is written first, because it has no effect without
        policies.

        :raises AlreadyExists: the namespace exists
        :raises ConcurrentModification: the local record keeps changing
        """
        path = f"{LOCAL_POLICIES}/{name.path}"
        for _ in range(ATTEMPTS):
            # Read before the check that there are no policies: the version that is replaced is then a stale
            # one.
            stale = await self._metadata.get(path)
            if await self.exists(name):
                raise AlreadyExists("Namespace already exists")
            try:
                await self._metadata.put(
                    path, encode(local), MUST_NOT_EXIST if stale is None else stale.version
                )
            except BadVersion:
                # The namespace is being created elsewhere, or was.
                continue
            return
        raise ConcurrentModification("Concurrent modification")

    async def change(self, name: NamespaceName, work: Callable[[Record], None]) -> Record:
        """Applies ``work`` to the policies of a namespace; returns the changed policies.

        :raises NamespaceNotFound: the namespace does not exist
        """
        return await change(self._metadata, f"{POLICIES}/{name.path}", work, missing())

    async def change_local(self, name: NamespaceName, work: Callable[[Record], None]) -> Record:
        """Applies ``work`` to the ``LocalPolicies`` of a namespace; returns the changed policies.

        :raises NamespaceNotFound: the namespace does not exist
        """
        return await change(self._metadata, f"{LOCAL_POLICIES}/{name.path}", work, missing())

    async def set_migrated(self, name: NamespaceName, migrated: bool) -> None:
        """Sets whether the namespace has migrated from this cluster to another cluster.

        :raises ConcurrentModification: the record keeps changing
        """
        if not await create(self._metadata, f"{LOCAL_POLICIES}/{name.path}", {"migrated": migrated}):
            await self.change_local(name, lambda record: record.update(migrated=migrated))

    async def divide(self, name: NamespaceName, work: Callable[[Record], None]) -> None:
        """Changes a namespace's bundles in its ``LocalPolicies`` and, as Pulsar does, in its ``Policies``.

        :param work: sets ``bundles``; if it raises, nothing is changed
        """
        await create(self._metadata, f"{LOCAL_POLICIES}/{name.path}", {"migrated": False})
        divided = await change(self._metadata, f"{LOCAL_POLICIES}/{name.path}", work, missing())
        await self.change(name, lambda record: record.update(bundles=divided["bundles"]))

    async def delete(self, name: NamespaceName) -> None:
        """Deletes the records of a namespace; the caller deletes the topics.

        The policies are deleted last. While they exist, the deletion can be repeated, and no new namespace
        can be created whose records this deletion would delete.

        :raises NamespaceNotFound: the namespace does not exist
        :raises PreconditionFailed: legacy namespaces exist below its name
        """
        policies = f"{POLICIES}/{name.path}"
        if not await self.exists(name):
            raise missing()
        await self.check_nothing_below(name)
        for root in ("/namespace", LOCAL_POLICIES):
            await self._delete_quietly(f"{root}/{name.path}")
        try:
            await self._metadata.delete(policies)
        except NodeMissing as error:
            raise missing() from error
        except NodeNotEmpty as error:
            raise _below(name) from error

    async def check_nothing_below(self, name: NamespaceName) -> None:
        """Checks that no legacy namespaces exist below the name of a namespace.

        :raises PreconditionFailed: legacy namespaces exist below the name
        """
        if await self._metadata.children(f"{POLICIES}/{name.path}"):
            raise _below(name)

    async def _delete_quietly(self, path: str) -> None:
        for child in await self._metadata.children(path):
            await self._delete_quietly(f"{path}/{child}")
        with suppress(NodeMissing):
            await self._metadata.delete(path)
