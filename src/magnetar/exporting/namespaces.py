"""Exports tenants and namespaces, with their policies; creates tenants and namespaces that are missing at the
target.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum

from magnetar.broker.policies.namespaces import new_policies
from magnetar.broker.policies.records import Record, encode, read
from magnetar.exporting.stored_topics import OpenStores
from magnetar.metadata.interface import MUST_NOT_EXIST
from magnetar.naming.namespace_name import LOCAL_POLICIES, POLICIES, NamespaceName

_GROUPS = "/admin/resourcegroups"
_CLUSTERS = ("replication_clusters", "allowed_clusters", "allowedClusters")
_OF_THE_PLACE = frozenset(
    {"bundles", "replication_clusters", "allowed_clusters", "clusterThatCanDeleteNamespace", "migrated"}
)
"""The fields of a namespace's policies that concern its clusters and bundles."""


class WhichPolicies(Enum):
    """The side whose policies are used if a namespace exists on both sides with different policies."""

    REFUSE = "refuse"
    SOURCE = "source"
    TARGET = "target"


async def namespaces_of(side: OpenStores) -> list[NamespaceName]:
    """Returns all namespaces in order, except system namespaces."""
    found = []
    for tenant in await side.metadata.children(POLICIES):
        if tenant == "pulsar":
            continue
        for piece in await side.metadata.children(f"{POLICIES}/{tenant}"):
            node = await side.metadata.get(f"{POLICIES}/{tenant}/{piece}")
            if node is not None and node.value:
                found.append(NamespaceName(tenant, None, piece))
            for local in await side.metadata.children(f"{POLICIES}/{tenant}/{piece}"):
                found.append(NamespaceName(tenant, piece, local))
    return found


class NamespaceExport:
    """Exports the policies of namespaces.

    :param which: the side whose policies are used if both sides have different policies for a namespace
    """

    def __init__(self, source: OpenStores, target: OpenStores, which: WhichPolicies) -> None:
        self._source = source
        self._target = target
        self._which = which

    async def refusals(self, namespace: NamespaceName) -> list[str]:
        """Returns the reasons why a namespace cannot be exported, one sentence each."""
        source, target = self._source, self._target
        record = await read(source.metadata, f"{POLICIES}/{namespace.path}")
        if record is None:
            return [f"{namespace}: {source.name} has no such namespace"]
        found = []
        others = sorted(set(record.get("replication_clusters") or ()) - {source.cluster})
        if others:
            found.append(
                f"{namespace} is replicated to {', '.join(others)}: a copy of it elsewhere would be "
                "replicated too"
            )
        if record.get("deleted"):
            found.append(f"{namespace} is being deleted")
        copies = (record.get("persistence") or {}).get("bookkeeperEnsemble", 1)
        if target.one_copy and copies > 1:
            found.append(
                f"{namespace} requires {copies} copies of its entries (persistence), but {target.name} "
                "keeps one copy; remove the policy with pulsar-admin namespaces remove-persistence"
            )
        found += await self._different(namespace, record)
        return found

    async def _different(self, namespace: NamespaceName, record: Record) -> list[str]:
        there = await read(self._target.metadata, f"{POLICIES}/{namespace.path}")
        if there is None or self._which is not WhichPolicies.REFUSE:
            return []
        ours, theirs = _comparable(record), _comparable(there)
        differing = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
        if not differing:
            return []
        return [
            f"{namespace} has different policies in {self._target.name}: {', '.join(differing)}; use "
            "--policies source to take those of the source, or --policies target to keep those of the "
            "target"
        ]

    async def carry(self, namespace: NamespaceName) -> None:
        """Creates the namespace at the target, with its tenant and its resource group, unless it exists.

        :raises MetadataError: the store refused the request
        """
        source, target = self._source, self._target
        await self._carry_tenant(namespace.tenant)
        record = await read(source.metadata, f"{POLICIES}/{namespace.path}") or {}
        path = f"{POLICIES}/{namespace.path}"
        there = await read(target.metadata, path)
        group = record.get("resource_group_name")
        if group:
            await self._copy_missing(f"{_GROUPS}/{group}")
        if there is None:
            await self._copy_missing(f"{LOCAL_POLICIES}/{namespace.path}")
            await _put(target, path, self._mapped(record))
        elif self._which is WhichPolicies.SOURCE:
            place = {key: value for key, value in there.items() if key in _OF_THE_PLACE}
            await _put(target, path, {**self._mapped(record), **place})

    async def _carry_tenant(self, tenant: str) -> None:
        path = f"{POLICIES}/{tenant}"
        there = await read(self._target.metadata, path)
        if there is None:
            record = await read(self._source.metadata, path) or {"adminRoles": [], "allowedClusters": []}
            await _put(self._target, path, self._mapped(record))
        elif self._target.cluster not in there.get("allowedClusters", ()):
            clusters = [*there.get("allowedClusters", ()), self._target.cluster]
            await _put(self._target, path, {**there, "allowedClusters": clusters})

    async def _copy_missing(self, path: str) -> None:
        node = await self._source.metadata.get(path)
        if node is not None and node.value and await read(self._target.metadata, path) is None:
            await _put(self._target, path, json.loads(node.value))

    def _mapped(self, record: Record) -> Record:
        """Returns the record with the target's cluster name instead of the source's cluster name."""
        found = dict(record)
        for key in _CLUSTERS:
            if isinstance(found.get(key), list):
                found[key] = [
                    self._target.cluster if each == self._source.cluster else each for each in found[key]
                ]
        if found.get("clusterThatCanDeleteNamespace") == self._source.cluster:
            found["clusterThatCanDeleteNamespace"] = self._target.cluster
        return found


def _comparable(record: Record) -> dict[str, object]:
    """Returns the policies that are set and differ from the policies of a new namespace, without the fields
    that concern clusters and bundles.
    """
    usual = new_policies((), {})
    return {
        key: value
        for key, value in record.items()
        if key not in _OF_THE_PLACE and value not in (None, {}, [], False) and value != usual.get(key)
    }


async def _put(side: OpenStores, path: str, record: Mapping[str, object]) -> None:
    node = await side.metadata.get(path)
    await side.metadata.put(path, encode(record), MUST_NOT_EXIST if node is None else node.version)
