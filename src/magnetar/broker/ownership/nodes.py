"""The nodes of bundle owners: ephemeral nodes ``/namespace/<namespace>/<range>``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from magnetar.broker.ownership.brokers import listeners_json, listeners_of
from magnetar.broker.ownership.contract import Addresses, Bundle
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.errors import InvalidName
from magnetar.naming.heartbeats import heartbeat_of
from magnetar.naming.namespace_name import NamespaceName

OWNERS = "/namespace"
_MONITORED = re.compile(r"sla-monitor/[^/]+/(?P<broker>[^/]+:[0-9]+)")


@dataclass(frozen=True, slots=True)
class OwnerNode:
    """The content of a node (``NamespaceEphemeralData``)."""

    addresses: Addresses
    listeners: Mapping[str, Addresses]
    disabled: bool
    """Whether the owner is giving the bundle up."""
    version: int
    own: bool
    """Whether this broker's session made the node."""


def path_of(bundle: Bundle) -> str:
    return f"{OWNERS}/{bundle}"


def bundle_at(path: str) -> Bundle | None:
    """Returns None if the path is not that of a bundle."""
    try:
        return Bundle.parse(path.removeprefix(f"{OWNERS}/"))
    except InvalidName:
        return None


def encoded(addresses: Addresses, listeners: Mapping[str, Addresses], *, disabled: bool = False) -> bytes:
    urls = {
        "nativeUrl": addresses.binary,
        "nativeUrlTls": addresses.binary_tls,
        "httpUrl": addresses.http,
        "httpUrlTls": addresses.http_tls,
    }
    record: dict[str, Any] = {name: url for name, url in urls.items() if url}
    record.update(disabled=disabled, advertisedListeners=listeners_json(listeners))
    return json.dumps(record, separators=(",", ":")).encode()


def decoded(value: bytes, version: int, *, own: bool) -> OwnerNode:
    """Reads the value of a node.

    :raises ValueError: the value is not in the form that brokers write
    :raises RecursionError: the JSON is nested too deeply
    """
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("the record is not an object")
    urls = [raw.get(name) for name in ("nativeUrl", "nativeUrlTls", "httpUrl", "httpUrlTls")]
    if not all(url is None or isinstance(url, str) for url in urls):
        raise ValueError("an address is not a string")
    listeners = listeners_of(raw.get("advertisedListeners"))
    return OwnerNode(Addresses(*urls), listeners, raw.get("disabled") is True, version, own)


def broker_of(namespace: NamespaceName) -> str | None:
    """Returns the broker id in a heartbeat or monitoring namespace, or None for any other namespace."""
    found = _MONITORED.fullmatch(str(namespace))
    return found["broker"] if found is not None else heartbeat_of(namespace)
