"""Endpoints of clusters, tenants and resource groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.admin.clusters import ClusterAdmin, ResourceGroupAdmin, TenantAdmin
from magnetar.errors import InvalidRequest, PreconditionFailed
from magnetar.http.calls import as_json, calls, done, json_or
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Endpoint, Parameter
from magnetar.http.shapes.fields import (
    Check,
    Field,
    body,
    fields,
    flag,
    string_list,
    text,
    texts,
    truth,
    whole,
)
from magnetar.http.shapes.names import CLUSTER, NEW_CLUSTER, NEW_TENANT, RESOURCE_GROUP, TENANT
from magnetar.security.authorization import ClusterOperation as C
from magnetar.security.authorization import TenantOperation as T

_TAKEN = {409: "the object already exists"}
_GROUPS = "/admin/v2/resourcegroups"
_GROUP = _GROUPS + "/{resourcegroup}"
_MISSING = {404: "no such resource group"}
_RATES = {
    "publishRateInMsgs": Field(whole()),
    "publishRateInBytes": Field(whole(64)),
    "dispatchRateInMsgs": Field(whole()),
    "dispatchRateInBytes": Field(whole(64)),
}
_GROUP_RATES = body(fields(_RATES), "resourceGroup", required="ResourceGroup is null")
_UNBOUNDED = dict.fromkeys(_RATES, -1)
_TENANT = body(
    fields({"adminRoles": Field(texts), "allowedClusters": Field(texts)}), "tenantInfo", required=None
)


def _address(*schemes: str) -> Check:
    def check(name: str, value: Any) -> str:
        given = text(name, value)
        if given and not given.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise InvalidRequest(f"Illegal {name}, example: {schemes[0]}://pulsar.example.com:8080")
        return given

    return check


_ADDRESSES = {
    "serviceUrl": Field(_address("http")),
    "serviceUrlTls": Field(_address("https")),
    "brokerServiceUrl": Field(_address("pulsar")),
    "brokerServiceUrlTls": Field(_address("pulsar+ssl")),
}
_CLUSTER_DATA = body(
    fields(
        {
            **_ADDRESSES,
            "proxyServiceUrl": Field(text),
            "authenticationPlugin": Field(text),
            "authenticationParameters": Field(text),
            "proxyProtocol": Field(text),
            "peerClusterNames": Field(texts),
            "brokerClientTlsEnabled": Field(truth, False),
            "tlsAllowInsecureConnection": Field(truth, False),
            "brokerClientTlsEnabledWithKeyStore": Field(truth, False),
            "brokerClientTlsTrustStoreType": Field(text),
            "brokerClientTlsTrustStore": Field(text),
            "brokerClientTlsTrustStorePassword": Field(text),
            "brokerClientTlsKeyStoreType": Field(text),
            "brokerClientTlsKeyStore": Field(text),
            "brokerClientTlsKeyStorePassword": Field(text),
            "brokerClientTrustCertsFilePath": Field(text),
            "brokerClientKeyFilePath": Field(text),
            "brokerClientCertificateFilePath": Field(text),
            "brokerClientSslFactoryPlugin": Field(text),
            "brokerClientSslFactoryPluginParams": Field(text),
            "listenerName": Field(text),
        }
    ),
    "clusterData",
    required="cluster data is required",
)
_CLUSTER_URL = body(
    fields(_ADDRESSES),
    "clusterUrl",
    required="cluster url is required",
)


def _migration(found: Mapping[str, Any]) -> Response:
    """Returns the migration state of a cluster in Pulsar's form, in which the addresses have an additional
    field ``empty``.
    """
    url = found.get("migratedClusterUrl")
    shown = {} if url is None else {"migratedClusterUrl": {**url, "empty": not any(url.values())}}
    return json_response({**found, **shown})


def _rates(found: Mapping[str, Any]) -> Response:
    return json_response({**_UNBOUNDED, **found})


def _tenant_info(request: Request) -> Mapping[str, Any]:
    """Returns the settings that the body gives for a tenant.

    :raises PreconditionFailed: the body is empty
    """
    value: Mapping[str, Any] | None = _TENANT(request)
    if value is None:
        raise PreconditionFailed("TenantInfo is null")
    return value


CLUSTERS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/admin/v2/clusters",
        calls(ClusterAdmin.names, answer=as_json),
        "list clusters",
        C.LIST_CLUSTERS,
        ("/admin/clusters",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}",
        calls(ClusterAdmin.get, CLUSTER, answer=as_json),
        "addresses of a cluster",
        C.GET_CLUSTER,
        ("/admin/clusters/{cluster}",),
    ),
    Endpoint(
        "PUT",
        "/admin/v2/clusters/{cluster}",
        calls(ClusterAdmin.create, NEW_CLUSTER, _CLUSTER_DATA, answer=done),
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
        calls(ClusterAdmin.update, CLUSTER, _CLUSTER_DATA, answer=done),
        "change a cluster",
        C.UPDATE_CLUSTER,
        ("/admin/clusters/{cluster}",),
        body="ClusterData",
        success=200,
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/clusters/{cluster}",
        calls(ClusterAdmin.delete, CLUSTER),
        "delete a cluster",
        C.DELETE_CLUSTER,
        ("/admin/clusters/{cluster}",),
        refusals={412: "the cluster is the local cluster, or namespaces list it"},
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}/peers",
        calls(ClusterAdmin.peers, CLUSTER, answer=json_or(200)),
        "peer clusters of a cluster",
        C.GET_PEERS,
        ("/admin/clusters/{cluster}/peers",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}/peers",
        calls(ClusterAdmin.set_peers, CLUSTER, string_list("peerClusterNames")),
        "set the peer clusters of a cluster",
        C.UPDATE_PEERS,
        ("/admin/clusters/{cluster}/peers",),
        body="array<string>",
    ),
    Endpoint(
        "GET",
        "/admin/v2/clusters/{cluster}/migrate",
        calls(ClusterAdmin.migration, CLUSTER, answer=_migration),
        "cluster to which clients of a cluster are migrated",
        C.GET_MIGRATION,
        ("/admin/clusters/{cluster}/migrate",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/clusters/{cluster}/migrate",
        calls(ClusterAdmin.set_migration, CLUSTER, _CLUSTER_URL, migrated=flag("migrated"), answer=done),
        "set whether a cluster is migrated to another one",
        C.UPDATE_MIGRATION,
        ("/admin/clusters/{cluster}/migrate",),
        (Parameter("migrated", "truth", "false"),),
        body="ClusterUrl",
        success=200,
    ),
)
TENANTS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/admin/v2/tenants",
        calls(TenantAdmin.names, answer=as_json),
        "list tenants",
        T.LIST_TENANTS,
        ("/admin/properties",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/tenants/{tenant}",
        calls(TenantAdmin.get, TENANT, answer=as_json),
        "a tenant",
        T.GET_TENANT,
        ("/admin/properties/{tenant}",),
    ),
    Endpoint(
        "PUT",
        "/admin/v2/tenants/{tenant}",
        calls(TenantAdmin.create, NEW_TENANT, _tenant_info),
        "create a tenant",
        T.CREATE_TENANT,
        ("/admin/properties/{tenant}",),
        body="TenantInfo",
        refusals=_TAKEN,
    ),
    Endpoint(
        "POST",
        "/admin/v2/tenants/{tenant}",
        calls(TenantAdmin.update, TENANT, _tenant_info),
        "change a tenant",
        T.UPDATE_TENANT,
        ("/admin/properties/{tenant}",),
        body="TenantInfo",
        refusals={409: "namespaces of the tenant use a cluster that would be removed"},
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/tenants/{tenant}",
        calls(TenantAdmin.delete, TENANT, force=flag("force")),
        "delete a tenant",
        T.DELETE_TENANT,
        ("/admin/properties/{tenant}",),
        parameters=(Parameter("force", "truth", "false"),),
        refusals={405: "forced deletion is disabled", 409: "the tenant has namespaces"},
    ),
)
RESOURCE_GROUPS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        _GROUPS,
        calls(ResourceGroupAdmin.names, answer=as_json),
        "list resource groups",
        C.LIST_RESOURCE_GROUPS,
    ),
    Endpoint(
        "GET",
        _GROUP,
        calls(ResourceGroupAdmin.get, RESOURCE_GROUP, answer=_rates),
        "rates of a resource group",
        C.GET_RESOURCE_GROUP,
        refusals=_MISSING,
    ),
    Endpoint(
        "PUT",
        _GROUP,
        calls(ResourceGroupAdmin.put, RESOURCE_GROUP, _GROUP_RATES),
        "create or change a resource group",
        C.UPDATE_RESOURCE_GROUP,
        body="ResourceGroup",
    ),
    Endpoint(
        "DELETE",
        _GROUP,
        calls(ResourceGroupAdmin.delete, RESOURCE_GROUP),
        "delete a resource group",
        C.DELETE_RESOURCE_GROUP,
        refusals=_MISSING,
    ),
)
