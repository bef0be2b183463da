"""Records of policies: JSON objects in the metadata store, changed under their version.

The records of tenants, resource groups and clusters are in this module.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from magnetar.broker.policies.values import GroupRates, texts
from magnetar.errors import (
    AlreadyExists,
    BrokerError,
    ClusterNotFound,
    ConcurrentModification,
    Conflict,
    HasChildren,
    MetadataFailure,
    NotFound,
    PreconditionFailed,
    TenantNotFound,
)
from magnetar.io.interfaces import Io
from magnetar.metadata.following import Follower
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataStore,
    Node,
    NodeMissing,
    NodeNotEmpty,
)
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import POLICIES, check_part

Record = dict[str, Any]
ATTEMPTS = 20
"""The maximum number of attempts at a change while other writers keep changing the record."""
log = logging.getLogger(__name__)
_GROUPS = "/admin/resourcegroups"
GLOBAL = "global"
"""Stands for all clusters in the names of legacy namespaces; tenants cannot have it as an allowed cluster."""
CLUSTERS = "/admin/clusters"
"""The parent node of the records of clusters."""
PEERS = "peerClusterNames"
"""The field of ``ClusterData`` with a cluster's peers, which serve namespaces that the cluster does not
serve.
"""
_POLICIES_OF_CLUSTER = "policies"


def decode(node: Node) -> Record:
    """Returns the JSON object in a node.

    :raises MetadataFailure: the value is not a JSON object
    """
    try:
        value = json.loads(node.value or b"{}")
    except (ValueError, RecursionError) as error:
        raise MetadataFailure(f"{node.path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise MetadataFailure(f"{node.path}: must be an object, not {type(value).__name__}")
    return value


def encode(value: Mapping[str, object]) -> bytes:
    """Returns the JSON of a record, without null fields, as Pulsar writes it."""
    kept = {key: item for key, item in value.items() if item is not None}
    return json.dumps(kept, separators=(",", ":")).encode()


async def read(metadata: MetadataStore, path: str) -> Record | None:
    """Returns a record; None if the node does not exist, or is only the parent of other nodes.

    :raises MetadataFailure: the value is not a JSON object
    """
    node = await metadata.get(path)
    if node is None or not node.value:
        return None
    return decode(node)


async def create(metadata: MetadataStore, path: str, value: Mapping[str, object]) -> bool:
    """Creates a record; returns False if the node exists."""
    node = await metadata.get(path)
    if node is not None and node.value:
        return False
    try:
        await metadata.put(path, encode(value), MUST_NOT_EXIST if node is None else node.version)
    except BadVersion:
        # Another broker wrote the record in between: that one stays.
        return False
    return True


async def change(
    metadata: MetadataStore, path: str, work: Callable[[Record], None], missing: BrokerError
) -> Record:
    """Applies ``work`` to a record. If another writer has changed the record, ``work`` is called again with
    the new record, so it must not keep state between calls.

    :returns: the record as written
    :param missing: raised if the record does not exist
    :raises ConcurrentModification: the record keeps changing
    :raises MetadataFailure: the stored value is not a JSON object
    """
    for _ in range(ATTEMPTS):
        node = await metadata.get(path)
        if node is None or not node.value:
            raise missing
        value = decode(node)
        work(value)
        try:
            await metadata.put(path, encode(value), node.version)
        except BadVersion:
            continue
        return value
    raise ConcurrentModification("Concurrent modification")


def _no_tenant() -> TenantNotFound:
    return TenantNotFound("Tenant does not exist")


class Tenants:
    """Tenants in the metadata store."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, changed: Callable[[str], None]) -> None:
        """Adds a listener, called with the name of each tenant that this broker changes.

        The calls are made before the request for the change is answered.
        """
        self._listeners.append(changed)

    def _tell(self, name: str) -> None:
        for changed in self._listeners:
            changed(name)

    async def names(self) -> Sequence[str]:
        """Returns the names of the tenants, sorted."""
        return await self._metadata.children(POLICIES)

    async def get(self, name: str) -> Mapping[str, object]:
        """Returns the record of a tenant.

        :raises TenantNotFound: the tenant does not exist
        """
        found = await read(self._metadata, f"{POLICIES}/{name}")
        if found is None:
            raise _no_tenant()
        return found

    async def create(self, name: str, value: Mapping[str, object]) -> None:
        """Creates the record of a tenant.

        :raises AlreadyExists: the tenant exists
        """
        if not await create(self._metadata, f"{POLICIES}/{name}", value):
            raise AlreadyExists("Tenant already exist")
        self._tell(name)

    async def change(self, name: str, work: Callable[[Record], None]) -> None:
        """Applies ``work`` to the record of a tenant, as :func:`change` does.

        :raises TenantNotFound: the tenant does not exist
        """
        await change(self._metadata, f"{POLICIES}/{name}", work, _no_tenant())
        self._tell(name)

    async def delete(self, name: str) -> None:
        """Deletes the record of a tenant.

        :raises TenantNotFound: the tenant does not exist
        :raises HasChildren: the tenant has namespaces
        """
        path = f"{POLICIES}/{name}"
        for child in await self._metadata.children(path):
            # A deleted legacy namespace leaves an empty parent with the name of its cluster behind.
            below = await self._metadata.children(f"{path}/{child}")
            if below or await read(self._metadata, f"{path}/{child}") is not None:
                raise HasChildren("The tenant still has active namespaces")
            await self._metadata.delete(f"{path}/{child}")
        try:
            await self._metadata.delete(path)
        except NodeMissing as error:
            raise _no_tenant() from error
        except NodeNotEmpty as error:
            raise HasChildren("The tenant still has active namespaces") from error
        self._tell(name)


