"""Placement rules of operators, cached until they change."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from magnetar.broker.load.candidates import Rules
from magnetar.broker.load.isolation import Isolation, IsolationPolicy
from magnetar.broker.policies.records import Record, read
from magnetar.errors import InvalidRequest, MetadataFailure
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.namespace_name import NamespaceName

log = logging.getLogger(__name__)

CLUSTERS = "/admin/clusters"
LOCAL_POLICIES = "/admin/local-policies"
GROUP = "namespaceAntiAffinityGroup"
_MOST_NAMESPACES = 100_000


def isolation_path(cluster: str) -> str:
    return f"{CLUSTERS}/{cluster}/namespaceIsolationPolicies"


def domains_path(cluster: str) -> str:
    return f"{CLUSTERS}/{cluster}/failureDomain"


def local_policies_path(namespace: NamespaceName) -> str:
    return f"{LOCAL_POLICIES}/{namespace.path}"


def isolation_of(record: Mapping[str, Any]) -> Isolation:
    """Policies that cannot be parsed are logged and left out: a damaged policy must not stop topics."""
    found = []
    for name, value in record.items():
        try:
            found.append(IsolationPolicy.from_json(name, value if isinstance(value, dict) else {}))
        except InvalidRequest as error:
            log.error("isolation policy ignored: it is invalid", extra={"policy": name, "error": str(error)})
    return Isolation(found)


class KeptRules:
    def __init__(self, metadata: MetadataStore, cluster: str) -> None:
        self._metadata = metadata
        self._cluster = cluster
        root = f"{CLUSTERS}/{cluster}"
        self._isolation = MetadataCache(metadata, root, self._read_isolation, most=10)
        self._domains = MetadataCache(metadata, root, self._read_domains, most=10)
        self._groups = MetadataCache(metadata, LOCAL_POLICIES, self._read_group, most=_MOST_NAMESPACES)
        metadata.listen(domains_path(cluster), lambda _change: self._domains.forget_all())

    async def of(self, namespace: str, others: Iterable[str]) -> Rules:
        """Returns the rules for a bundle of a namespace.

        :param others: namespaces that brokers serve; they matter if the namespace is in a group
        :raises MetadataError: the rules cannot be read now
        """
        isolation = await self._isolation.get(isolation_path(self._cluster))
        group = await self._group(namespace)
        if not group:
            return Rules(isolation)
        domains = await self._domains.get(domains_path(self._cluster))
        groups = {name: await self._group(name) for name in sorted({namespace, *others})}
        return Rules(isolation, domains, {name: found for name, found in groups.items() if found})

    async def of_all(self, namespaces: Iterable[str]) -> Rules:
        """Returns the rules for bundles of several namespaces; raises as :meth:`of` does."""
        isolation = await self._isolation.get(isolation_path(self._cluster))
        domains = await self._domains.get(domains_path(self._cluster))
        groups = {name: await self._group(name) for name in sorted(namespaces)}
        return Rules(isolation, domains, {name: found for name, found in groups.items() if found})

    async def _group(self, namespace: str) -> str:
        return await self._groups.get(f"{LOCAL_POLICIES}/{namespace}")

    async def _read_isolation(self, path: str) -> Isolation:
        return isolation_of(await self._readable(path))

    async def _read_domains(self, path: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in await self._metadata.children(path):
            record = await self._readable(f"{path}/{name}")
            brokers = record.get("brokers")
            found |= dict.fromkeys(map(str, brokers if isinstance(brokers, list) else ()), name)
        return found

    async def _read_group(self, path: str) -> str:
        """Returns an empty text if the namespace is in no group."""
        return str((await self._readable(path)).get(GROUP) or "").lower()

    async def _readable(self, path: str) -> Record:
        """Returns an empty record if it is missing or damaged: that must not stop topics, as in Pulsar."""
        try:
            return await read(self._metadata, path) or {}
        except MetadataFailure as error:
            log.error("metadata record ignored: it cannot be read", extra={"error": str(error)})
            return {}
