"""What is accepted and has no effect is in one table; the table is compared with what sets and reads it."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest
from served import Served

import magnetar.broker
from magnetar.broker.policies import honoured
from magnetar.broker.policies.effective import _SOURCES
from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.engine.message import Response
from magnetar.http.routing import Access
from magnetar.protocol.pulsar_api_pb2 import CommandProducer, CommandSubscribe, MessageMetadata
from magnetar.security.authentication import Principal
from magnetar.security.authorization import Changed, Operation, PolicyOperation, Resource, Target

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"
OFFLOADING = {
    "offloadPolicies",
    "offload_deletion_lag_ms",
    "offload_policies",
    "offload_threshold",
    "offload_threshold_in_seconds",
}
"""Where these are set, ``broker/policies/offload.py`` refuses the values that cannot be honoured."""
RATE = '{"dispatchThrottlingRateInMsg":5,"ratePeriodInSecond":1}'


def test_every_policy_that_can_be_set_is_in_the_table() -> None:
    namespace: set[str] = set()
    topic: set[str] = set()
    for row in ENDPOINTS:
        writes = isinstance(row.operation, PolicyOperation) and row.operation.write
        assert not writes or row.method == "DELETE" or row.sets, row.path
        if row.sets:
            (namespace if row.resource is Resource.NAMESPACE else topic).add(row.sets)
    assert namespace - OFFLOADING == honoured.NAMESPACE.keys() - {"bundles"}
    assert topic - OFFLOADING == honoured.TOPIC.keys()
    assert not OFFLOADING & (honoured.NAMESPACE.keys() | honoured.TOPIC.keys())


def _read_by_the_broker() -> set[str]:
    """Names of attributes that the broker reads somewhere else than where policies are made and checked."""
    found: set[str] = set()
    root = Path(magnetar.broker.__file__ or "").parent
    for path in root.rglob("*.py"):
        if path.parent.name != "policies":
            tree = ast.parse(path.read_text())
            found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found


def test_what_the_table_calls_honoured_is_read_by_the_broker_and_nothing_else_is() -> None:
    read = _read_by_the_broker()
    assert len(_SOURCES) > 30
    for name, source in _SOURCES.items():
        for field, table in ((source.namespace, honoured.NAMESPACE), (source.topic, honoured.TOPIC)):
            if field is None or field in OFFLOADING:
                continue
            assert (table[field] is None) == (name in read), (name, field)


def test_fields_of_messages_producers_and_consumers_are_in_the_table() -> None:
    for table, message in (
        (honoured.MESSAGE, MessageMetadata),
        (honoured.PRODUCER, CommandProducer),
        (honoured.CONSUMER, CommandSubscribe),
    ):
        assert sorted(table) == sorted(message.DESCRIPTOR.fields_by_name)


def warned(response: Response) -> list[str]:
    assert response.status in (200, 204), response.body
    return [value for name, value in response.headers if name == "Warning"]


class Asks:
    """An authorizer that refuses nothing."""

    asks = True

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        return None

    def listen(self, changed: Changed) -> None:
        """Nothing of it changes."""


def test_permissions_have_no_effect_only_where_nobody_is_asked() -> None:
    served = Served()
    asked = (
        ("POST", f"{NAMESPACE}/permissions/r", '["produce"]'),
        ("POST", f"{TOPIC}/permissions/r", '["produce"]'),
        ("POST", f"{NAMESPACE}/permissions/subscription/s", '["r"]'),
        ("POST", f"{NAMESPACE}/subscriptionAuthMode", '"Prefix"'),
        ("PUT", "/admin/v2/namespaces/public/own", '{"auth_policies": {"namespace_auth": {}}}'),
    )
    for method, path, body in asked:
        [sentence] = warned(served.ask(method, path, body))
        assert "authorizationEnabled is false, so every client has all permissions" in sentence
    served.ask("DELETE", "/admin/v2/namespaces/public/own")
    with served.access(Access(authorizer=Asks())):
        for method, path, body in asked:
            assert warned(served.ask(method, path, body)) == [], path


def test_who_sets_what_has_no_effect_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    served = Served()
    sentence = (
        "a permission has no effect: authorizationEnabled is false, so every client has all permissions"
    )
    assert warned(served.ask("POST", f"{NAMESPACE}/permissions/r", '["produce"]')) == [
        f'299 magnetar "{sentence}"'
    ]
    assert [record.getMessage() for record in caplog.records].count(sentence) == 1
    # It is stored and answered all the same, and what has an effect is not spoken of.
    assert served.get(f"{NAMESPACE}/permissions") == {"r": ["produce"]}
    assert warned(served.ask("GET", f"{NAMESPACE}/permissions")) == []
    assert warned(served.ask("POST", f"{NAMESPACE}/allowedClusters", '["standalone"]')) == []
    assert warned(served.ask("POST", f"{NAMESPACE}/messageTTL", "60")) == []
    assert warned(served.ask("POST", f"{NAMESPACE}/dispatchRate", RATE)) == []
    assert warned(served.ask("DELETE", f"{NAMESPACE}/dispatchRate")) == []
    assert len(warned(served.ask("POST", f"{TOPIC}/permissions/r", '["produce"]'))) == 1


def test_filters_of_policies_have_no_effect_where_only_the_broker_s_count() -> None:
    given = honoured.warnings(honoured.TOPIC, ["entryFilters"])
    assert given == [
        "an entry filter has no effect: allowOverrideEntryFilters is false, so only the broker's filters "
        "apply"
    ]
    assert honoured.warnings(honoured.TOPIC, ["entryFilters"], filters=True) == []


def test_a_new_namespace_is_told_of_all_it_is_given() -> None:
    served = Served()
    body = (
        '{"auth_policies":{"namespace_auth":{}},"message_ttl_in_seconds":1,"subscription_auth_mode":"None"}'
    )
    told = warned(served.ask("PUT", "/admin/v2/namespaces/public/new", body))
    assert [text.partition(" has no")[0] for text in told] == [
        '299 magnetar "a permission',
        "299 magnetar \"a subscription's authorization mode",
    ]
    assert warned(served.ask("PUT", "/admin/v2/namespaces/public/newer")) == []


def test_the_documents_say_what_happens_instead() -> None:
    text = (Path(__file__).parents[3] / "docs" / "admin-rest.md").read_text()
    for table in (honoured.NAMESPACE, honoured.TOPIC, honoured.MESSAGE, honoured.CONSUMER):
        for entry in table.values():
            assert entry is None or entry.instead in text, entry


def test_whoever_creates_a_topic_is_warned_if_it_is_deleted_soon_unless_it_is_used() -> None:
    served = Served()
    topics = iter(range(100))

    def created(path: str = "", body: str = "", domain: str = "persistent") -> list[str]:
        name = f"/admin/v2/{domain}/public/default/new-{next(topics)}"
        return warned(served.ask("PUT", f"{name}{path}", body))

    def delete_after(seconds: int, *, delete: bool = True) -> None:
        body = {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": seconds,
            "deleteWhileInactive": delete,
        }
        assert served.ask("POST", f"{NAMESPACE}/inactiveTopicPolicies", json.dumps(body)).status == 204

    delete_after(60)
    for found in (created(), created("/partitions", "2"), created(domain="non-persistent")):
        [warning] = found
        assert "is deleted after 60 s" in warning
    for seconds, times in ((3600, 1), (3601, 0)):
        delete_after(seconds)
        assert ["after 3600 s" in each for each in created()] == [True] * times
    delete_after(60, delete=False)
    assert created() == created("/partitions", "2") == []
    delete_after(60)
    for minutes, times in ((30, 1), (61, 0), (-1, 0)):
        retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
        assert served.ask("POST", f"{NAMESPACE}/retention", json.dumps(retention)).status == 204
        assert len(created()) == times
        # Retention does not keep what is not stored.
        assert len(created(domain="non-persistent")) == 1
