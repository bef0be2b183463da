"""The tenants, namespaces and topics that cells are asked of, made by the superuser."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from zlib import crc32

from endpoint_bodies import BODIES, NAMES

from access_matrix.binary import NAMESPACES, publish
from access_matrix.calls import NO_ANSWER, Calls
from access_matrix.columns import OTHER_TENANT, SETTINGS, SUPERUSER, TENANT, TENANT_ADMINS
from access_matrix.rows import GRANTED, LEGACY, PARTITION, QUERIES, Row, setters
from magnetar.http.routing import Endpoint
from magnetar.security.authorization import Resource, TopicOperation

CLUSTER = "standalone"
_ATTEMPTS = 30
"""What was made a moment ago may not be found yet by a broker that is busy."""
SHARED, BARE = "shared", "bare"
"""Namespaces of topics: the second one grants nothing."""
_OWN_GRANTS = tuple(f"{BARE}{number}" for number in range(16))
"""Namespaces whose topics alone grant something: a change of such a grant applies to all topics of one."""

_SETTERS = setters()
_GRANTS = {"producer": ["produce"], "consumer": ["consume"]}
_OWN_BODIES: Mapping[str, Any] = {
    "TenantInfo": {"adminRoles": [*TENANT_ADMINS], "allowedClusters": [CLUSTER]},
    "ClusterData": {"serviceUrl": "http://127.0.0.1:8080", "brokerServiceUrl": "pulsar://127.0.0.1:6650"},
    "array<GrantTopicPermissionOptions>": [
        {"topic": f"persistent://{TENANT}/shared/none", "role": "r", "actions": ["produce"]}
    ],
    "array<RevokeTopicPermissionOptions>": [{"topic": f"persistent://{TENANT}/shared/none", "role": "r"}],
    "PublishRate": {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": 1000},
}
_MADE_BY_THE_CELL = (
    "PUT /admin/v2/tenants/{tenant}",
    "PUT /admin/v2/clusters/{cluster}",
    "PUT /admin/v2/namespaces/{tenant}/{namespace}",
    "PUT /admin/namespaces/{tenant}/{cluster}/{namespace}",
    "PUT /admin/namespaces/{tenant}/{cluster}/{namespace}/policy",
)


def make_namespaces(calls: Calls) -> None:
    """Tenants and namespaces that all cells share, with their admins and permissions."""
    for tenant, admins in ((TENANT, [*TENANT_ADMINS]), (OTHER_TENANT, ["neighbour"])):
        body = {"adminRoles": admins, "allowedClusters": [CLUSTER]}
        _made(calls, "PUT", f"/admin/v2/tenants/{tenant}", body)
    for name in (*NAMESPACES, *(f"{TENANT}/{each}" for each in _OWN_GRANTS)):
        make_namespace(calls, name, granted=BARE not in name)


def make_namespace(calls: Calls, name: str, *, granted: bool = True) -> None:
    path = namespace_path(name)
    body = {} if name.count("/") == 1 else {"replication_clusters": [CLUSTER]}
    _made(calls, "PUT", path, body)
    if granted:
        grant(calls, path)


def grant(calls: Calls, path: str) -> None:
    """Gives those of the columns their permissions on a namespace or topic."""
    for role, actions in _GRANTS.items():
        _made(calls, "POST", f"{path}/permissions/{role}", actions)


def namespace_path(name: str) -> str:
    return f"/admin/{'v2/' if name.count('/') == 1 else ''}namespaces/{name}"


def topic_path(domain: str, namespace: str, topic: str) -> str:
    return f"/admin/{'v2/' if namespace.count('/') == 1 else ''}{domain}/{namespace}/{topic}"


def _made(calls: Calls, method: str, path: str, body: Any = None) -> None:
    for _attempt in range(_ATTEMPTS):
        status, answer = calls.ask(SUPERUSER, method, path, body)
        if NO_ANSWER < status < 300 or status == 409:
            return
        time.sleep(0.1)
    raise AssertionError(f"{method} {path} is answered {status} {answer[:300]!r}")


@dataclass(slots=True)
class Things:
    """What one row is asked of now."""

    row: Row
    names: dict[str, str]
    namespace: str = ""
    topic: str = ""
    """The topic's own name; that of the partition is in ``names``."""
    where: tuple[int, int] | None = None
    """The last message, where there are any."""
    before: list[Any] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.path_of(self.row.pattern, self.row.endpoint)

    def path_of(self, pattern: str, endpoint: Endpoint) -> str:
        pieces = pattern.split("/")
        path = "/".join(quote(self.names[p[1:-1]]) if p.startswith("{") else p for p in pieces)
        query = next(
            (text for end, text in QUERIES.items() if f"{endpoint.method} {endpoint.path}".endswith(end)), ""
        )
        if pattern == "/metrics":
            return "/metrics/"
        return f"{path}?{query}" if query else path

    def body_of(self, endpoint: Endpoint) -> Any:
        kind = endpoint.body
        if kind in ("MessageId", "ResetCursorData") and self.where is not None:
            ledger, entry = self.where
            body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
            return body | ({"isExcluded": False} if kind == "ResetCursorData" else {})
        if kind == "int" and endpoint.path.endswith("/partitions"):
            return 3
        if kind == "PartitionedTopicMetadata":
            return 2
        return _OWN_BODIES.get(kind, BODIES[kind])


