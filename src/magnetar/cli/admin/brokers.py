"""Commands for brokers, bookies and proxies: settings, racks, load and statistics."""

from __future__ import annotations

from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call, piece, properties_of, written
from magnetar.cli.admin.rendering import Rows, render, rows

ACTIONS: dict[str, Action] = {
    "brokers list": lambda call: call.ask("GET", f"/admin/v2/brokers/{piece(call['cluster'])}"),
    "brokers leader-broker": lambda call: call.ask("GET", "/admin/v2/brokers/leaderBroker"),
    "brokers namespaces": lambda call: call.ask(
        "GET", f"/admin/v2/brokers/{piece(call['cluster'])}/{piece(call['url'])}/ownedNamespaces"
    ),
    "brokers shutdown": lambda call: call.send(
        "POST",
        "/admin/v2/brokers/shutdown",
        {
            "maxConcurrentUnloadPerSec": call["max-concurrent-unload-per-sec"],
            "forcedTerminateTopic": call["forced-terminate-topic"],
        },
    ),
    "brokers update-dynamic-config": lambda call: call.send(
        "POST", f"/admin/v2/brokers/configuration/{piece(call['config'])}/{piece(call['value'])}"
    ),
    "brokers delete-dynamic-config": lambda call: call.send(
        "DELETE", f"/admin/v2/brokers/configuration/{piece(call['config'])}"
    ),
    "brokers list-dynamic-config": lambda call: call.ask("GET", "/admin/v2/brokers/configuration"),
    "brokers get-all-dynamic-config": lambda call: rows(
        call.ask("GET", "/admin/v2/brokers/configuration/values")
    ),
    "brokers healthcheck": lambda call: call.ask("GET", "/admin/v2/brokers/health"),
    "brokers get-internal-config": lambda call: call.ask("GET", "/admin/v2/brokers/internal-configuration"),
    "brokers get-runtime-config": lambda call: rows(
        call.ask("GET", "/admin/v2/brokers/configuration/runtime")
    ),
    "brokers version": lambda call: call.ask("GET", "/admin/v2/brokers/version"),
}
_RACKS = "/admin/v2/bookies/racks-info"
_QUOTAS = "/admin/v2/resource-quotas"
_STATS = "/admin/v2/broker-stats"


def _rack(call: Call) -> str:
    return f"{_RACKS}/{piece(call['bookie'])}"


def _set_rack(call: Call) -> object:
    if not call["group"]:
        raise UsageError("--group is empty; give the name of the bookie's group")
    given = {"rack": call["rack"], "hostname": call["hostname"]}
    info = {name: value for name, value in given.items() if value is not None}
    return call.send("POST", _rack(call), {"group": call["group"]}, info)


BOOKIE_ACTIONS: dict[str, Action] = {
    "bookies list-bookies": lambda call: call.ask("GET", "/admin/v2/bookies/all"),
    "bookies racks-placement": lambda call: call.ask("GET", _RACKS),
    "bookies get-bookie-rack": lambda call: call.ask("GET", _rack(call)),
    "bookies set-bookie-rack": _set_rack,
    "bookies delete-bookie-rack": lambda call: call.send("DELETE", _rack(call)),
}


def _connections(call: Call) -> object:
    return written(call, call.ask("GET", "/proxy-stats/connections"))


def _topics(call: Call) -> object:
    return written(call, call.ask("GET", "/proxy-stats/topics"))


PROXY_ACTIONS: dict[str, Action] = {
    "proxy-stats connections": _connections,
    "proxy-stats topics": _topics,
}


def _quota(call: Call) -> str:
    """Returns the path of a bundle's resource quota, or of the default quota if neither namespace nor bundle
    is given.

    :raises UsageError: only one of namespace and bundle is given
    """
    namespace, bundle = call["namespace"], call["bundle"]
    if not namespace and not bundle:
        return _QUOTAS
    if not namespace or not bundle:
        raise UsageError("namespace and bundle must be provided.")
    version = "/admin/v2" if namespace.count("/") == 1 else "/admin"
    return f"{version}/resource-quotas/{namespace}/{bundle}"


def _set_quota(call: Call) -> object:
    names = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
    quota = {name: call[name] for name in names} | {"dynamic": bool(call["dynamic"])}
    return call.send("POST", _quota(call), None, quota)


def _policies(call: Call) -> str:
    return f"/admin/v2/clusters/{piece(call['clusterName'])}/namespaceIsolationPolicies"


def _policy(call: Call) -> str:
    return f"{_policies(call)}/{piece(call['policyName'])}"


def _set_policy(call: Call) -> object:
    parameters = call["auto-failover-policy-params"]
    policy = {
        "namespaces": call["namespaces"],
        "primary": call["primary"],
        "secondary": call["secondary"] or [],
        "auto_failover_policy": {
            "policy_type": call["auto-failover-policy-type"],
            "parameters": parameters if isinstance(parameters, dict) else properties_of(parameters),
        },
    }
    if call["unload-scope"]:
        policy["unload_scope"] = call["unload-scope"]
    return call.send("POST", _policy(call), None, policy)


def _isolated_brokers(call: Call) -> object:
    """Prints each broker as a separate JSON object, as Pulsar does."""
    found = [{"namespaceRegex": [], **each} for each in call.ask("GET", f"{_policies(call)}/brokers")]
    return Rows(map(render, found), found)


def _domains(call: Call) -> str:
    return f"/admin/v2/clusters/{piece(call['cluster'])}/failureDomains"


def _domain(call: Call) -> str:
    return f"{_domains(call)}/{piece(call['domain-name'])}"


def _set_domain(call: Call) -> object:
    brokers = [name.strip() for name in (call["broker-list"] or "").split(",") if name.strip()]
    return call.send("POST", _domain(call), None, {"brokers": brokers})


def _of_group(call: Call) -> object:
    path = f"/admin/v2/namespaces/{piece(call['cluster'])}/antiAffinity/{piece(call['group'])}"
    return call.ask("GET", path, {"tenant": call["tenant"]})


LOAD_ACTIONS: dict[str, Action] = {
    "broker-stats load-report": lambda call: call.ask("GET", f"{_STATS}/load-report"),
    "broker-stats monitoring-metrics": lambda call: written(call, call.ask("GET", f"{_STATS}/metrics")),
    "broker-stats topics": lambda call: written(call, call.ask("GET", f"{_STATS}/topics")),
    "resource-quotas get": lambda call: call.ask("GET", _quota(call)),
    "resource-quotas set": _set_quota,
    "resource-quotas reset-namespace-bundle-quota": lambda call: call.send("DELETE", _quota(call)),
    "ns-isolation-policy list": lambda call: call.ask("GET", _policies(call)),
    "ns-isolation-policy get": lambda call: call.ask("GET", _policy(call)),
    "ns-isolation-policy set": _set_policy,
    "ns-isolation-policy delete": lambda call: call.send("DELETE", _policy(call)),
    "ns-isolation-policy brokers": _isolated_brokers,
    "ns-isolation-policy broker": lambda call: call.ask(
        "GET", f"{_policies(call)}/brokers/{piece(call['broker'])}"
    ),
    "clusters list-failure-domains": lambda call: call.ask("GET", _domains(call)),
    "clusters get-failure-domain": lambda call: call.ask("GET", _domain(call)),
    "clusters create-failure-domain": _set_domain,
    "clusters update-failure-domain": _set_domain,
    "clusters delete-failure-domain": lambda call: call.send("DELETE", _domain(call)),
    "namespaces get-anti-affinity-namespaces": _of_group,
}
