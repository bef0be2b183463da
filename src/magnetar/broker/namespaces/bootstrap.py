"""The initial metadata of a standalone cluster: clusters, and tenants ``public`` and ``sample``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from magnetar.broker.policies.namespaces import divided, new_policies
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore, NodeDamaged
from magnetar.naming.namespace_name import NamespaceName


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
    """Writes what is missing; existing records stay, except for the cluster's own addresses.

    :param bundles: of a new namespace, 1 to 65536
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
        await _put_new(metadata, f"/admin/policies/{name}", tenant)
    for namespace in (NamespaceName("public", None, "default"), NamespaceName("sample", cluster, "ns1")):
        division = divided(bundles)
        local = {"bundles": division, "migrated": False}
        await _put_new(metadata, f"/admin/local-policies/{namespace.path}", local)
        await _put_new(metadata, f"/admin/policies/{namespace.path}", new_policies([cluster], division))


async def _put_cluster(metadata: MetadataStore, cluster: str, urls: Mapping[str, str]) -> None:
    """Updates the addresses, which may have changed since the last start; other fields stay."""
    path = f"/admin/clusters/{cluster}"
    node = await metadata.get(path)
    known = _known_cluster(path, node.value) if node is not None and node.value else _new_cluster()
    wanted = {**known, **urls}
    if node is None or wanted != known:
        await metadata.put(path, _encoded(wanted), MUST_NOT_EXIST if node is None else node.version)


def _known_cluster(path: str, value: bytes) -> dict[str, Any]:
    try:
        known = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise NodeDamaged(f"{path}: not JSON: {error}") from error
    if not isinstance(known, dict):
        raise NodeDamaged(f"{path}: must be an object, not {type(known).__name__}")
    return known


def _new_cluster() -> dict[str, Any]:
    return {
        "serviceUrl": "",
        "brokerServiceUrl": "",
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
    }


async def _put_new(metadata: MetadataStore, path: str, value: Mapping[str, Any]) -> None:
    """Writes a node that does not exist, or was only created as a parent and has no value."""
    node = await metadata.get(path)
    if node is not None and node.value:
        return
    try:
        await metadata.put(path, _encoded(value), MUST_NOT_EXIST if node is None else node.version)
    except BadVersion:
        # Another broker wrote it meanwhile, and its value counts.
        return


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
