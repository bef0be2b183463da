"""Namespaces of single brokers, where each checks its own health; no other broker may own them."""

from __future__ import annotations

import re

from magnetar.naming.namespace_name import NamespaceName

_TENANT = "pulsar"
_BROKER = re.compile(r"[^/]+:[0-9]+")


def heartbeat_namespaces(cluster: str, broker_id: str) -> tuple[NamespaceName, NamespaceName]:
    """Returns the namespaces in the older and the newer form of names.

    :param broker_id: ``host:port`` of its HTTP interface
    """
    return NamespaceName(_TENANT, cluster, broker_id), NamespaceName(_TENANT, None, broker_id)


def heartbeat_of(namespace: NamespaceName) -> str | None:
    """Returns the id of the broker that checks its health there; None for any other namespace."""
    found = namespace.tenant == _TENANT and _BROKER.fullmatch(namespace.local) is not None
    return namespace.local if found else None