def _no_group() -> NotFound:
    return NotFound("ResourceGroup does not exist")


class ResourceGroupRecords:
    """Resource groups in the metadata store. After a change, the records of all groups are passed to
    ``define``.

    :param define: called with the records of all groups, by name, after each change
    """

    def __init__(
        self, io: Io, metadata: MetadataStore, define: Callable[[Mapping[str, GroupRates]], None]
    ) -> None:
        self._metadata = metadata
        self._define = define
        self._follower = Follower(io, metadata, _GROUPS, "resource groups", self.take)

    async def names(self) -> Sequence[str]:
        """Returns the names of the groups, sorted."""
        return await self._metadata.children(_GROUPS)

    async def get(self, name: str) -> Record:
        """Returns the record of a resource group.

        :raises NotFound: the group does not exist
        """
        found = await read(self._metadata, f"{_GROUPS}/{name}")
        if found is None:
            raise _no_group()
        return found

    async def put(self, name: str, given: Mapping[str, object]) -> None:
        """Creates a group, or changes the given fields of an existing group; limits are in effect when this
        returns."""

        def merge(record: Record) -> None:
            record.update(given)

        if not await create(self._metadata, f"{_GROUPS}/{name}", given):
            await change(self._metadata, f"{_GROUPS}/{name}", merge, _no_group())
        await self.take()

    async def delete(self, name: str) -> None:
        """Deletes the record of a resource group.

        :raises NotFound: the group does not exist
        """
        try:
            await self._metadata.delete(f"{_GROUPS}/{name}")
        except NodeMissing as error:
            raise _no_group() from error
        await self.take()

    # Groups in effect

    async def take(self) -> None:
        """Reads all groups and passes them to ``define``."""
        found: dict[str, GroupRates] = {}
        for name in await self.names():
            try:
                record = await read(self._metadata, f"{_GROUPS}/{name}")
                if record is not None:
                    found[name] = GroupRates.read(record)
            except MetadataFailure as error:
                log.error(
                    "cannot read the resource group; ignoring it", extra={"group": name, "error": str(error)}
                )
        self._define(found)

    def stop(self) -> None:
        self._follower.stop()


def policies_path(name: str) -> str:
    """Returns the path of a cluster's ``ClusterPolicies``."""
    return f"{CLUSTERS}/{name}/{_POLICIES_OF_CLUSTER}"


