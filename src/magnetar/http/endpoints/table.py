"""The table of all endpoints. Paths of version 1 of the interface are aliases."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.endpoints.namespaces import NAMESPACES
from magnetar.http.endpoints.read_plans import READ_PLANS
from magnetar.http.endpoints.schemas import SCHEMAS
from magnetar.http.endpoints.storage import STORAGE
from magnetar.http.endpoints.topic_policies import TOPIC_POLICIES
from magnetar.http.endpoints.topics import TOPICS
from magnetar.http.handlers import backlogs, cluster, tenants
from magnetar.http.routing import Endpoint

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
    Endpoint(
        "PUT",
        "/admin/v2/clusters/{cluster}",
        tenants.create_cluster,
        "create a cluster",
        ("/admin/clusters/{cluster}",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}",
        tenants.update_cluster,
        "change a cluster",
        ("/admin/clusters/{cluster}",),
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/clusters/{cluster}",
        tenants.delete_cluster,
        "delete a cluster",
        ("/admin/clusters/{cluster}",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}/peers",
        tenants.peers,
        "clusters that stand in for one",
        ("/admin/clusters/{cluster}/peers",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}/peers",
        tenants.set_peers,
        "set the clusters that stand in for one",
        ("/admin/clusters/{cluster}/peers",),
    ),
    Endpoint("GET", "/admin/v2/brokers", cluster.list_brokers, "list live brokers", ("/admin/brokers",)),
    Endpoint(
        "GET",
        "/admin/v2/brokers/backlog-quota-check",
        backlogs.check_quotas,
        "look at backlog quotas now",
        ("/admin/brokers/backlog-quota-check",),
    ),
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
        "/admin/v2/brokers/leaderBroker",
        cluster.leader,
        "the broker that leads the cluster",
        ("/admin/brokers/leaderBroker",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/internal-configuration",
        cluster.internal_configuration,
        "where the metadata lies",
        ("/admin/brokers/internal-configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration",
        cluster.dynamic_settings,
        "settings that can be changed while the broker runs",
        ("/admin/brokers/configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/values",
        cluster.dynamic_values,
        "settings that were changed while the broker runs",
        ("/admin/brokers/configuration/values",),
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
        cluster.list_brokers_of_cluster,
        "list live brokers",
        ("/admin/brokers/{cluster}",),
    ),
    Endpoint("GET", "/admin/v2/tenants", cluster.list_tenants, "list tenants", ("/admin/properties",)),
    Endpoint(
        "GET", "/admin/v2/tenants/{tenant}", cluster.get_tenant, "a tenant", ("/admin/properties/{tenant}",)
    ),
    Endpoint(
        "PUT",
        "/admin/v2/tenants/{tenant}",
        tenants.create_tenant,
        "create a tenant",
        ("/admin/properties/{tenant}",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/tenants/{tenant}",
        tenants.update_tenant,
        "change a tenant",
        ("/admin/properties/{tenant}",),
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/tenants/{tenant}",
        tenants.delete_tenant,
        "delete a tenant",
        ("/admin/properties/{tenant}",),
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
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
        cluster.bundle,
        "which bundle a topic lies in",
        ("/lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}/bundle",),
    ),
    *NAMESPACES,
    *TOPICS,
    *TOPIC_POLICIES,
    *SCHEMAS,
    *READ_PLANS,
    *STORAGE,
)
