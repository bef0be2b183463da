"""Endpoints for the placement of bundles and entries: load, resource quotas, isolation policies, failure
domains and racks.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.admin.brokers import LoadAdmin
from magnetar.broker.admin.placement import BookieAdmin, IsolationAdmin
from magnetar.errors import InvalidRequest, PreconditionFailed
from magnetar.http.calls import as_json, calls, done, json_or
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application, Endpoint, Parameter
from magnetar.http.shapes.fields import (
    Field,
    body,
    choice,
    fields,
    number,
    query,
    text,
    texts,
    texts_given,
    truth,
)
from magnetar.http.shapes.names import CLUSTER, NAMESPACE, variable
from magnetar.security.authorization import BrokerOperation as B
from magnetar.security.authorization import ClusterOperation as C
from magnetar.security.authorization import NamespaceOperation as N

_STATS = "/admin/v2/broker-stats"
_OLD_STATS = "/admin/broker-stats"
_QUOTAS = "/admin/v2/resource-quotas"
_QUOTA = _QUOTAS + "/{tenant}/{namespace}/{bundle}"
_OLD_QUOTA = ("/admin/resource-quotas/{tenant}/{cluster}/{namespace}/{bundle}",)
_POLICIES = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
_OLD_POLICIES = "/admin/clusters/{cluster}/namespaceIsolationPolicies"
_DOMAINS = "/admin/v2/clusters/{cluster}/failureDomains"
_OLD_DOMAINS = "/admin/clusters/{cluster}/failureDomains"
_BUNDLE = variable("bundle")
_POLICY = variable("policy")
_BOOKIE = variable("bookie")
_RESOURCE_QUOTA = body(
    fields(
        {
            "msgRateIn": Field(number),
            "msgRateOut": Field(number),
            "bandwidthIn": Field(number),
            "bandwidthOut": Field(number),
            "memory": Field(number),
            "dynamic": Field(truth, True),
        }
    ),
    "ResourceQuota",
    required="ResourceQuota is null",
)
_FAILOVER = fields({"policy_type": Field(choice("min_available")), "parameters": Field(texts_given)})
_ISOLATION = body(
    fields(
        {
            "namespaces": Field(texts),
            "primary": Field(texts),
            "secondary": Field(texts),
            "auto_failover_policy": Field(_FAILOVER),
            "unload_scope": Field(choice("all_matching", "none", "changed")),
        }
    ),
    "NamespaceIsolationData",
    required="NamespaceIsolationData is null",
)
_DOMAIN = body(fields({"brokers": Field(texts)}), "FailureDomain", required="FailureDomain is null")
_RACK_OF_BOOKIE = body(fields({"rack": Field(text), "hostname": Field(text)}), "bookieInfo")
_NO_BUNDLE = {404: "no such namespace or bundle"}
_NO_POLICY = {404: "no such cluster or policy"}
_NO_DOMAIN = {404: "no such failure domain", 412: "no such cluster"}


def _brokers_of_domain(request: Request) -> list[str]:
    return _DOMAIN(request).get("brokers") or []


def _domain_name(request: Request) -> str:
    """Returns the name of the failure domain in the path.

    :raises PreconditionFailed: the name is not valid
    """
    name = request.variables["domainName"]
    if name in ("", ".", "..") or "/" in name:
        raise PreconditionFailed(f"{name!r} is not a valid name for a failure domain")
    return name


def _tenant_asked_for(request: Request) -> str:
    """Returns the tenant that the query parameter names.

    :raises InvalidRequest: the query contains no tenant
    """
    tenant = request.query.get("tenant") or request.query.get("property")
    if not tenant:
        raise InvalidRequest("The query parameter tenant is missing")
    return tenant


async def _list_bookies(application: Application, request: Request) -> Response:
    ids = await application.process.bookies()
    return json_response({"bookies": [{"bookieId": bookie_id} for bookie_id in ids]})


LOAD: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        f"{_STATS}/load-report",
        calls(LoadAdmin.report, answer=json_or(204)),
        "load of this broker as it is reported to other brokers",
        B.GET_LOAD,
        (f"{_OLD_STATS}/load-report",),
        refusals={204: "the broker is the only one"},
    ),
    Endpoint(
        "GET",
        f"{_STATS}/metrics",
        calls(LoadAdmin.metrics, answer=as_json),
        "figures of load balancing",
        B.GET_LOAD,
        (f"{_OLD_STATS}/metrics",),
    ),
    Endpoint(
        "GET",
        f"{_STATS}/topics",
        calls(LoadAdmin.topics, answer=as_json),
        "statistics of all topics that this broker serves",
        B.GET_LOAD,
        (f"{_OLD_STATS}/destinations",),
    ),
    Endpoint(
        "GET",
        f"{_STATS}/broker-resource-availability/{{tenant}}/{{namespace}}",
        calls(LoadAdmin.availability, NAMESPACE),
        "refused: this load manager does not count the capacity that brokers have left for a namespace",
        N.GET_RESOURCE_AVAILABILITY,
        (f"{_OLD_STATS}/broker-resource-availability/{{tenant}}/{{cluster}}/{{namespace}}",),
        refusals={409: "the load manager does not count it"},
    ),
    Endpoint(
        "GET",
        "/admin/v2/magnetar/explain-placement/{tenant}/{namespace}/{bundle}",
        calls(LoadAdmin.explain_placement, NAMESPACE, _BUNDLE, answer=as_json),
        "why a bundle is served by its broker, and what would move it",
        N.EXPLAIN_PLACEMENT,
        ("/admin/v2/magnetar/explain-placement/{tenant}/{cluster}/{namespace}/{bundle}",),
        refusals={**_NO_BUNDLE, 307: "another broker is the leader", 501: "the broker is the only one"},
    ),
    Endpoint(
        "GET",
        _QUOTAS,
        calls(LoadAdmin.default_quota, answer=as_json),
        "default quota of bundles",
        B.GET_QUOTA,
        ("/admin/resource-quotas",),
    ),
    Endpoint(
        "POST",
        _QUOTAS,
        calls(LoadAdmin.set_default_quota, _RESOURCE_QUOTA),
        "set the default quota of bundles",
        B.UPDATE_QUOTA,
        ("/admin/resource-quotas",),
        body="ResourceQuota",
    ),
    Endpoint(
        "GET",
        _QUOTA,
        calls(LoadAdmin.quota, NAMESPACE, _BUNDLE, answer=as_json),
        "quota of a bundle",
        N.GET_BUNDLE_QUOTA,
        _OLD_QUOTA,
        refusals=_NO_BUNDLE,
    ),
    Endpoint(
        "POST",
        _QUOTA,
        calls(LoadAdmin.set_quota, NAMESPACE, _BUNDLE, _RESOURCE_QUOTA),
        "set the quota of a bundle",
        N.UPDATE_BUNDLE_QUOTA,
        _OLD_QUOTA,
        body="ResourceQuota",
        refusals=_NO_BUNDLE,
    ),
    Endpoint(
        "DELETE",
        _QUOTA,
        calls(LoadAdmin.reset_quota, NAMESPACE, _BUNDLE),
        "reset the quota of a bundle to the default",
        N.UPDATE_BUNDLE_QUOTA,
        _OLD_QUOTA,
        refusals=_NO_BUNDLE,
    ),
    Endpoint(
        "GET",
        _POLICIES,
        calls(IsolationAdmin.policies, CLUSTER, answer=as_json),
        "isolation policies",
        C.GET_ISOLATION,
        (_OLD_POLICIES,),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _POLICIES + "/brokers",
        calls(IsolationAdmin.brokers, CLUSTER, answer=as_json),
        "isolation policies that apply to each broker",
        C.GET_ISOLATION,
        (_OLD_POLICIES + "/brokers",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _POLICIES + "/brokers/{broker}",
        calls(IsolationAdmin.broker, CLUSTER, variable("broker"), answer=as_json),
        "isolation policies that apply to a broker",
        C.GET_ISOLATION,
        (_OLD_POLICIES + "/brokers/{broker}",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _POLICIES + "/{policy}",
        calls(IsolationAdmin.policy, CLUSTER, _POLICY, answer=as_json),
        "an isolation policy",
        C.GET_ISOLATION,
        (_OLD_POLICIES + "/{policy}",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "POST",
        _POLICIES + "/{policy}",
        calls(IsolationAdmin.set_policy, CLUSTER, _POLICY, _ISOLATION),
        "set an isolation policy",
        C.UPDATE_ISOLATION,
        (_OLD_POLICIES + "/{policy}",),
        body="NamespaceIsolationData",
        refusals={404: "no such cluster"},
    ),
    Endpoint(
        "DELETE",
        _POLICIES + "/{policy}",
        calls(IsolationAdmin.delete_policy, CLUSTER, _POLICY),
        "delete an isolation policy",
        C.UPDATE_ISOLATION,
        (_OLD_POLICIES + "/{policy}",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _DOMAINS,
        calls(IsolationAdmin.domains, CLUSTER, answer=as_json),
        "failure domains",
        C.GET_FAILURE_DOMAIN,
        (_OLD_DOMAINS,),
        refusals={412: "no such cluster"},
    ),
    Endpoint(
        "GET",
        _DOMAINS + "/{domainName}",
        calls(IsolationAdmin.domain, CLUSTER, variable("domainName"), answer=as_json),
        "brokers of a failure domain",
        C.GET_FAILURE_DOMAIN,
        (_OLD_DOMAINS + "/{domainName}",),
        refusals=_NO_DOMAIN,
    ),
    Endpoint(
        "POST",
        _DOMAINS + "/{domainName}",
        calls(IsolationAdmin.set_domain, CLUSTER, _domain_name, _brokers_of_domain),
        "create or change a failure domain",
        C.UPDATE_FAILURE_DOMAIN,
        (_OLD_DOMAINS + "/{domainName}",),
        body="FailureDomain",
        refusals={409: "a broker is already in another failure domain", 412: "no such cluster"},
    ),
    Endpoint(
        "DELETE",
        _DOMAINS + "/{domainName}",
        calls(IsolationAdmin.delete_domain, CLUSTER, _domain_name, answer=done),
        "delete a failure domain",
        C.UPDATE_FAILURE_DOMAIN,
        (_OLD_DOMAINS + "/{domainName}",),
        success=200,
        refusals=_NO_DOMAIN,
    ),
    Endpoint(
        "GET",
        "/admin/v2/namespaces/{cluster}/antiAffinity/{group}",
        calls(
            IsolationAdmin.namespaces_of_group, CLUSTER, variable("group"), _tenant_asked_for, answer=as_json
        ),
        "namespaces of an anti-affinity group",
        C.GET_FAILURE_DOMAIN,
        ("/admin/namespaces/{cluster}/antiAffinity/{group}",),
        parameters=(Parameter("tenant", "text"), Parameter("property", "text")),
        refusals={400: "the tenant is missing", 404: "no such tenant", 412: "no such cluster"},
    ),
)
_RACKS = "/admin/v2/bookies/racks-info"
_RACK = _RACKS + "/{bookie}"
_MISSING = {404: "the bookie has no rack"}
BOOKIES: Sequence[Endpoint] = (
    Endpoint("GET", "/admin/v2/bookies/all", _list_bookies, "list bookies", C.LIST_BOOKIES),
    Endpoint("GET", _RACKS, calls(BookieAdmin.racks, answer=as_json), "racks of all bookies", C.GET_RACKS),
    Endpoint(
        "GET",
        _RACK,
        calls(BookieAdmin.rack, _BOOKIE, answer=as_json),
        "rack of a bookie",
        C.GET_RACKS,
        refusals=_MISSING,
    ),
    Endpoint(
        "POST",
        _RACK,
        calls(BookieAdmin.put, _BOOKIE, query("group", ""), _RACK_OF_BOOKIE),
        "set the rack of a bookie",
        C.UPDATE_RACKS,
        parameters=(Parameter("group", "text"),),
        body="BookieInfo",
        refusals={412: "the group is missing, or the rack is not a path"},
    ),
    Endpoint(
        "DELETE",
        _RACK,
        calls(BookieAdmin.delete, _BOOKIE),
        "remove the rack of a bookie",
        C.UPDATE_RACKS,
        refusals=_MISSING,
    ),
)
