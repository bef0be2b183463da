"""The bundles of topics, the nodes of their owners, and the algorithms that split bundles."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

from magnetar.broker.ownership.brokers import listeners_json, listeners_of
from magnetar.broker.ownership.contract import Addresses, Bundle
from magnetar.errors import MetadataFailure
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.bundles import BundleRange, Bundles
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import LOCAL_POLICIES, POLICIES, NamespaceName, heartbeat_of
from magnetar.naming.topic_name import TopicName

_MAX_KNOWN = 10_000
ReadNamespace = Callable[[NamespaceName], Awaitable[Mapping[str, object]]]
"""Returns a namespace's record; raises NamespaceNotFound if the namespace does not exist."""
OWNERS = "/namespace"
_MONITORED = re.compile(r"sla-monitor/[^/]+/(?P<broker>[^/]+:[0-9]+)")


class NamespaceBundles:
    """The bundles of namespaces, cached until their records change.

    The cluster's own record (``LocalPolicies``) takes precedence over the bundles with which the namespace
    was created.
    """

    def __init__(self, metadata: MetadataStore, read: ReadNamespace, read_local: ReadNamespace) -> None:
        """:param read_local: returns the local record; empty for a namespace without a local record"""
        self._read_namespace = read
        self._read_local_policies = read_local
        self._known = MetadataCache(metadata, POLICIES, self._read, most=_MAX_KNOWN)
        self._local = MetadataCache(metadata, LOCAL_POLICIES, self._read_local, most=_MAX_KNOWN)

    async def of_topic(self, name: TopicName) -> Bundle:
        """Returns the bundle of a topic; a system topic also belongs to a bundle of its namespace.

        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: the record of the namespace has no valid bundles
        """
        divided = await self.of_namespace(name.namespace_name)
        return Bundle(name.namespace_name, divided.find(name.bundle_hash))

    async def of_namespace(self, name: NamespaceName) -> Bundles:
        """Returns the bundles of a namespace; raises the same errors as :meth:`of_topic`."""
        if broker_of(name) is not None:
            return Bundles.even(1)
        first = await self._known.get(f"{POLICIES}/{name.path}")
        (local,) = await self._local.get(f"{LOCAL_POLICIES}/{name.path}")
        return local or first

    def forget(self, name: NamespaceName) -> None:
        """Drops the cached bundles of a namespace, after the caller has changed the namespace's local
        record."""
        self._local.forget(f"{LOCAL_POLICIES}/{name.path}")

    async def _read(self, path: str) -> Bundles:
        namespace = NamespaceName.parse(path.removeprefix(POLICIES + "/"))
        return _divided(path, await self._read_namespace(namespace)) or Bundles.even(1)

    async def _read_local(self, path: str) -> tuple[Bundles | None]:
        namespace = NamespaceName.parse(path.removeprefix(LOCAL_POLICIES + "/"))
        return (_divided(path, await self._read_local_policies(namespace)),)


