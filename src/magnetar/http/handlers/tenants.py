"""Clusters, tenants and resource groups: creation, changes, deletion."""

from __future__ import annotations

from typing import Any

from magnetar.errors import InvalidRequest, PreconditionFailed
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import Check, Field, body, fields, string_list, text, texts, truth, whole
from magnetar.http.shapes.names import cluster_of, new_cluster_of, new_tenant_of, resource_group_of, tenant_of

_TENANT = fields({"adminRoles": Field(texts), "allowedClusters": Field(texts)})
_RATES = {
    "publishRateInMsgs": Field(whole()),
    "publishRateInBytes": Field(whole(64)),
    "dispatchRateInMsgs": Field(whole()),
    "dispatchRateInBytes": Field(whole(64)),
}
_GROUP = fields(_RATES)
_UNBOUNDED = dict.fromkeys(_RATES, -1)


def _address(*schemes: str) -> Check:
    def check(name: str, value: Any) -> str:
        given = text(name, value)
        if given and not given.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise InvalidRequest(f"Illegal {name}, example: {schemes[0]}://pulsar.example.com:8080")
        return given

    return check


_CLUSTER = fields(
    {
        "serviceUrl": Field(_address("http")),
        "serviceUrlTls": Field(_address("https")),
        "brokerServiceUrl": Field(_address("pulsar")),
        "brokerServiceUrlTls": Field(_address("pulsar+ssl")),
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
)


def _cluster_data(request: Request) -> Any:
    return body(_CLUSTER, "clusterData", required="cluster data is required")(request)


async def create_cluster(application: Application, request: Request) -> Response:
    name = new_cluster_of(request.variables)
    await application.admin.clusters.create(name, _cluster_data(request))
    return Response(200)


async def update_cluster(application: Application, request: Request) -> Response:
    name = cluster_of(request.variables)
    await application.admin.clusters.update(name, _cluster_data(request))
    return Response(200)


async def delete_cluster(application: Application, request: Request) -> Response:
    await application.admin.clusters.delete(cluster_of(request.variables))
    return nothing()


async def peers(application: Application, request: Request) -> Response:
    found = await application.admin.clusters.peers(cluster_of(request.variables))
    return json_response(list(found)) if found is not None else Response(200)


async def set_peers(application: Application, request: Request) -> Response:
    names = string_list(request, "peerClusterNames")
    await application.admin.clusters.set_peers(cluster_of(request.variables), names)
    return nothing()


_URL = fields(
    {
        "serviceUrl": Field(_address("http")),
        "serviceUrlTls": Field(_address("https")),
        "brokerServiceUrl": Field(_address("pulsar")),
        "brokerServiceUrlTls": Field(_address("pulsar+ssl")),
    }
)


async def migration(application: Application, request: Request) -> Response:
    """Returns the migration state in Pulsar's form, in which the address also has an ``empty`` field."""
    found = dict(await application.admin.clusters.migration(cluster_of(request.variables)))
    url = found.get("migratedClusterUrl")
    if url is not None:
        found["migratedClusterUrl"] = {**url, "empty": not any(url.values())}
    return json_response(found)


async def set_migration(application: Application, request: Request) -> Response:
    url = body(_URL, "clusterUrl", required="cluster url is required")(request)
    migrated = request.flag("migrated")
    await application.admin.clusters.set_migration(cluster_of(request.variables), url, migrated=migrated)
    return Response(200)


def _info(request: Request) -> Any:
    value = body(_TENANT, "tenantInfo", required=None)(request)
    if value is None:
        raise PreconditionFailed("TenantInfo is null")
    return value


async def create_tenant(application: Application, request: Request) -> Response:
    name = new_tenant_of(request.variables)
    await application.admin.tenants.create(name, _info(request))
    return nothing()


async def update_tenant(application: Application, request: Request) -> Response:
    await application.admin.tenants.update(tenant_of(request.variables), _info(request))
    return nothing()


async def delete_tenant(application: Application, request: Request) -> Response:
    await application.admin.tenants.delete(tenant_of(request.variables), force=request.flag("force"))
    return nothing()


async def list_groups(application: Application, request: Request) -> Response:
    return json_response(list(await application.admin.resource_groups.names()))


async def get_group(application: Application, request: Request) -> Response:
    found = await application.admin.resource_groups.get(resource_group_of(request.variables))
    return json_response({**_UNBOUNDED, **found})


async def put_group(application: Application, request: Request) -> Response:
    """:raises InvalidRequest: a rate is not a number"""
    given = body(_GROUP, "resourceGroup", required=None)(request)
    if given is None:
        raise InvalidRequest("ResourceGroup is null")
    await application.admin.resource_groups.put(resource_group_of(request.variables), given)
    return nothing()


async def delete_group(application: Application, request: Request) -> Response:
    await application.admin.resource_groups.delete(resource_group_of(request.variables))
    return nothing()
