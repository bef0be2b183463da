"""What is asked over HTTP: each endpoint, and some of them in several ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.routing import Endpoint
from magnetar.security.authorization import Resource, TopicOperation

PLAIN, GRANTED, PARTITION, LEGACY = "plain", "granted", "partition", "legacy"
"""What a row is asked of: something in a namespace with permissions, a topic with permissions of its own,
a partition of such a topic, something with a legacy name."""


@dataclass(frozen=True, slots=True)
class Row:
    """One endpoint, asked in one way."""

    endpoint: Endpoint
    pattern: str
    """Of the path that is asked."""
    way: str = PLAIN

    @property
    def key(self) -> str:
        """As the matrix names it."""
        return f"{self.endpoint.method} {self.pattern}" + ("" if self.way == PLAIN else f" {self.way}")

    @property
    def domain(self) -> str:
        return "non-persistent" if "/non-persistent/" in self.pattern else "persistent"

    def ends(self, *endings: str) -> bool:
        return self.pattern.endswith(endings)


_PARTITIONED = (
    "/partitions",
    "/partitions/{partition}",
    "/partitioned-stats",
    "/partitioned-internalStats",
    "/createMissedPartitions",
)


NOT_ASKED = frozenset({"POST /admin/v2/brokers/shutdown"})
"""What would end the broker that is asked: only superusers may, and a test asks that of the rules."""


def rows() -> Sequence[Row]:
    """All that can be asked, in the order of the table."""
    found: list[Row] = []
    for endpoint in ENDPOINTS:
        if f"{endpoint.method} {endpoint.path}" in NOT_ASKED or _is_beside_the_broker(endpoint):
            continue
        plain = Row(endpoint, endpoint.path)
        found.append(plain)
        found.extend(_ways(plain))
    return found


def _is_beside_the_broker(endpoint: Endpoint) -> bool:
    """WebSockets: Pulsar's broker has no statistics of them, and a handshake is more than a request.

    Packages: they are switched off where nobody asks for them, and an upload is more than JSON.
    """
    return endpoint.upgrades or "/proxy-stats/" in endpoint.path or "/packages/" in endpoint.path


def _ways(plain: Row) -> Iterator[Row]:
    endpoint = plain.endpoint
    if _is_asked_of_permissions(plain):
        yield replace(plain, way=GRANTED)
        if not plain.ends(*_PARTITIONED) and endpoint.operation is not TopicOperation.CREATE_TOPIC:
            yield replace(plain, way=PARTITION)
    for alias in endpoint.aliases:
        if "{cluster}/{namespace}" in alias and not alias.startswith("/admin/v2/"):
            yield Row(endpoint, alias, LEGACY)


def _is_asked_of_permissions(row: Row) -> bool:
    if row.endpoint.resource not in (Resource.TOPIC, Resource.SUBSCRIPTION) or "magnetar" in row.pattern:
        return False
    return isinstance(row.endpoint.operation, TopicOperation) and row.domain == "persistent"


def setters() -> Mapping[str, Endpoint]:
    """By the pattern of a path: the endpoint that sets what another one of that path takes away."""
    found: dict[str, Endpoint] = {}
    for endpoint in ENDPOINTS:
        if endpoint.method in ("POST", "PUT"):
            for pattern in (endpoint.path, *endpoint.aliases):
                found.setdefault(pattern, endpoint)
    return found


def readers() -> Mapping[str, Endpoint]:
    """By the pattern of a path: the endpoint that reads it."""
    found: dict[str, Endpoint] = defaultdict()
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET":
            for pattern in (endpoint.path, *endpoint.aliases):
                found[pattern] = endpoint
    return found


QUERIES: Mapping[str, str] = {
    "POST /admin/v2/bookies/racks-info/{bookie}": "group=g",
    "GET /admin/v2/namespaces/{cluster}/antiAffinity/{group}": "tenant=matrix",
    "/examinemessage": "initialPosition=earliest&messagePosition=1",
    "POST /admin/v2/persistent/{tenant}/{namespace}/{topic}/messageTTL": "messageTTL=60",
    "POST /admin/v2/non-persistent/{tenant}/{namespace}/{topic}/messageTTL": "messageTTL=60",
    "DELETE /admin/v2/persistent/{tenant}/{namespace}/{topic}/properties": "key=k",
}