def _no_cluster() -> ClusterNotFound:
    return ClusterNotFound("Cluster does not exist")


class Clusters:
    """Clusters in the metadata store."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def names(self) -> Sequence[str]:
        """Returns the names of the clusters, sorted, without the pseudo-cluster ``global``."""
        return [name for name in await self._metadata.children(CLUSTERS) if name != GLOBAL]

    async def exists(self, name: str) -> bool:
        """Whether the cluster exists; False also for an invalid name."""
        try:
            check_part("cluster", name)
        except InvalidName:
            return False
        return await self._metadata.exists(f"{CLUSTERS}/{name}")

    async def get(self, name: str) -> Mapping[str, object]:
        """Returns the record of a cluster.

        :raises ClusterNotFound: the cluster does not exist
        """
        try:
            check_part("cluster", name)
        except InvalidName as error:
            raise _no_cluster() from error
        found = await read(self._metadata, f"{CLUSTERS}/{name}")
        if found is None:
            raise _no_cluster()
        return {key: value for key, value in found.items() if value is not None}

    async def check_peers(self, clusters: Sequence[str]) -> None:
        """Checks that no two clusters of a list are peers; clusters without a record are ignored.

        :raises Conflict: one cluster of the list is a peer of another cluster of the list
        """
        for name in clusters:
            try:
                peers = texts((await self.get(name)).get(PEERS) or [])
            except ClusterNotFound:
                continue
            if not set(peers).isdisjoint(clusters):
                raise Conflict(
                    f"{name}'s peer-clusters [{', '.join(peers)}] can't be part of replication-clusters "
                    f"[{', '.join(clusters)}]"
                )

    async def create(self, name: str, value: Mapping[str, object]) -> None:
        """Creates the record of a cluster.

        :raises AlreadyExists: the cluster exists
        """
        if not await create(self._metadata, f"{CLUSTERS}/{name}", value):
            raise AlreadyExists("Cluster already exists")

    async def change(self, name: str, work: Callable[[Record], None]) -> None:
        """Applies ``work`` to the record of a cluster, as :func:`change` does.

        :raises ClusterNotFound: the cluster does not exist
        """
        await change(self._metadata, f"{CLUSTERS}/{name}", work, _no_cluster())

    async def policies(self, name: str) -> Mapping[str, object]:
        """Returns ``ClusterPolicies``: whether the cluster has migrated, and where to.

        :raises NotFound: the cluster has no such policies
        """
        found = await read(self._metadata, policies_path(name))
        if found is None:
            raise NotFound("Cluster does not exist")
        return found

    async def set_policies(self, name: str, value: Mapping[str, object]) -> None:
        """Replaces the policies of a cluster.

        :raises ClusterNotFound: the cluster does not exist
        :raises ConcurrentModification: the record keeps changing
        """
        if not await self.exists(name):
            raise _no_cluster()
        path = policies_path(name)
        if not await create(self._metadata, path, value):

            def replace(record: Record) -> None:
                record.clear()
                record.update(value)

            await change(self._metadata, path, replace, _no_cluster())

    async def delete(self, name: str) -> None:
        """Deletes the record of a cluster.

        :raises ClusterNotFound: the cluster does not exist
        :raises PreconditionFailed: the cluster has legacy namespaces, failure domains or isolation policies
        """
        for tenant in await self._metadata.children(POLICIES):
            if await self._metadata.children(f"{POLICIES}/{tenant}/{name}"):
                raise PreconditionFailed("Cluster not empty")
        if await self._metadata.children(f"{CLUSTERS}/{name}") == [_POLICIES_OF_CLUSTER]:
            with suppress(NodeMissing):
                await self._metadata.delete(policies_path(name))
        try:
            await self._metadata.delete(f"{CLUSTERS}/{name}")
        except NodeMissing as error:
            raise _no_cluster() from error
        except NodeNotEmpty as error:
            raise PreconditionFailed("Cluster not empty") from error
