"""Endpoints of brokers and bookies: their load, placement rules, and racks."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import brokers
from magnetar.http.routing import Endpoint, Parameter
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
_NO_BUNDLE = {404: "no such namespace or bundle"}
_NO_POLICY = {404: "no such cluster or policy"}
_NO_DOMAIN = {404: "no such failure domain", 412: "no such cluster"}
LOAD: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        f"{_STATS}/load-report",
        brokers.report,
        "load of this broker as it is reported to other brokers",
        B.GET_LOAD,
        (f"{_OLD_STATS}/load-report",),
        refusals={204: "the broker is the only one"},
    ),
    Endpoint(
        "GET",
        f"{_STATS}/metrics",
        brokers.metrics,
        "figures of load balancing",
        B.GET_LOAD,
        (f"{_OLD_STATS}/metrics",),
    ),
    Endpoint(
        "GET",
        f"{_STATS}/topics",
        brokers.topics,
        "statistics of all topics that this broker serves",
        B.GET_LOAD,
        (f"{_OLD_STATS}/destinations",),
    ),
    Endpoint(
        "GET",
        f"{_STATS}/broker-resource-availability/{{tenant}}/{{namespace}}",
        brokers.availability,
        "refused: this load manager does not count the capacity that brokers have left for a namespace",
        N.GET_RESOURCE_AVAILABILITY,
        (f"{_OLD_STATS}/broker-resource-availability/{{tenant}}/{{cluster}}/{{namespace}}",),
        refusals={409: "the load manager does not count it"},
    ),
    Endpoint(
        "GET",
        "/admin/v2/magnetar/explain-placement/{tenant}/{namespace}/{bundle}",
        brokers.explain,
        "why a bundle is served by its broker, and what would move it",
        N.EXPLAIN_PLACEMENT,
        ("/admin/v2/magnetar/explain-placement/{tenant}/{cluster}/{namespace}/{bundle}",),
        refusals={**_NO_BUNDLE, 307: "another broker is the leader", 501: "the broker is the only one"},
    ),
    Endpoint(
        "GET",
        _QUOTAS,
        brokers.default_quota,
        "default quota of bundles",
        B.GET_QUOTA,
        ("/admin/resource-quotas",),
    ),
    Endpoint(
        "POST",
        _QUOTAS,
        brokers.set_default_quota,
        "set the default quota of bundles",
        B.UPDATE_QUOTA,
        ("/admin/resource-quotas",),
        body="ResourceQuota",
    ),
    Endpoint(
        "GET",
        _QUOTA,
        brokers.quota,
        "quota of a bundle",
        N.GET_BUNDLE_QUOTA,
        _OLD_QUOTA,
        refusals=_NO_BUNDLE,
    ),
    Endpoint(
        "POST",
        _QUOTA,
        brokers.set_quota,
        "set the quota of a bundle",
        N.UPDATE_BUNDLE_QUOTA,
        _OLD_QUOTA,
        body="ResourceQuota",
        refusals=_NO_BUNDLE,
    ),
    Endpoint(
        "DELETE",
        _QUOTA,
        brokers.reset_quota,
        "reset the quota of a bundle to the default",
        N.UPDATE_BUNDLE_QUOTA,
        _OLD_QUOTA,
        refusals=_NO_BUNDLE,
    ),
    Endpoint(
        "GET",
        _POLICIES,
        brokers.isolation_policies,
        "isolation policies",
        C.GET_ISOLATION,
        (_OLD_POLICIES,),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _POLICIES + "/brokers",
        brokers.isolation_of_brokers,
        "isolation policies that apply to each broker",
        C.GET_ISOLATION,
        (_OLD_POLICIES + "/brokers",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _POLICIES + "/brokers/{broker}",
        brokers.isolation_of_broker,
        "isolation policies that apply to a broker",
        C.GET_ISOLATION,
        (_OLD_POLICIES + "/brokers/{broker}",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _POLICIES + "/{policy}",
        brokers.isolation_policy,
        "an isolation policy",
        C.GET_ISOLATION,
        (_OLD_POLICIES + "/{policy}",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "POST",
        _POLICIES + "/{policy}",
        brokers.set_isolation_policy,
        "set an isolation policy",
        C.UPDATE_ISOLATION,
        (_OLD_POLICIES + "/{policy}",),
        body="NamespaceIsolationData",
        refusals={404: "no such cluster"},
    ),
    Endpoint(
        "DELETE",
        _POLICIES + "/{policy}",
        brokers.delete_isolation_policy,
        "delete an isolation policy",
        C.UPDATE_ISOLATION,
        (_OLD_POLICIES + "/{policy}",),
        refusals=_NO_POLICY,
    ),
    Endpoint(
        "GET",
        _DOMAINS,
        brokers.domains,
        "failure domains",
        C.GET_FAILURE_DOMAIN,
        (_OLD_DOMAINS,),
        refusals={412: "no such cluster"},
    ),
    Endpoint(
        "GET",
        _DOMAINS + "/{domainName}",
        brokers.domain,
        "brokers of a failure domain",
        C.GET_FAILURE_DOMAIN,
        (_OLD_DOMAINS + "/{domainName}",),
        refusals=_NO_DOMAIN,
    ),
    Endpoint(
        "POST",
        _DOMAINS + "/{domainName}",
        brokers.set_domain,
        "create or change a failure domain",
        C.UPDATE_FAILURE_DOMAIN,
        (_OLD_DOMAINS + "/{domainName}",),
        body="FailureDomain",
        refusals={409: "a broker is already in another failure domain", 412: "no such cluster"},
    ),
    Endpoint(
        "DELETE",
        _DOMAINS + "/{domainName}",
        brokers.delete_domain,
        "delete a failure domain",
        C.UPDATE_FAILURE_DOMAIN,
        (_OLD_DOMAINS + "/{domainName}",),
        success=200,
        refusals=_NO_DOMAIN,
    ),
    Endpoint(
        "GET",
        "/admin/v2/namespaces/{cluster}/antiAffinity/{group}",
        brokers.group,
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
    Endpoint("GET", "/admin/v2/bookies/all", brokers.list_bookies, "list bookies", C.LIST_BOOKIES),
    Endpoint("GET", _RACKS, brokers.list_racks, "racks of all bookies", C.GET_RACKS),
    Endpoint("GET", _RACK, brokers.get_rack, "rack of a bookie", C.GET_RACKS, refusals=_MISSING),
    Endpoint(
        "POST",
        _RACK,
        brokers.put_rack,
        "set the rack of a bookie",
        C.UPDATE_RACKS,
        parameters=(Parameter("group", "text"),),
        body="BookieInfo",
        refusals={412: "the group is missing, or the rack is not a path"},
    ),
    Endpoint(
        "DELETE",
        _RACK,
        brokers.delete_rack,
        "remove the rack of a bookie",
        C.UPDATE_RACKS,
        refusals=_MISSING,
    ),
)
