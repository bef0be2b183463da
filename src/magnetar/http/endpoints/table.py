"""The table of all endpoints. Paths of version 1 of the interface are aliases."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.endpoints.bookies import BOOKIES
from magnetar.http.endpoints.load import LOAD
from magnetar.http.endpoints.namespaces import NAMESPACES
from magnetar.http.endpoints.packages import PACKAGES
from magnetar.http.endpoints.publishing import PUBLISHING
from magnetar.http.endpoints.read_plans import READ_PLANS
from magnetar.http.endpoints.resource_groups import RESOURCE_GROUPS
from magnetar.http.endpoints.schemas import SCHEMAS
from magnetar.http.endpoints.storage import STORAGE
from magnetar.http.endpoints.topic_policies import TOPIC_POLICIES
from magnetar.http.endpoints.topics import TOPICS
from magnetar.http.endpoints.websocket import WEBSOCKET
from magnetar.http.handlers import backlogs, cluster, tenants
from magnetar.http.routing import Endpoint, Parameter
from magnetar.security.operations import BrokerOperation as B
from magnetar.security.operations import ClusterOperation as C
from magnetar.security.operations import TenantOperation as T
from magnetar.security.operations import TopicOperation

_TAKEN = {409: "it is there already"}

ENDPOINTS: Sequence[Endpoint] = (
    Endpoint("GET", "/metrics", cluster.metrics, "metrics for Prometheus", B.GET_METRICS),
    Endpoint(
        "GET",
        "/admin/v2/clusters",
        cluster.list_clusters,
        "list clusters",
        C.LIST_CLUSTERS,
        ("/admin/clusters",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}",
        cluster.get_cluster,
        "addresses of a cluster",
        C.GET_CLUSTER,
        ("/admin/clusters/{cluster}",),
    ),
    Endpoint(
        "PUT",
        "/admin/v2/clusters/{cluster}",
        tenants.create_cluster,
        "create a cluster",
        C.CREATE_CLUSTER,
        ("/admin/clusters/{cluster}",),
        body="ClusterData",
        success=200,
        refusals=_TAKEN,
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}",
        tenants.update_cluster,
        "change a cluster",
        C.UPDATE_CLUSTER,
        ("/admin/clusters/{cluster}",),
        body="ClusterData",
        success=200,
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/clusters/{cluster}",
        tenants.delete_cluster,
        "delete a cluster",
        C.DELETE_CLUSTER,
        ("/admin/clusters/{cluster}",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}/peers",
        tenants.peers,
        "clusters that stand in for one",
        C.GET_PEERS,
        ("/admin/clusters/{cluster}/peers",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}/peers",
        tenants.set_peers,
        "set the clusters that stand in for one",
        C.UPDATE_PEERS,
        ("/admin/clusters/{cluster}/peers",),
        body="array<string>",
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers",
        cluster.list_brokers,
        "list live brokers",
        B.LIST_BROKERS,
        ("/admin/brokers",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/backlog-quota-check",
        backlogs.check_quotas,
        "look at backlog quotas now",
        B.CHECK_BACKLOG_QUOTAS,
        ("/admin/brokers/backlog-quota-check",),
        success=204,
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/health",
        cluster.health,
        "publish and read one message",
        B.HEALTH_CHECK,
        ("/admin/brokers/health",),
        (Parameter("brokerId", "text"), Parameter("topicVersion", "text")),
        refusals={404: "there is no such broker"},
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/ready",
        cluster.ready,
        "whether clients are served",
        B.READY_CHECK,
        ("/admin/brokers/ready",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/version",
        cluster.version,
        "version of Magnetar",
        B.GET_VERSION,
        ("/admin/brokers/version",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/leaderBroker",
        cluster.leader,
        "the broker that leads the cluster",
        B.GET_LEADER,
        ("/admin/brokers/leaderBroker",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/internal-configuration",
        cluster.internal_configuration,
        "where the metadata lies",
        B.GET_CONFIGURATION,
        ("/admin/brokers/internal-configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration",
        cluster.dynamic_settings,
        "settings that can be changed while the broker runs",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/values",
        cluster.dynamic_values,
        "settings that were changed while the broker runs",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration/values",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/brokers/configuration/{setting}/{value}",
        cluster.set_dynamic,
        "change a setting while the broker runs",
        B.UPDATE_CONFIGURATION,
        ("/admin/brokers/configuration/{setting}/{value}",),
        success=200,
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/brokers/configuration/{setting}",
        cluster.delete_dynamic,
        "let a setting be what the broker's file says",
        B.UPDATE_CONFIGURATION,
        ("/admin/brokers/configuration/{setting}",),
        success=200,
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/runtime",
        cluster.runtime_settings,
        "all settings in effect",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration/runtime",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/brokers/shutdown",
        cluster.shut_down,
        "give up everything and stop",
        B.SHUT_DOWN,
        ("/admin/brokers/shutdown",),
        (Parameter("maxConcurrentUnloadPerSec", "whole", "0"),),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/{cluster}",
        cluster.list_brokers_of_cluster,
        "list live brokers",
        B.LIST_BROKERS,
        ("/admin/brokers/{cluster}",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces",
        cluster.owned,
        "bundles that a broker serves",
        B.LIST_BROKERS,
        ("/admin/brokers/{cluster}/{broker}/ownedNamespaces",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/tenants",
        cluster.list_tenants,
        "list tenants",
        T.LIST_TENANTS,
        ("/admin/properties",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/tenants/{tenant}",
        cluster.get_tenant,
        "a tenant",
        T.GET_TENANT,
        ("/admin/properties/{tenant}",),
    ),
    Endpoint(
        "PUT",
        "/admin/v2/tenants/{tenant}",
        tenants.create_tenant,
        "create a tenant",
        T.CREATE_TENANT,
        ("/admin/properties/{tenant}",),
        body="TenantInfo",
        refusals=_TAKEN,
    ),
    Endpoint(
        "POST",
        "/admin/v2/tenants/{tenant}",
        tenants.update_tenant,
        "change a tenant",
        T.UPDATE_TENANT,
        ("/admin/properties/{tenant}",),
        body="TenantInfo",
        refusals={409: "its namespaces use a cluster that is to go"},
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/tenants/{tenant}",
        tenants.delete_tenant,
        "delete a tenant",
        T.DELETE_TENANT,
        ("/admin/properties/{tenant}",),
        parameters=(Parameter("force", "truth", "false"),),
        refusals={405: "forced deletion is switched off", 409: "it has namespaces"},
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        cluster.lookup,
        "which broker serves a topic",
        TopicOperation.LOOKUP,
        (
            "/lookup/v2/topic/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
            "/lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
        ),
        parameters=(Parameter("authoritative", "truth", "false"), Parameter("listenerName", "text")),
        refusals={307: "another broker is to be asked"},
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
        cluster.bundle,
        "which bundle a topic lies in",
        TopicOperation.GET_BUNDLE_RANGE,
        ("/lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}/bundle",),
    ),
    *NAMESPACES,
    *TOPICS,
    *TOPIC_POLICIES,
    *SCHEMAS,
    *RESOURCE_GROUPS,
    *BOOKIES,
    *LOAD,
    *PACKAGES,
    *PUBLISHING,
    *READ_PLANS,
    *STORAGE,
    *WEBSOCKET,
)
