"""What is written down with a subscription: its properties, and that it is to be replicated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from raw_client import Client
from server import MINIATURE, Server

from magnetar.protocol.pulsar_api_pb2 import KeyValue


@pytest.fixture(scope="module", params=["default", "miniature"])
def server(request: pytest.FixtureRequest, start_server) -> Server:  # type: ignore[no-untyped-def]
    """One that is started anew meanwhile."""
    return start_server(**(MINIATURE if request.param == "miniature" else {}))


def ask(server: Server, method: str, path: str, body: Any = None) -> Any:
    status, answer = server.ask(method, path, None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer else None


def subscribe(server: Server, topic: str, subscription: str = "s", **fields: Any) -> None:
    client = Client(server.port)
    client.subscribe(topic, subscription, **fields)
    client.close()


def stats(server: Server, topic: str, subscription: str = "s") -> Any:
    path = topic.replace("://", "/")
    return ask(server, "GET", f"/admin/v2/{path}/stats")["subscriptions"][subscription]


def properties(**values: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in values.items()]


@pytest.mark.parametrize("kill", [False, True])
def test_properties_stay(server: Server, topic: str, kill: bool) -> None:
    topic += "-kill" if kill else ""
    path = f"/admin/v2/{topic.replace('://', '/')}/subscription/s/properties"
    subscribe(server, topic, subscription_properties=properties(a="1", b="2"))
    subscribe(server, topic, subscription_properties=properties(c="3"))
    assert ask(server, "GET", path) == {"a": "1", "b": "2"}
    server.restart(kill=kill)
    assert stats(server, topic)["subscriptionProperties"] == {"a": "1", "b": "2"}
    ask(server, "PUT", path, {"x": "y"})
    server.restart(kill=kill)
    assert ask(server, "GET", path) == {"x": "y"}
    ask(server, "PUT", path, {})
    assert ask(server, "GET", path) == {}
    missing = path.replace("/s/", "/nowhere/")
    for method, body in (("GET", None), ("PUT", '{"a": "b"}')):
        assert server.ask(method, missing, body)[0] == 404


def test_marked_as_replicated_by_its_consumer(server: Server, topic: str) -> None:
    topic += "-consumer"
    subscribe(server, topic, "plain")
    subscribe(server, topic, replicate_subscription_state=True)
    subscribe(server, topic)
    assert stats(server, topic)["isReplicated"]
    assert not stats(server, topic, "plain")["isReplicated"]
    subscribe(server, topic, "plain", replicate_subscription_state=True)
    server.restart(kill=False)
    for subscription in ("s", "plain"):
        assert stats(server, topic, subscription)["isReplicated"]


def test_marked_as_replicated_by_an_operator(server: Server, topic: str) -> None:
    topic += "-operator"
    base = f"/admin/v2/{topic.replace('://', '/')}"
    path = f"{base}/subscription/s/replicatedSubscriptionStatus"
    ask(server, "PUT", f"{base}/subscription/s?replicated=true")
    server.restart(kill=True)
    assert ask(server, "GET", path) == {topic: True}
    ask(server, "POST", path, False)
    server.restart(kill=True)
    assert ask(server, "GET", path) == {topic: False}
    ask(server, "POST", path, True)
    server.restart(kill=True)
    assert stats(server, topic)["isReplicated"]
    properties_of_cursor = ask(server, "GET", f"{base}/internalStats")["cursors"]["s"]["properties"]
    assert properties_of_cursor == {"pulsar.replicated.subscription": 1}
