"""Brokers and bookies: their load, placement rules and racks, and the answer to load balancers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from magnetar.errors import InvalidRequest, PreconditionFailed
from magnetar.http.engine.listening import rotation as answer
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import Field, body, choice, fields, number, text, texts, texts_given, truth
from magnetar.http.shapes.names import cluster_of, namespace_of

_QUOTA = fields(
    {
        "msgRateIn": Field(number),
        "msgRateOut": Field(number),
        "bandwidthIn": Field(number),
        "bandwidthOut": Field(number),
        "memory": Field(number),
        "dynamic": Field(truth, True),
    }
)
_FAILOVER = fields({"policy_type": Field(choice("min_available")), "parameters": Field(texts_given)})
_POLICY = fields(
    {
        "namespaces": Field(texts),
        "primary": Field(texts),
        "secondary": Field(texts),
        "auto_failover_policy": Field(_FAILOVER),
        "unload_scope": Field(choice("all_matching", "none", "changed")),
    }
)
_DOMAIN = fields({"brokers": Field(texts)})
_INFO = fields({"rack": Field(text), "hostname": Field(text)})


async def report(application: Application, request: Request) -> Response:
    found = application.admin.load.report()
    return Response(HTTPStatus.NO_CONTENT) if found is None else json_response(dict(found))


async def metrics(application: Application, request: Request) -> Response:
    return json_response(application.admin.load.metrics())


async def topics(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.load.topics()))


async def availability(application: Application, request: Request) -> Response:
    """Always raises: see :meth:`LoadAdmin.availability`."""
    application.admin.load.availability(namespace_of(request.variables))


async def explain(application: Application, request: Request) -> Response:
    names = request.variables
    found = await application.admin.load.explain_placement(namespace_of(names), names["bundle"])
    return json_response(dict(found))


async def default_quota(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.load.default_quota()))


async def set_default_quota(application: Application, request: Request) -> Response:
    await application.admin.load.set_default_quota(_given(_QUOTA, "ResourceQuota", request))
    return nothing()


async def quota(application: Application, request: Request) -> Response:
    names = request.variables
    return json_response(dict(await application.admin.load.quota(namespace_of(names), names["bundle"])))


async def set_quota(application: Application, request: Request) -> Response:
    names = request.variables
    given = _given(_QUOTA, "ResourceQuota", request)
    await application.admin.load.set_quota(namespace_of(names), names["bundle"], given)
    return nothing()


async def reset_quota(application: Application, request: Request) -> Response:
    names = request.variables
    await application.admin.load.reset_quota(namespace_of(names), names["bundle"])
    return nothing()


def _given(check: Any, name: str, request: Request) -> dict[str, Any]:
    """:raises InvalidRequest: the body is empty, or has another shape"""
    found = body(check, name, required=None)(request)
    if found is None:
        raise InvalidRequest(f"{name} is null")
    return dict(found)


async def isolation_policies(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.isolation.policies(cluster_of(request.variables))))


async def isolation_policy(application: Application, request: Request) -> Response:
    names = request.variables
    return json_response(dict(await application.admin.isolation.policy(cluster_of(names), names["policy"])))


async def set_isolation_policy(application: Application, request: Request) -> Response:
    names = request.variables
    given = _given(_POLICY, "NamespaceIsolationData", request)
    await application.admin.isolation.set_policy(cluster_of(names), names["policy"], given)
    return nothing()


async def delete_isolation_policy(application: Application, request: Request) -> Response:
    names = request.variables
    await application.admin.isolation.delete_policy(cluster_of(names), names["policy"])
    return nothing()


async def isolation_of_brokers(application: Application, request: Request) -> Response:
    return json_response(list(await application.admin.isolation.brokers(cluster_of(request.variables))))


async def isolation_of_broker(application: Application, request: Request) -> Response:
    names = request.variables
    return json_response(dict(await application.admin.isolation.broker(cluster_of(names), names["broker"])))


async def domains(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.isolation.domains(cluster_of(request.variables))))


async def domain(application: Application, request: Request) -> Response:
    names = request.variables
    return json_response(
        dict(await application.admin.isolation.domain(cluster_of(names), names["domainName"]))
    )


async def set_domain(application: Application, request: Request) -> Response:
    names = request.variables
    given = _given(_DOMAIN, "FailureDomain", request)
    await application.admin.isolation.set_domain(
        cluster_of(names), _domain_name(names["domainName"]), given.get("brokers") or []
    )
    return nothing()


def _domain_name(name: str) -> str:
    """:raises PreconditionFailed: the name is not valid for a failure domain"""
    if name in ("", ".", "..") or "/" in name:
        raise PreconditionFailed(f"{name!r} is not the name of a failure domain")
    return name


async def delete_domain(application: Application, request: Request) -> Response:
    names = request.variables
    await application.admin.isolation.delete_domain(cluster_of(names), _domain_name(names["domainName"]))
    return Response(HTTPStatus.OK)


async def group(application: Application, request: Request) -> Response:
    names, tenant = request.variables, request.query.get("tenant") or request.query.get("property")
    if not tenant:
        raise InvalidRequest("The tenant is missing")
    found = await application.admin.isolation.namespaces_of_group(cluster_of(names), names["group"], tenant)
    return json_response(list(found))


async def list_bookies(application: Application, request: Request) -> Response:
    ids = await application.process.bookies()
    return json_response({"bookies": [{"bookieId": bookie_id} for bookie_id in ids]})


async def list_racks(application: Application, request: Request) -> Response:
    return json_response(await application.admin.bookies.racks())


async def get_rack(application: Application, request: Request) -> Response:
    return json_response(await application.admin.bookies.rack(request.variables["bookie"]))


async def put_rack(application: Application, request: Request) -> Response:
    info = body(_INFO, "bookieInfo")(request)
    group = request.query.get("group", "")
    await application.admin.bookies.put(request.variables["bookie"], group, info)
    return nothing()


async def delete_rack(application: Application, request: Request) -> Response:
    await application.admin.bookies.delete(request.variables["bookie"])
    return nothing()


async def rotation(application: Application, _request: Request) -> Response:
    """Returns 200 while clients are served and the operator's file exists."""
    process = application.process
    return answer(process.in_rotation if process.ready() else None, "broker")
