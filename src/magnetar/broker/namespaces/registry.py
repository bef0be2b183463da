"""The namespaces, topics and partitioned topics in the metadata store, and its initial content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from magnetar.broker.policies.namespaces import divided, new_policies
from magnetar.broker.policies.records import Record, change, decode
from magnetar.errors import AlreadyExists, MetadataFailure, NamespaceNotFound, TopicNotFound
from magnetar.io.interfaces import Io
from magnetar.io.slices import each
from magnetar.managed_ledger.records import ROOT as MANAGED_LEDGERS
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore, NodeDamaged, NodeMissing
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import LOCAL_POLICIES, POLICIES, NamespaceName, heartbeat_of
from magnetar.naming.topic_name import Domain, TopicName, decode_path_piece

_PARTITIONED = "/admin/partitioned-topics"
_MAX_KNOWN = 100_000


class Namespaces:
    """Namespaces and topics, read from memory if possible; cached records are dropped when the metadata
    changes."""

    def __init__(self, io: Io, metadata: MetadataStore) -> None:
        self._io = io
        self._metadata = metadata
        self._existing = MetadataCache(metadata, POLICIES, self._check, most=_MAX_KNOWN)
        # Clients may ask for any name, so the cache is bounded.
        self._partitions = MetadataCache(metadata, _PARTITIONED, self._count, most=_MAX_KNOWN)

    async def check(self, namespace: NamespaceName) -> None:
        """Checks that a namespace exists.

        :raises NamespaceNotFound: the namespace does not exist
        """
        if heartbeat_of(namespace) is not None:
            return
        await self._existing.get(f"{POLICIES}/{namespace.path}")

    async def _check(self, path: str) -> bool:
        if not await self._metadata.exists(path):
            raise NamespaceNotFound("Namespace not found")
        return True

    # Partitioned topics

    async def partitions(self, topic: TopicName) -> int:
        """Returns the number of partitions of a topic; 0 if it is not partitioned or does not exist."""
        return await self._partitions.get(f"{_PARTITIONED}/{topic.path}")

    async def partitions_now(self, topic: TopicName) -> int:
        """Returns the number of partitions like :meth:`partitions`, from the metadata store instead of the
        cache."""
        self._partitions.forget(f"{_PARTITIONED}/{topic.path}")
        return await self.partitions(topic)

    async def _count(self, path: str) -> int:
        node = await self._metadata.get(path)
        if node is None:
            return 0
        count = decode(node).get("partitions", 0)
        if type(count) is not int or not 0 <= count < 2**31:
            raise MetadataFailure(f"{path}: partitions must be a whole number of 0 or more, not {count!r}")
        return count

    async def create_partitioned(
        self, topic: TopicName, partitions: int, properties: Mapping[str, str]
    ) -> None:
        """Creates the record of a partitioned topic.

        :raises AlreadyExists: a partitioned topic of that name exists
        """
        value: dict[str, object] = {"partitions": partitions, "deleted": False}
        if properties:
            value["properties"] = dict(properties)
        try:
            await self._metadata.put(
                f"{_PARTITIONED}/{topic.path}", json.dumps(value).encode(), MUST_NOT_EXIST
            )
        except BadVersion as error:
            raise AlreadyExists("This topic already exists") from error
        self._partitions.forget(f"{_PARTITIONED}/{topic.path}")

    async def partitioned(self, topic: TopicName) -> dict[str, Any]:
        """Returns the stored ``PartitionedTopicMetadata``; empty if it does not exist."""
        node = await self._metadata.get(f"{_PARTITIONED}/{topic.path}")
        return decode(node) if node is not None else {}

    async def change_partitioned(
        self,
        topic: TopicName,
        *,
        partitions: int | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> None:
        """Sets the number of partitions, and merges properties; None removes a property.

        :raises TopicNotFound: no such partitioned topic
        """

        def work(record: Record) -> None:
            if partitions is not None:
                record["partitions"] = partitions
            if properties is not None:
                merged = {**(record.get("properties") or {}), **properties}
                record["properties"] = {key: value for key, value in merged.items() if value is not None}

        missing = TopicNotFound(f"Partitioned topic {topic} not found")
        await change(self._metadata, f"{_PARTITIONED}/{topic.path}", work, missing)
        self._partitions.forget(f"{_PARTITIONED}/{topic.path}")

    async def mark_deleted(self, topic: TopicName, *, deleted: bool) -> None:
        """Marks the record of a partitioned topic as being deleted, or removes the mark.

        :raises TopicNotFound: no such partitioned topic
        """

        def work(record: Record) -> None:
            record["deleted"] = deleted

        missing = TopicNotFound(f"Partitioned topic {topic} not found")
        await change(self._metadata, f"{_PARTITIONED}/{topic.path}", work, missing)

    async def is_being_deleted(self, topic: TopicName) -> bool:
        """Whether the deletion of a partitioned topic is in progress or was interrupted."""
        return bool((await self.partitioned(topic)).get("deleted"))

    async def delete_partitioned(self, topic: TopicName) -> bool:
        """Deletes the record of a partitioned topic; returns False if the topic has no record."""
        try:
            await self._metadata.delete(f"{_PARTITIONED}/{topic.path}")
        except NodeMissing:
            return False
        self._partitions.forget(f"{_PARTITIONED}/{topic.path}")
        return True

    async def partitioned_topics(
        self, namespace: NamespaceName, domain: Domain = Domain.PERSISTENT
    ) -> list[str]:
        """Returns the full names of a namespace's partitioned topics, sorted."""
        return await self._names(_PARTITIONED, namespace, domain)

    async def persistent_topics(self, namespace: NamespaceName) -> list[str]:
        """Returns the full names of a namespace's persistent topics, with each partition as a topic,
        sorted."""
        return await self._names(MANAGED_LEDGERS, namespace, Domain.PERSISTENT)

    async def _names(self, root: str, namespace: NamespaceName, domain: Domain) -> list[str]:
        children = await self._metadata.children(f"{root}/{namespace.path}/{domain.value}")
        names: list[str] = []

        def take(child: str) -> None:
            try:
                names.append(str(TopicName(domain, namespace, decode_path_piece(child))))
            except InvalidName as error:
                raise MetadataFailure(f"{root}/{namespace.path}/{domain.value}/{child}: {error}") from error

        await each(self._io, "listing", children, take)
        return sorted(names)


