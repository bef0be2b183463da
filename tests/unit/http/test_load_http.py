"""Quotas, isolation policies, failure domains and groups over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served import Served

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.errors import NamespaceNotFound, ServiceNotReady

QUOTAS = "/admin/v2/resource-quotas"
BUNDLE = f"{QUOTAS}/public/default/0x00000000_0x40000000"
POLICIES = "/admin/v2/clusters/standalone/namespaceIsolationPolicies"
DOMAINS = "/admin/v2/clusters/standalone/failureDomains"
QUOTA = {
    "msgRateIn": 1.0,
    "msgRateOut": 2.0,
    "bandwidthIn": 3.0,
    "bandwidthOut": 4.0,
    "memory": 5.0,
    "dynamic": False,
}


def status(served: Served, method: str, path: str, body: Any = None, **query: str) -> int:
    return served.ask(method, path, "" if body is None else json.dumps(body), query).status


def policy(**changes: Any) -> dict[str, Any]:
    return {
        "namespaces": ["public/.*"],
        "primary": ["127.*"],
        "secondary": ["other.*"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
        **changes,
    }


def test_quotas_are_set_and_reset() -> None:
    served = Served()
    default = served.get(QUOTAS)
    assert (default["msgRateIn"], default["bandwidthOut"], default["dynamic"]) == (40, 300_000, True)
    assert served.get(BUNDLE) == default
    assert status(served, "POST", QUOTAS, QUOTA | {"memory": 9}) == 204
    assert served.get(BUNDLE)["memory"] == 9
    assert status(served, "POST", BUNDLE, QUOTA) == 204
    assert served.get(BUNDLE) == QUOTA
    assert status(served, "DELETE", BUNDLE) == 204
    assert served.get(BUNDLE)["memory"] == 9
    for wrong in (QUOTA | {"memory": -1}, {"memory": 1}, QUOTA | {"msgRateIn": "x"}, [], None):
        assert status(served, "POST", BUNDLE, wrong) == 400
    assert status(served, "GET", f"{QUOTAS}/public/default/0x00000000_0x12345678") == 404
    assert status(served, "GET", f"{QUOTAS}/public/nothing/0x00000000_0xffffffff") == 404
    assert status(served, "GET", f"{QUOTAS}/public/default/all") == 400


def test_isolation_policies_come_change_and_go() -> None:
    served = Served()
    assert status(served, "GET", POLICIES) == 404
    assert status(served, "POST", f"{POLICIES}/mine", policy()) == 204
    assert served.get(POLICIES) == {"mine": policy()}
    assert served.get(f"{POLICIES}/mine") == policy()
    assert status(served, "GET", f"{POLICIES}/other") == 404
    [seen] = served.get(f"{POLICIES}/brokers")
    assert (seen["policyName"], seen["primary"], seen["namespaceRegex"]) == ("mine", True, ["public/.*"])
    assert served.get(f"{POLICIES}/brokers/other.host:8080")["primary"] is False
    assert status(served, "GET", f"{POLICIES}/brokers/stranger:8080") == 404
    assert status(served, "POST", f"{POLICIES}/mine", policy(primary=["x"], unload_scope="none")) == 204
    assert served.get(f"{POLICIES}/mine")["primary"] == ["x"]
    assert status(served, "DELETE", f"{POLICIES}/mine") == 204
    assert status(served, "GET", POLICIES) == 404
    for wrong in (policy(namespaces=[]), policy(primary=["("]), policy(unload_scope="some"), {}, None):
        assert status(served, "POST", f"{POLICIES}/mine", wrong) == 400
    elsewhere = POLICIES.replace("standalone", "elsewhere")
    assert status(served, "POST", f"{elsewhere}/mine", policy()) == 404


def test_a_policy_that_nobody_here_can_read_hides_no_other_and_is_replaced() -> None:
    served = Served()
    topic = served.topic("persistent://public/default/t")
    path = "/admin/clusters/standalone/namespaceIsolationPolicies"
    theirs = {"theirs": policy(primary=["(?!x).*"]), "mine": policy()}
    served.world.run(served.broker.metadata.put(path, json.dumps(theirs).encode()))
    served.world.wait(0.1)
    (seen,) = served.get(f"{POLICIES}/brokers")
    assert seen["policyName"] == "mine"
    assert served.get(f"{POLICIES}/brokers/127.0.0.1:8080")["policyName"] == "mine"
    assert status(served, "POST", f"{POLICIES}/theirs", policy()) == 204
    assert served.broker.topics.loaded.get(topic.full_name) is not topic, "to it something is new"


def test_what_cannot_be_unloaded_keeps_nothing_else_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served()
    for name in ("a", "b"):
        assert status(served, "PUT", f"/admin/v2/namespaces/public/{name}", {"numBundles": 1}) == 204
    unloaded: list[str] = []

    async def unload_all(_bundles: BundleAdmin, namespace: str) -> None:
        unloaded.append(namespace)
        if namespace == "public/a":
            raise NamespaceNotFound("it has gone meanwhile")
        if namespace == "public/b":
            raise ServiceNotReady("its owner does not answer")

    monkeypatch.setattr(BundleAdmin, "unload_all", unload_all)
    assert status(served, "POST", f"{POLICIES}/mine", policy()) == 503
    assert unloaded == ["public/a", "public/b", "public/default"]
    assert status(served, "POST", f"{POLICIES}/mine", policy(primary=["x"], namespaces=["public/a"])) == 503
    assert status(served, "DELETE", "/admin/v2/namespaces/public/b") == 204
    unloaded.clear()
    assert status(served, "POST", f"{POLICIES}/mine", policy(primary=["y"], namespaces=["public/a"])) == 204
    assert unloaded == ["public/a"]


def test_topics_are_unloaded_where_a_policy_says_something_new() -> None:
    served = Served()
    topic = served.topic("persistent://public/default/t")
    assert status(served, "POST", f"{POLICIES}/mine", policy(unload_scope="none")) == 204
    assert served.broker.topics.loaded.get(topic.full_name) is topic
    assert status(served, "POST", f"{POLICIES}/mine", policy(namespaces=["public/.*", "x/y"])) == 204
    assert served.broker.topics.loaded.get(topic.full_name) is topic, "nothing is new for its namespace"
    assert status(served, "POST", f"{POLICIES}/mine", policy(primary=["x"])) == 204
    assert served.broker.topics.loaded.get(topic.full_name) is not topic


def test_failure_domains_come_change_and_go() -> None:
    served = Served()
    assert served.get(DOMAINS) == {}
    assert status(served, "GET", f"{DOMAINS}/d1") == 404
    assert status(served, "POST", f"{DOMAINS}/d1", {"brokers": ["a:1", "b:1"]}) == 204
    assert served.get(DOMAINS) == {"d1": {"brokers": ["a:1", "b:1"]}}
    assert served.get(f"{DOMAINS}/d1") == {"brokers": ["a:1", "b:1"]}
    assert status(served, "POST", f"{DOMAINS}/d2", {"brokers": ["b:1"]}) == 409
    assert status(served, "POST", f"{DOMAINS}/d1", {"brokers": ["a:1"]}) == 204
    assert status(served, "POST", f"{DOMAINS}/d2", {"brokers": ["b:1"]}) == 204
    for wrong in ("..", "a%2Fb", "%2E"):
        assert status(served, "POST", f"{DOMAINS}/{wrong}", {"brokers": ["c:1"]}) == 412
    assert status(served, "DELETE", f"{DOMAINS}/d1") == 200
    assert status(served, "DELETE", f"{DOMAINS}/d1") == 404
    assert status(served, "GET", DOMAINS.replace("standalone", "elsewhere")) == 412


def test_namespaces_of_a_group_are_found() -> None:
    served = Served()
    namespace = "/admin/v2/namespaces/public/default/antiAffinity"
    assert status(served, "POST", namespace, "Group") == 204
    groups = "/admin/v2/namespaces/standalone/antiAffinity"
    found = served.ask("GET", f"{groups}/group", "", {"tenant": "public"})
    assert json.loads(found.body) == ["public/default"]
    assert json.loads(served.ask("GET", f"{groups}/other", "", {"tenant": "public"}).body) == []
    assert status(served, "GET", f"{groups}/group") == 400
    assert status(served, "GET", "/admin/v2/namespaces/elsewhere/antiAffinity/group", tenant="public") == 412


def test_a_broker_that_is_alone_has_no_load_to_tell() -> None:
    served = Served()
    assert status(served, "GET", "/admin/v2/broker-stats/load-report") == 204
    assert served.get("/admin/v2/broker-stats/metrics") == []
    explained = "/admin/v2/magnetar/explain-placement/public/default/0x00000000_0x40000000"
    assert status(served, "GET", explained) == 501
    available = "/admin/v2/broker-stats/broker-resource-availability/public/default"
    answer = served.ask("GET", available)
    assert answer.status == 409
    assert b"ModularLoadManagerImpl does not support this operation" in answer.body
    topic = served.topic("persistent://public/default/t")
    bundles = served.get("/admin/v2/broker-stats/topics")["public/default"]
    names = [name for domains in bundles.values() for name in domains["persistent"]]
    assert topic.full_name in names