_GROUP = "/admin/v2/resourcegroups/{resourcegroup}"


class Objects:
    """Makes them."""

    def __init__(self, calls: Calls, port: int) -> None:
        self._calls = calls
        self._port = port

    def make(self, row: Row, own: str, *, granted: bool = True) -> Things:
        """Objects of a row by a name that nothing has yet: earlier ones have been changed.

        :param granted: who asks next rests on permissions
        """
        names = NAMES | {"tenant": TENANT, "cluster": CLUSTER, "domain": row.domain}
        if "{setting}" in row.endpoint.path:
            # Who asks next has to be who it was before.
            names["value"] = SETTINGS[names["setting"]]
        if "{resourcegroup}" in row.pattern:
            names["resourcegroup"] = own
            if row.key != f"PUT {_GROUP}":
                self._set(_GROUP.format(resourcegroup=own), BODIES["ResourceGroup"], "PUT")
        if "{bookie}" in row.pattern:
            names["bookie"] = f"{own}:3181"
            if row.endpoint.method != "POST":
                path = f"/admin/v2/bookies/racks-info/{quote(names['bookie'])}?group=g"
                self._set(path, BODIES["BookieInfo"], "POST")
        things = Things(row, names)
        if row.pattern.startswith("/lookup"):
            things.names["domain"] = "persistent"
        made_by_cell = row.key.removesuffix(f" {LEGACY}") in _MADE_BY_THE_CELL
        resource = row.endpoint.resource
        if resource is Resource.CLUSTER and "clusters" in row.pattern:
            things.names["cluster"] = own
            if not made_by_cell:
                self._set(f"/admin/v2/clusters/{own}", _OWN_BODIES["ClusterData"], "PUT")
        elif resource is Resource.TENANT and row.way != LEGACY and "namespaces" not in row.pattern:
            things.names["tenant"] = own
            if not made_by_cell:
                self._set(f"/admin/v2/tenants/{own}", _OWN_BODIES["TenantInfo"], "PUT")
        elif resource is Resource.NAMESPACE:
            self._make_namespace(things, own, made_by_cell, granted)
        elif resource in (Resource.TOPIC, Resource.SUBSCRIPTION):
            self._make_topic(things, own, granted)
        self._set_what_is_taken_away(things)
        things.before = self.state(things)
        return things

    def _set(self, path: str, body: Any, method: str = "POST") -> int:
        status, _answer = self._calls.ask(SUPERUSER, method, path, body)
        return status

    def _make_namespace(self, things: Things, own: str, made_by_cell: bool, granted: bool) -> None:
        row = things.row
        topics_only = row.pattern.startswith(("/admin/v2/persistent", "/admin/v2/non-persistent"))
        things.names["namespace"] = SHARED if topics_only else own
        between = f"{CLUSTER}/" if row.way == LEGACY else ""
        things.namespace = f"{TENANT}/{between}{things.names['namespace']}"
        if made_by_cell:
            return
        make_namespace(self._calls, things.namespace, granted=granted)
        if any(word in row.pattern for word in ("clearBacklog", "unsubscribe")):
            self._make_plain_topic(things, "t")
            things.topic = "t"

    def _make_topic(self, things: Things, own: str, granted: bool) -> None:
        row = things.row
        space = SHARED
        if row.way in (GRANTED, PARTITION):
            space = _OWN_GRANTS[crc32(row.key.encode()) % len(_OWN_GRANTS)]
        things.names["namespace"] = space
        things.namespace = f"{TENANT}/{CLUSTER}/{space}" if row.way == LEGACY else f"{TENANT}/{space}"
        things.topic = things.names["topic"] = own
        path = topic_path(row.domain, things.namespace, own)
        if row.endpoint.operation is TopicOperation.CREATE_TOPIC and row.endpoint.method == "PUT":
            return
        partitioned = row.way == PARTITION or "partition" in row.pattern or "Missed" in row.pattern
        if partitioned:
            self._set(f"{path}/partitions", 2, "PUT")
        if row.way == PARTITION:
            things.names["topic"] = f"{own}-partition-0"
            self._fill(things, f"{own}-partition-0")
        elif not partitioned:
            self._make_plain_topic(things, own)
        if granted and row.way in (GRANTED, PARTITION):
            grant(self._calls, path)
        if row.pattern.endswith("/permissions/{role}") and row.endpoint.method == "DELETE":
            self._set(f"{path}/permissions/r", ["produce"])

    def _make_plain_topic(self, things: Things, name: str) -> None:
        self._set(topic_path(things.row.domain, things.namespace, name), None, "PUT")
        self._fill(things, name)

    def _fill(self, things: Things, name: str) -> None:
        """A subscription and two messages, where the row is about such."""
        row = things.row
        if row.domain != "persistent" or not _about_messages(row):
            return
        path = topic_path(row.domain, things.namespace, name)
        if row.ends("/subscription/{subscription}") and row.endpoint.method == "PUT":
            return
        self._set(f"{path}/subscription/s", None, "PUT")
        things.where = publish(self._port, f"persistent://{things.namespace}/{name}")
        things.names |= {"ledgerId": str(things.where[0]), "entryId": str(things.where[1])}

    def _set_what_is_taken_away(self, things: Things) -> None:
        row = things.row
        setter = _SETTERS.get(row.pattern)
        if "/schemas/" in row.pattern and not (row.endpoint.method == "POST" and row.ends("/schema")):
            place = row.pattern.rpartition("{topic}")[0] + "{topic}/schema"
            self._set(things.path_of(place, _SETTERS[place]), BODIES["PostSchemaPayload"])
        if (
            row.pattern.startswith("/admin")
            and "namespaces" in row.pattern
            and row.endpoint.method == "DELETE"
        ):
            path = namespace_path(things.namespace)
            if row.ends("/permissions/{role}"):
                self._set(f"{path}/permissions/r", ["produce"])
            elif row.ends("/{subscription}/{role}"):
                self._set(f"{path}/permissions/subscription/s", ["r"])
            elif row.ends("/property/{key}", "/properties"):
                self._set(f"{path}/properties", {"k": "v"}, "PUT")
        if row.endpoint.method != "DELETE" or setter is None or _names_an_object(row):
            return
        path = things.path_of(row.pattern, setter)
        self._set(path, things.body_of(setter) if setter.body else None, setter.method)

    def state(self, things: Things) -> list[Any]:
        """What of the objects a request might have changed, as the superuser reads it."""
        row = things.row
        if not row.endpoint.changes:
            return []
        return [_settled(*self._calls.ask(SUPERUSER, "GET", path), path) for path in _read(things)]


