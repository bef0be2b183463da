"""What is written of a bundle's owner: ephemeral nodes ``/namespace/<namespace>/<range>``."""

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
    """A node as it was read (``NamespaceEphemeralData``)."""

    addresses: Addresses
    listeners: Mapping[str, Addresses]
    disabled: bool
    """The owner gives the bundle up."""
    version: int
    own: bool
    """Made by this broker's session."""


def path_of(bundle: Bundle) -> str:
    return f"{OWNERS}/{bundle}"


def bundle_at(path: str) -> Bundle | None:
    """None: it is not the path of a bundle."""
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
    """:raises ValueError: it is not what brokers write; so says RecursionError"""
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("the record is not an object")
    urls = [raw.get(name) for name in ("nativeUrl", "nativeUrlTls", "httpUrl", "httpUrlTls")]
    if not all(url is None or isinstance(url, str) for url in urls):
        raise ValueError("an address is not a string")
    listeners = listeners_of(raw.get("advertisedListeners"))
    return OwnerNode(Addresses(*urls), listeners, raw.get("disabled") is True, version, own)


def broker_of(namespace: NamespaceName) -> str | None:
    """The id of the broker whose own namespace it is, to try that broker; None: it is anybody's."""
    found = _MONITORED.fullmatch(str(namespace))
    return found["broker"] if found is not None else heartbeat_of(namespace)
