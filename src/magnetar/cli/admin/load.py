"""Commands of load: reports, quotas, isolation policies, failure domains, anti-affinity groups."""

from __future__ import annotations

from typing import Any

from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call, piece, properties_of, written
from magnetar.cli.admin.rendering import Rows, render

_QUOTAS = "/admin/v2/resource-quotas"
_STATS = "/admin/v2/broker-stats"


def _quota(call: Call) -> str:
    """Returns the path; without names, that of the default quota. :raises UsageError: only one is given"""
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


def _set_policy(call: Call) -> Any:
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


def _isolated_brokers(call: Call) -> Any:
    """Prints each as a separate object, as Pulsar does."""
    found = [{"namespaceRegex": [], **each} for each in call.ask("GET", f"{_policies(call)}/brokers")]
    return Rows(map(render, found), found)


def _domains(call: Call) -> str:
    return f"/admin/v2/clusters/{piece(call['cluster'])}/failureDomains"


def _domain(call: Call) -> str:
    return f"{_domains(call)}/{piece(call['domain-name'])}"


def _set_domain(call: Call) -> Any:
    brokers = [name.strip() for name in (call["broker-list"] or "").split(",") if name.strip()]
    return call.send("POST", _domain(call), None, {"brokers": brokers})


def _of_group(call: Call) -> Any:
    path = f"/admin/v2/namespaces/{piece(call['cluster'])}/antiAffinity/{piece(call['group'])}"
    return call.ask("GET", path, {"tenant": call["tenant"]})


ACTIONS: dict[str, Action] = {
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