def _about_messages(row: Row) -> bool:
    if row.endpoint.resource is Resource.SUBSCRIPTION:
        return True
    words = ("essage", "acklog", "entry", "unsubscribe", "truncate", "trim", "read-plans", "subscriptions")
    return any(word in row.pattern for word in words)


def _names_an_object(row: Row) -> bool:
    """Whether it takes away an object itself, not what was set for it."""
    return row.ends(
        "/{tenant}",
        "/clusters/{cluster}",
        "/{namespace}",
        "/{topic}",
        "/{topic}/partitions",
        "/subscription/{subscription}",
        "/{role}",
        "/{key}",
        "/{plan}",
        "/{resourcegroup}",
    )


def _read(things: Things) -> list[str]:
    row, names = things.row, things.names
    if row.pattern == _GROUP:
        return [_GROUP.format_map(names)]
    if row.endpoint.resource is Resource.CLUSTER:
        return [f"/admin/v2/clusters/{names['cluster']}", f"/admin/v2/clusters/{names['cluster']}/peers"]
    if row.endpoint.resource is Resource.TENANT:
        return [f"/admin/v2/tenants/{names['tenant']}"]
    if row.endpoint.resource is Resource.NAMESPACE:
        path = namespace_path(things.namespace)
        paths = [path]
        if row.ends("/properties", "/property/{key}", "/property/{key}/{value}"):
            paths.append(f"{path}/properties")
        if things.topic:
            paths.append(topic_path("persistent", things.namespace, things.topic) + "/stats")
        return paths
    return _read_of_topic(things) if things.topic else []


def _read_of_topic(things: Things) -> list[str]:
    row = things.row
    path = topic_path(row.domain, things.namespace, things.names["topic"])
    if "/schemas/" in row.pattern:
        return [f"{row.pattern.partition('schemas/')[0]}schemas/{things.namespace}/{things.topic}/schemas"]
    if "/permissions/" in row.pattern:
        return [f"{path}/permissions"]
    if row.endpoint.sets or row.ends("/properties"):
        return [things.path]
    partitions = topic_path(row.domain, things.namespace, things.topic) + "/partitions"
    return [partitions, f"{path}/stats"]


def _settled(status: int, body: bytes, path: str) -> Any:
    """An answer without what moves by itself."""
    if status >= 300 or not body:
        return status
    try:
        value = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
    if path.endswith("/stats"):
        found = value.get("subscriptions", {})
        return {
            name: [one.get("msgBacklog"), one.get("isReplicated"), one.get("subscriptionProperties")]
            for name, one in sorted(found.items())
        }
    return value
