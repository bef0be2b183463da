"""The table of all endpoints. Paths of version 1 of the interface are aliases."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http import handlers_cluster as cluster
from magnetar.http import handlers_topics as topics
from magnetar.http.routing import Endpoint

_NEW = "/admin/v2/persistent/{tenant}/{namespace}"
_LEGACY = (
    "/admin/persistent/{tenant}/{cluster}/{namespace}",
    "/admin/v2/persistent/{tenant}/{cluster}/{namespace}",
)


def _of_topics(rest: str) -> tuple[str, tuple[str, ...]]:
    """A path below a namespace's topics, and its legacy forms."""
    return _NEW + rest, tuple(path + rest for path in _LEGACY)


def _topic_endpoints() -> Sequence[Endpoint]:
    rows = (
        ("GET", "", topics.list_topics, "list topics, one for each partition"),
        ("GET", "/partitioned", topics.list_partitioned_topics, "list partitioned topics"),
        ("PUT", "/{topic}", topics.create_topic, "create a topic without partitions"),
        ("DELETE", "/{topic}", topics.delete_topic, "delete a topic; force disconnects its clients"),
        ("GET", "/{topic}/partitions", topics.get_partitions, "number of partitions"),
        ("PUT", "/{topic}/partitions", topics.create_partitioned_topic, "create a partitioned topic"),
        ("DELETE", "/{topic}/partitions", topics.delete_partitioned_topic, "delete a partitioned topic"),
        ("GET", "/{topic}/stats", topics.topic_stats, "statistics of a topic"),
        ("GET", "/{topic}/internalStats", topics.internal_stats, "ledgers and cursors of a topic"),
        ("PUT", "/{topic}/unload", topics.unload, "close a topic; clients come back"),
        ("POST", "/{topic}/terminate", topics.terminate, "end a topic for ever; answers the last message"),
    )
    return [
        Endpoint(method, path, handler, description, aliases)
        for method, rest, handler, description in rows
        for path, aliases in [_of_topics(rest)]
    ]


ENDPOINTS: Sequence[Endpoint] = (
    Endpoint("GET", "/metrics", cluster.metrics, "metrics for Prometheus"),
    Endpoint("GET", "/admin/v2/clusters", cluster.list_clusters, "list clusters", ("/admin/clusters",)),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}",
        cluster.get_cluster,
        "addresses of a cluster",
        ("/admin/clusters/{cluster}",),
    ),
    Endpoint("GET", "/admin/v2/brokers", cluster.list_brokers, "list live brokers", ("/admin/brokers",)),
    Endpoint(
        "GET",
        "/admin/v2/brokers/health",
        cluster.health,
        "publish and read one message",
        ("/admin/brokers/health",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/ready",
        cluster.ready,
        "whether clients are served",
        ("/admin/brokers/ready",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/version",
        cluster.version,
        "version of Magnetar",
        ("/admin/brokers/version",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/runtime",
        cluster.runtime_settings,
        "all settings in effect",
        ("/admin/brokers/configuration/runtime",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/{cluster}",
        cluster.list_brokers,
        "list live brokers",
        ("/admin/brokers/{cluster}",),
    ),
    Endpoint("GET", "/admin/v2/tenants", cluster.list_tenants, "list tenants", ("/admin/properties",)),
    Endpoint(
        "GET", "/admin/v2/tenants/{tenant}", cluster.get_tenant, "a tenant", ("/admin/properties/{tenant}",)
    ),
    Endpoint(
        "GET",
        "/admin/v2/namespaces/{tenant}",
        cluster.list_namespaces,
        "list namespaces of a tenant",
        ("/admin/namespaces/{tenant}",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/namespaces/{tenant}/{namespace}",
        cluster.get_namespace,
        "policies of a namespace",
        ("/admin/namespaces/{tenant}/{cluster}/{namespace}",),
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        cluster.lookup,
        "which broker serves a topic",
        (
            "/lookup/v2/topic/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
            "/lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
        ),
    ),
    *_topic_endpoints(),
)
