"""Creates the metadata that a cluster needs before bookies and brokers start, as Apache Pulsar's set-up does.

Existing nodes are kept; an existing node with another value is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from magnetar.broker.policies.namespaces import divided, new_policies
from magnetar.io.interfaces import Randomness
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore, NodeDamaged
from magnetar.metadata.zookeeper.address import EnsembleAddress, ensemble_address
from magnetar.naming.namespace_name import POLICIES, NamespaceName

LEDGERS = "/ledgers"
_COORDINATORS = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
_NAMESPACES = (NamespaceName("public", None, "default"), NamespaceName("pulsar", None, "system"))
_SYSTEM_BUNDLES = 16
_SERVICE_URI = re.compile(r"(?:zk(?:\+\w+)?://|metadata-store:)(?P<address>.+)")


class SetupContradicts(Exception):
    """A metadata node already has another value; the message contains the node and both values."""


@dataclass(frozen=True)
class ClusterSetup:
    """The requested properties of a cluster."""

    cluster: str
    urls: Mapping[str, str]
    """Addresses and credentials of the cluster, by the field names of its record; empty values are
    omitted.
    """
    tls: bool = False
    bundles: int = 16
    transaction_coordinators: int = 16
    storage_containers: int = 16


async def set_up_cluster(
    local: MetadataStore,
    configuration: MetadataStore,
    setup: ClusterSetup,
    bookkeeper: EnsembleAddress,
    randomness: Randomness,
    *,
    own_bookkeeper: bool = True,
) -> None:
    """Creates the metadata nodes that are missing.

    :param bookkeeper: the address of the ZooKeeper ensemble with the bookies' metadata, including the path of
        the ledgers' metadata
    :param own_bookkeeper: whether to also create the bookies' metadata, below :data:`LEDGERS` in ``local``
    :raises SetupContradicts: a node already has another value
    :raises MetadataError: a store refused the request
    """
    await _check_cluster(configuration, setup)
    if own_bookkeeper:
        await _make(local, f"{LEDGERS}/available/readonly", b"")
        instance = str(UUID(bytes=randomness.token(16), version=4))
        await _make(local, f"{LEDGERS}/INSTANCEID", instance.encode(), any_value=True)
        await _make(local, "/bookies", b"{}", any_value=True)
    await _make_functions(local, setup, bookkeeper)
    await _make_configuration(configuration, setup)


async def set_up_coordinators(configuration: MetadataStore, cluster: str, count: int) -> None:
    """Creates the partitioned topic of transaction coordinators, with its tenant and namespace, in a cluster
    that was set up without them.

    :param count: number of coordinators, at least 1
    :raises SetupContradicts: there is already another number of coordinators
    :raises MetadataError: the store refused the request
    """
    if count < 1:
        raise ValueError(f"the number of transaction coordinators must be 1 or more, not {count}")
    await _make_namespace(configuration, _NAMESPACES[1], cluster, _SYSTEM_BUNDLES)
    await _make_coordinators(configuration, count)


def bookkeeper_of(service_uri: str) -> EnsembleAddress:
    """Returns the address of the ZooKeeper ensemble with the metadata of existing bookies, including the path
    of the ledgers' metadata.

    :raises ValueError: the string is not a ZooKeeper address
    """
    found = _SERVICE_URI.fullmatch(service_uri)
    if found is None:
        raise ValueError(
            f"{service_uri!r} is not a metadata URI; use zk+hierarchical://hosts/path or "
            "metadata-store:zk:hosts/path"
        )
    address = ensemble_address(found["address"].replace(";", ","))
    if service_uri.startswith("metadata-store:"):
        return EnsembleAddress(address.hosts, address.chroot + LEDGERS)
    return address


async def _make_functions(local: MetadataStore, setup: ClusterSetup, bookkeeper: EnsembleAddress) -> None:
    """Creates the nodes for packages and state of Pulsar Functions; the cluster's bookies store packages and
    state.
    """
    if setup.storage_containers > 0:
        await _make(local, "/stream/metadata", b"\x08" + _varint(setup.storage_containers))
        await _make(local, "/stream/assignment", b"")
        await _make(local, "/stream/servers/available", b"", any_value=True)
        await _make(local, "/stream/storage", _namespace_binding(bookkeeper))
    await _make(local, "/pulsar/functions", _namespace_binding(bookkeeper))


async def _make_configuration(store: MetadataStore, setup: ClusterSetup) -> None:
    await _make_json(store, f"/admin/clusters/{setup.cluster}", _cluster_record(setup), check=True)
    await _make_json(store, "/admin/clusters/global", _client_record(tls=False))
    for namespace in _NAMESPACES:
        bundles = setup.bundles if namespace.tenant == "public" else _SYSTEM_BUNDLES
        await _make_namespace(store, namespace, setup.cluster, bundles)
    if setup.transaction_coordinators > 0:
        await _make_coordinators(store, setup.transaction_coordinators)


def _coordinators_record(count: int) -> dict[str, object]:
    return {"partitions": count, "deleted": False}


async def _make_coordinators(store: MetadataStore, count: int) -> None:
    await _make_json(store, _COORDINATORS, _coordinators_record(count), check=True)


async def _make_namespace(store: MetadataStore, namespace: NamespaceName, cluster: str, bundles: int) -> None:
    tenant = {"adminRoles": [], "allowedClusters": [cluster]}
    await _make_json(store, f"{POLICIES}/{namespace.tenant}", tenant, joins="allowedClusters")
    policies = new_policies([cluster], divided(bundles))
    policies["clusterThatCanDeleteNamespace"] = cluster
    await _make_json(store, f"{POLICIES}/{namespace.path}", policies, joins="replication_clusters")


async def _check_cluster(store: MetadataStore, setup: ClusterSetup) -> None:
    """Checks the record of the cluster before any node is created, so that a contradiction leaves no partial
    cluster.
    """
    for path, wanted in (
        (f"/admin/clusters/{setup.cluster}", _cluster_record(setup)),
        (_COORDINATORS, _coordinators_record(setup.transaction_coordinators)),
    ):
        node = await store.get(path)
        if node is not None and node.value:
            _compare(path, _decoded(path, node.value), wanted)


def _compare(path: str, there: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    strange = [key for key in wanted if key in there and there[key] != wanted[key]]
    if strange:
        told = ", ".join(f"{key} {there[key]!r}, not {wanted[key]!r}" for key in strange)
        raise SetupContradicts(f"{path} already exists with other values: {told}")


async def _make_json(
    store: MetadataStore,
    path: str,
    record: Mapping[str, Any],
    *,
    check: bool = False,
    joins: str = "",
) -> None:
    """Creates a record. If the record exists, only adds the items that the existing list ``joins`` lacks.

    :param check: whether an existing record must have the same values
    :param joins: name of a list in the record, to which each cluster that shares the configuration store adds
        items; empty: no list
    :raises SetupContradicts: ``check`` is true, and the existing record has other values
    """
    while True:
        node = await store.get(path)
        there = None if node is None or not node.value else _decoded(path, node.value)
        if there is None:
            value: Mapping[str, object] = record
        elif joins and (new := [each for each in record[joins] if each not in there.get(joins, [])]):
            value = {**there, joins: [*there.get(joins, []), *new]}
        else:
            if check:
                _compare(path, there, record)
            return
        encoded = json.dumps(value, separators=(",", ":")).encode()
        try:
            await store.put(path, encoded, MUST_NOT_EXIST if node is None else node.version)
        except BadVersion:
            # Another process sets up the same cluster: check its record.
            continue
        return


async def _make(store: MetadataStore, path: str, value: bytes, *, any_value: bool = False) -> None:
    node = await store.get(path)
    if node is None:
        try:
            await store.put(path, value, MUST_NOT_EXIST)
        except BadVersion:
            node = await store.get(path)
    if node is not None and not any_value and node.value != value:
        raise SetupContradicts(f"{path} already exists with {node.value!r}, not {value!r}")


def _decoded(path: str, value: bytes) -> dict[str, Any]:
    try:
        record = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise NodeDamaged(f"{path}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise NodeDamaged(f"{path}: must be an object, not {type(record).__name__}")
    return record


def _client_record(*, tls: bool) -> dict[str, Any]:
    """Returns the default connection settings for clients inside the cluster."""
    return {
        "brokerClientTlsEnabled": tls,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    }


def _cluster_record(setup: ClusterSetup) -> dict[str, object]:
    return {**{key: url for key, url in setup.urls.items() if url}, **_client_record(tls=setup.tls)}


def _namespace_binding(bookkeeper: EnsembleAddress) -> bytes:
    """Returns the namespace binding of DistributedLog, version 1, in Thrift's JSON: the servers and path of
    the ledgers.
    """
    servers = _text(str(EnsembleAddress(bookkeeper.hosts)))
    fields: Sequence[str] = (servers, _text(bookkeeper.chroot), '{"tf":1}', '{"tf":0}', *(servers,) * 3)
    body = ",".join(f'"{number}":{field}' for number, field in enumerate(fields, 1))
    return f"1\nBKDL\n{{{body}}}".encode()


def _text(value: str) -> str:
    return '{"str":' + json.dumps(value) + "}"


def _varint(number: int) -> bytes:
    piece = bytearray()
    while number > 0x7F:
        piece.append(number & 0x7F | 0x80)
        number >>= 7
    piece.append(number)
    return bytes(piece)