def _divided(path: str, record: Mapping[str, object]) -> Bundles | None:
    """Returns the bundles in a record; None if the record has no bundles.

    :raises MetadataFailure: the bundles in the record are invalid
    """
    division = record.get("bundles")
    boundaries = division.get("boundaries") if isinstance(division, dict) else None
    try:
        return Bundles.parse(boundaries) if boundaries else None
    except InvalidName as error:
        raise MetadataFailure(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class OwnerNode:
    """The content of the node of a bundle's owner (``NamespaceEphemeralData``).

    The nodes are ephemeral: ``/namespace/<namespace>/<range>``.
    """

    addresses: Addresses
    listeners: Mapping[str, Addresses]
    disabled: bool
    """Whether the owner is unloading the bundle."""
    version: int
    own: bool
    """Whether this broker's session created the node."""


def path_of(bundle: Bundle) -> str:
    return f"{OWNERS}/{bundle}"


def bundle_at(path: str) -> Bundle | None:
    """Returns the bundle whose owner is recorded in the node with this path; None: the path is not that of
    a bundle."""
    try:
        return Bundle.parse(path.removeprefix(f"{OWNERS}/"))
    except InvalidName:
        return None


def encode_owner(
    addresses: Addresses, listeners: Mapping[str, Addresses], *, disabled: bool = False
) -> bytes:
    urls = {
        "nativeUrl": addresses.binary,
        "nativeUrlTls": addresses.binary_tls,
        "httpUrl": addresses.http,
        "httpUrlTls": addresses.http_tls,
    }
    record: dict[str, object] = {name: url for name, url in urls.items() if url}
    record.update(disabled=disabled, advertisedListeners=listeners_json(listeners))
    return json.dumps(record, separators=(",", ":")).encode()


def decode_owner(value: bytes, version: int, *, own: bool) -> OwnerNode:
    """Returns the content of an owner's node.

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
    """Returns the broker id in the name of a heartbeat or monitoring namespace; None for any other
    namespace."""
    found = _MONITORED.fullmatch(str(namespace))
    return found["broker"] if found is not None else heartbeat_of(namespace)


class Carried(NamedTuple):
    """The traffic of topics, the sum of both directions."""

    rate: float = 0.0
    """The message rate, in messages per second."""
    throughput: float = 0.0
    """The throughput, in bytes per second."""

    def plus(self, other: Carried) -> Carried:
        return Carried(self.rate + other.rate, self.throughput + other.throughput)

    def exceeds(self, bound: Carried) -> bool:
        """Whether the rate or the throughput is above its bound."""
        return self.rate > bound.rate or self.throughput > bound.throughput

    def reaches(self, bound: Carried, factor: float) -> bool:
        """Whether the rate or the throughput is at least ``factor`` times its bound."""
        return self.rate >= bound.rate * factor or self.throughput >= bound.throughput * factor


MOST = Carried(30_000, 100 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class ToDivide:
    """A bundle that is to be split."""

    range: BundleRange
    topics: Mapping[int, Carried]
    """The traffic of each topic, by the topic's hash."""
    positions: Sequence[int] = ()
    """The hashes at which the request asks to split the bundle."""
    most: Carried = MOST
    """The maximum load of a bundle."""
    tolerance: float = 0.1
    """The fraction by which a bundle may exceed ``most`` before it is split because of its traffic."""


def range_equally_divide(bundle: ToDivide) -> Sequence[int]:
    lower, upper = bundle.range.lower, bundle.range.upper
    return [lower + (upper - lower) // 2]


def topic_count_equally_divide(bundle: ToDivide) -> Sequence[int]:
    """Returns the hash halfway between the two middle topics in the order of hashes; empty if there are fewer
    than two topics."""
    hashes = sorted(bundle.topics)
    if len(hashes) < 2:
        return []
    before, after = hashes[len(hashes) // 2 - 1], hashes[len(hashes) // 2]
    return [before + (after - before) // 2]


def specified_positions_divide(bundle: ToDivide) -> Sequence[int]:
    """Returns the hashes in the request; :func:`positions_within` leaves out those outside the bundle."""
    return bundle.positions


def flow_or_qps_equally_divide(bundle: ToDivide) -> Sequence[int]:
    """Returns the hashes at which the bundle is split so that each part carries at most ``most``, or has one
    topic.

    The result is empty if the bundle does not exceed ``most`` by the tolerance.
    """
    busy = {
        at: carried for at, carried in bundle.topics.items() if carried.rate > 0 or carried.throughput > 0
    }
    whole = reduce(Carried.plus, busy.values(), Carried())
    if len(busy) < 2 or not whole.reaches(bundle.most, 1 + bundle.tolerance):
        return []
    found = []
    hashes = sorted(busy)
    part = busy[hashes[0]]
    for before, this in pairwise(hashes):
        part = part.plus(busy[this])
        if part.exceeds(bundle.most):
            found.append(before + (this - before) // 2)
            part = busy[this]
    return found


DIVISIONS: Mapping[str, Callable[[ToDivide], Sequence[int]]] = {
    each.__name__: each
    for each in (
        range_equally_divide,
        topic_count_equally_divide,
        specified_positions_divide,
        flow_or_qps_equally_divide,
    )
}
DEFAULT_DIVISION = range_equally_divide.__name__


def positions_within(bundle: ToDivide, algorithm: str) -> Sequence[int]:
    """Returns the hashes at which an algorithm splits the bundle, ascending and strictly within the bundle;
    empty if the algorithm does not split it.

    :param algorithm: one of :data:`DIVISIONS`
    """
    lower, upper = bundle.range.lower, bundle.range.upper
    return sorted({at for at in DIVISIONS[algorithm](bundle) if lower < at < upper})