async def bootstrap(
    metadata: MetadataStore,
    cluster: str,
    http_url: str,
    broker_url: str,
    bundles: int,
    *,
    http_url_tls: str = "",
    broker_url_tls: str = "",
) -> None:
    """Writes the initial metadata of a standalone cluster: clusters, and tenants ``public`` and ``sample``.

    Existing records are kept, except for the cluster's own addresses.

    :param bundles: the number of bundles of a new namespace, 1 to 65536
    :raises MetadataError: the store refused, or the cluster's record is damaged
    """
    urls = {"serviceUrl": http_url, "brokerServiceUrl": broker_url}
    if http_url_tls or broker_url_tls:
        urls |= {"serviceUrlTls": http_url_tls, "brokerServiceUrlTls": broker_url_tls}
    await _put_cluster(metadata, cluster, urls)
    # It has no addresses: it is the cluster in the names of legacy namespaces that belong to all clusters.
    await _put_new(metadata, "/admin/clusters/global", _new_cluster())
    tenant = {"adminRoles": [], "allowedClusters": [cluster]}
    for name in ("public", "sample"):
        await _put_new(metadata, f"{POLICIES}/{name}", tenant)
    for namespace in (NamespaceName("public", None, "default"), NamespaceName("sample", cluster, "ns1")):
        division = divided(bundles)
        local = {"bundles": division, "migrated": False}
        await _put_new(metadata, f"{LOCAL_POLICIES}/{namespace.path}", local)
        await _put_new(metadata, f"{POLICIES}/{namespace.path}", new_policies([cluster], division))


async def make_coordinators(
    metadata: MetadataStore, topic: TopicName, count: int, cluster: str, bundles: int
) -> None:
    """Creates the partitioned topic whose partitions are the transaction coordinators, with its tenant and
    namespace. Existing records are kept.

    :param count: the number of coordinators
    :param bundles: the number of bundles of the namespace
    :raises MetadataError: the store refused
    """
    namespace = topic.namespace_name
    await _put_new(
        metadata, f"{POLICIES}/{namespace.tenant}", {"adminRoles": [], "allowedClusters": [cluster]}
    )
    division = divided(bundles)
    await _put_new(metadata, f"{LOCAL_POLICIES}/{namespace.path}", {"bundles": division, "migrated": False})
    await _put_new(metadata, f"{POLICIES}/{namespace.path}", new_policies([cluster], division))
    await _put_new(metadata, f"{_PARTITIONED}/{topic.path}", {"partitions": count, "deleted": False})


async def _put_cluster(metadata: MetadataStore, cluster: str, urls: Mapping[str, str]) -> None:
    """Updates the addresses in a cluster's record, because the addresses may have changed since the last
    start.
    """
    path = f"/admin/clusters/{cluster}"
    node = await metadata.get(path)
    known = _known_cluster(path, node.value) if node is not None and node.value else _new_cluster()
    wanted: dict[str, object] = {**known, **urls}
    if node is None or wanted != known:
        await metadata.put(path, _encoded(wanted), MUST_NOT_EXIST if node is None else node.version)


def _known_cluster(path: str, value: bytes) -> dict[str, object]:
    try:
        known = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise NodeDamaged(f"{path}: not JSON: {error}") from error
    if not isinstance(known, dict):
        raise NodeDamaged(f"{path}: must be an object, not {type(known).__name__}")
    return known


def _new_cluster() -> dict[str, object]:
    return {
        "serviceUrl": "",
        "brokerServiceUrl": "",
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
    }


async def _put_new(metadata: MetadataStore, path: str, value: Mapping[str, object]) -> None:
    """Writes a node that does not exist, or that has no value because it was only created as a parent."""
    node = await metadata.get(path)
    if node is not None and node.value:
        return
    try:
        await metadata.put(path, _encoded(value), MUST_NOT_EXIST if node is None else node.version)
    except BadVersion:
        # Another broker wrote it meanwhile, and its value counts.
        return


def _encoded(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
