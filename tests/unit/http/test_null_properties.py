"""Texts that are null in an object; what Apache Pulsar 4.0.8 makes of them was asked of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served import Served

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
POLICIES = "/admin/v2/clusters/standalone/namespaceIsolationPolicies"
WITH_PROPERTIES = "application/vnd.partitioned-topic-metadata+json"


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


def put(served: Served, path: str, value: Any, **headers: str) -> int:
    return served.ask("PUT", path, json.dumps(value), **headers).status


def properties_of(served: Served, path: str) -> Any:
    return served.get(f"{path}/properties")


def test_a_namespace_loses_the_property(served: Served) -> None:
    assert put(served, f"{NAMESPACE}/properties", {"a": "1", "b": "2"}) == 204
    assert put(served, f"{NAMESPACE}/properties", {"a": None, "c": "3", "d": None}) == 204
    assert properties_of(served, NAMESPACE) == {"b": "2", "c": "3"}


def test_a_new_namespace_does_not_have_it(served: Served) -> None:
    new = "/admin/v2/namespaces/public/nulls"
    assert put(served, new, {"properties": {"a": None, "b": "2"}}) == 204
    assert properties_of(served, new) == {"b": "2"}


def test_a_partitioned_topic_does_not_have_it(served: Served) -> None:
    topic = f"{TOPICS}/parts"
    value = {"partitions": 2, "properties": {"a": None, "b": "2", "c": "3"}}
    assert put(served, f"{topic}/partitions", value, content_type=WITH_PROPERTIES) == 204
    assert properties_of(served, topic) == {"b": "2", "c": "3"}
    assert put(served, f"{topic}/properties", {"b": None, "d": "4", "e": None}) == 204
    assert properties_of(served, topic) == {"c": "3", "d": "4"}


def test_an_isolation_policy_does_not_have_the_parameter(served: Served) -> None:
    parameters: dict[str, Any] = {"min_limit": "1", "usage_threshold": "80", "other": None}
    failover = {"policy_type": "min_available", "parameters": parameters}
    policy = {
        "namespaces": ["public/x"],
        "primary": ["one"],
        "secondary": [],
        "auto_failover_policy": failover,
    }
    assert served.ask("POST", f"{POLICIES}/p", json.dumps(policy)).status == 204
    kept = served.get(f"{POLICIES}/p")["auto_failover_policy"]
    assert kept["parameters"] == {"min_limit": "1", "usage_threshold": "80"}
    parameters["min_limit"] = None
    assert served.ask("POST", f"{POLICIES}/q", json.dumps(policy)).status == 400


@pytest.mark.parametrize(
    ("method", "path", "value"),
    [
        ("PUT", f"{TOPICS}/refused", {"a": None}),
        ("PUT", f"{TOPICS}/whole/subscription/s", {"ledgerId": -1, "entryId": -1, "properties": {"a": None}}),
        ("PUT", f"{TOPICS}/whole/subscription/there/properties", {"a": None}),
        ("POST", "/admin/v2/schemas/public/default/s/schema", {"type": "STRING", "properties": {"a": None}}),
    ],
)
def test_where_pulsar_fails_it_is_refused(served: Served, method: str, path: str, value: Any) -> None:
    served.ask("PUT", f"{TOPICS}/whole")
    served.ask("PUT", f"{TOPICS}/whole/subscription/there")
    assert served.ask(method, path, json.dumps(value)).status == 400
