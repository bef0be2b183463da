"""All endpoints: the table, those of Pulsar that are left out (501 with the reason), and public ones.

Paths of version 1 of the interface are aliases.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.errors import NotSupported
from magnetar.http.endpoints.brokers import BOOKIES, LOAD
from magnetar.http.endpoints.namespaces import NAMESPACES, RESOURCE_GROUPS
from magnetar.http.endpoints.packages import PACKAGES
from magnetar.http.endpoints.publishing import PUBLISHING, SCHEMAS
from magnetar.http.endpoints.storage import READ_PLANS, STORAGE
from magnetar.http.endpoints.topic_policies import TOPIC_POLICIES
from magnetar.http.endpoints.topics import TOPICS
from magnetar.http.endpoints.websocket import WEBSOCKET
from magnetar.http.engine.message import Request, Response
from magnetar.http.handlers import cluster, subscriptions, tenants
from magnetar.http.handlers.brokers import rotation
from magnetar.http.routing import Application, Endpoint, Handler, Parameter
from magnetar.left_out import Row, Subject, subjects
from magnetar.security.authorization import BrokerOperation, TopicOperation
from magnetar.security.authorization import BrokerOperation as B
from magnetar.security.authorization import ClusterOperation as C
from magnetar.security.authorization import TenantOperation as T

_TAKEN = {409: "the object already exists"}
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
        refusals={412: "the cluster is the local cluster, or namespaces list it"},
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}/peers",
        tenants.peers,
        "peer clusters of a cluster",
        C.GET_PEERS,
        ("/admin/clusters/{cluster}/peers",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}/peers",
        tenants.set_peers,
        "set the peer clusters of a cluster",
        C.UPDATE_PEERS,
        ("/admin/clusters/{cluster}/peers",),
        body="array<string>",
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}/migrate",
        tenants.migration,
        "cluster to which clients of a cluster are migrated",
        C.GET_MIGRATION,
        ("/admin/clusters/{cluster}/migrate",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}/migrate",
        tenants.set_migration,
        "set whether a cluster is migrated to another one",
        C.UPDATE_MIGRATION,
        ("/admin/clusters/{cluster}/migrate",),
        (Parameter("migrated", "truth", "false"),),
        body="ClusterUrl",
        success=200,
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
        subscriptions.check_quotas,
        "check backlog quotas now",
        B.CHECK_BACKLOG_QUOTAS,
        ("/admin/brokers/backlog-quota-check",),
        success=204,
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/health",
        cluster.health,
        "check the broker by publishing and reading a message",
        B.HEALTH_CHECK,
        ("/admin/brokers/health",),
        (Parameter("brokerId", "text"), Parameter("topicVersion", "text")),
        refusals={404: "the broker does not exist"},
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/ready",
        cluster.ready,
        "whether the broker serves clients",
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
        "addresses of the metadata stores",
        B.GET_CONFIGURATION,
        ("/admin/brokers/internal-configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration",
        cluster.dynamic_settings,
        "settings that can be changed while brokers run",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/values",
        cluster.dynamic_values,
        "settings that were changed while brokers run",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration/values",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/brokers/configuration/{setting}/{value}",
        cluster.set_dynamic,
        "change a setting while brokers run",
        B.UPDATE_CONFIGURATION,
        ("/admin/brokers/configuration/{setting}/{value}",),
        success=200,
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/brokers/configuration/{setting}",
        cluster.delete_dynamic,
        "reset a setting to the value in the configuration file",
        B.UPDATE_CONFIGURATION,
        ("/admin/brokers/configuration/{setting}",),
        success=200,
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/runtime",
        cluster.runtime_settings,
        "all effective settings",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration/runtime",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/brokers/shutdown",
        cluster.shut_down,
        "unload all bundles and stop the broker",
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
        refusals={409: "namespaces of the tenant use a cluster that would be removed"},
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/tenants/{tenant}",
        tenants.delete_tenant,
        "delete a tenant",
        T.DELETE_TENANT,
        ("/admin/properties/{tenant}",),
        parameters=(Parameter("force", "truth", "false"),),
        refusals={405: "forced deletion is disabled", 409: "the tenant has namespaces"},
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        cluster.lookup,
        "address of the broker that serves a topic",
        TopicOperation.LOOKUP,
        (
            "/lookup/v2/topic/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
            "/lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
        ),
        parameters=(Parameter("authoritative", "truth", "false"), Parameter("listenerName", "text")),
        refusals={307: "another broker answers the lookup"},
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
        cluster.bundle,
        "bundle of a topic",
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


def _refusing(reason: str) -> Handler:
    async def refuse(_application: Application, _request: Request) -> Response:
        raise NotSupported(reason)

    return refuse


def _endpoint(subject: Subject, row: Row) -> Endpoint:
    return Endpoint(
        row.method,
        row.path,
        _refusing(subject.reason),
        f"refused: {row.what}",
        BrokerOperation.GET_VERSION,
        aliases=row.older,
        success=501,
        refusals={501: subject.reason},
        # The answer describes this release, not the broker, so it needs no permission.
        public=True,
        asks=True,
        anywhere=True,
    )


LEFT_OUT: Sequence[Endpoint] = [
    _endpoint(subject, row) for subject in subjects().values() for row in subject.rows
]
WHOLE: Sequence[Endpoint] = (
    *ENDPOINTS,
    *LEFT_OUT,
    Endpoint(
        "GET",
        "/status.html",
        rotation,
        "whether load balancers may send clients here",
        BrokerOperation.READY_CHECK,
        refusals={404: "the file of statusFilePath does not exist, or clients are not served"},
        # Load balancers have no credentials; Pulsar does not authenticate them either.
        public=True,
    ),
)
