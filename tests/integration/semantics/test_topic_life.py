"""How topics are made, and how they end: rules, caps and deletion, met through the official Python client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest
from polling import until
from server import Server

NAMESPACES = "/admin/v2/namespaces/public"
PERSISTENT = "/admin/v2/persistent/public"


def ask(server: Server, method: str, path: str, body: Any = None) -> Any:
    status, answer = server.ask(method, path, None if body is None else json.dumps(body))
    assert status < 300, (method, path, status, answer)
    return json.loads(answer) if answer else None


@contextmanager
def connected(server: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.url, operation_timeout_seconds=30)
    yield client
    # Not close: the producers of a terminated topic are closed already, which that takes for an error.
    client.shutdown()


def topics(server: Server, namespace: str = "default") -> list[str]:
    found = ask(server, "GET", f"{PERSISTENT}/{namespace}")
    return sorted(name.rpartition("/")[2] for name in found)


def test_topics_are_made_on_use_where_the_namespace_says_so(start_server: Any) -> None:
    server: Server = start_server(allowAutoTopicCreation="false")
    ask(server, "PUT", f"{NAMESPACES}/open")
    rule = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    ask(server, "POST", f"{NAMESPACES}/open/autoTopicCreation", rule)
    with connected(server) as client:
        for refused in (lambda: client.create_producer("t"), lambda: client.subscribe("t", "s")):
            with pytest.raises(pulsar.TopicNotFound):
                refused()
        client.create_producer("public/open/t").send(b"m")
        assert topics(server, "open") == [f"t-partition-{index}" for index in range(3)]
        assert ask(server, "GET", f"{PERSISTENT}/open/t/partitions")["partitions"] == 3
        ask(server, "POST", f"{NAMESPACES}/open/autoTopicCreation", {"allowAutoTopicCreation": False})
        with pytest.raises(pulsar.TopicNotFound):
            client.create_producer("public/open/u")
        ask(server, "DELETE", f"{NAMESPACES}/open/autoTopicCreation")
    assert topics(server) == []


def test_the_broker_makes_topics_with_partitions(start_server: Any) -> None:
    server: Server = start_server(allowAutoTopicCreationType="partitioned", defaultNumPartitions=2)
    with connected(server) as client:
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"m")
        assert consumer.receive(10_000).data() == b"m"
    assert topics(server) == ["t-partition-0", "t-partition-1"]


def test_a_namespace_has_as_many_topics_as_it_may(start_server: Any) -> None:
    server: Server = start_server(maxTopicsPerNamespace=3)
    ask(server, "PUT", f"{NAMESPACES}/other")
    ask(server, "POST", f"{NAMESPACES}/other/maxTopicsPerNamespace", 1)
    with connected(server) as client:
        for name in ("a", "b", "c", "public/other/a"):
            client.create_producer(name).send(b"m")
        for name in ("d", "public/other/b"):
            with pytest.raises(pulsar.PulsarException):
                client.create_producer(name)
        # What is there stays of use.
        client.create_producer("a").send(b"m")
        assert server.ask("PUT", f"{PERSISTENT}/default/p/partitions", "1")[0] == 412
        ask(server, "DELETE", f"{PERSISTENT}/default/b?force=true")
        client.create_producer("d").send(b"m")
    assert topics(server) == ["a", "c", "d"]


def test_missed_partitions_are_made(server: Server) -> None:
    ask(server, "PUT", f"{PERSISTENT}/default/missed/partitions", 3)
    with connected(server) as client:
        client.subscribe("missed", "s").close()
        ask(server, "DELETE", f"{PERSISTENT}/default/missed-partition-1?force=true")
        wanted = {f"missed-partition-{index}" for index in range(3)}
        assert wanted - set(topics(server)) == {"missed-partition-1"}
        # The error names the missing partition, as in Pulsar, and not the subscription.
        missing = f"{PERSISTENT}/default/missed-partition-1/subscription/s"
        reason = "Topic persistent://public/default/missed-partition-1 not found"
        for method, path in (("DELETE", ""), ("POST", "/skip_all"), ("GET", "/properties")):
            status, answer = server.ask(method, missing + path)
            assert (status, json.loads(answer)["reason"]) == (404, reason)
        ask(server, "POST", f"{PERSISTENT}/default/missed/createMissedPartitions")
        assert wanted <= set(topics(server))
        assert ask(server, "GET", f"{PERSISTENT}/default/missed-partition-1/subscriptions") == ["s"]


def test_a_terminated_partitioned_topic_takes_nothing(server: Server) -> None:
    ask(server, "PUT", f"{PERSISTENT}/default/ended/partitions", 2)
    with connected(server) as client:
        consumer = client.subscribe("ended", "s")
        producer = client.create_producer(
            "ended", message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
        )
        for number in range(4):
            producer.send(b"%d" % number)
        assert server.ask("POST", f"{PERSISTENT}/default/ended/terminate")[0] == 405
        last = ask(server, "POST", f"{PERSISTENT}/default/ended/terminate/partitions")
        assert {part: found["entryId"] for part, found in last.items()} == {"0": 1, "1": 1}
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"more")
        assert {consumer.receive(10_000).data() for _ in range(4)} == {b"0", b"1", b"2", b"3"}


def test_system_topics_are_in_no_list(server: Server) -> None:
    ask(server, "PUT", f"{NAMESPACES}/hidden")
    ask(server, "PUT", f"{PERSISTENT}/hidden/t")
    ask(server, "POST", f"{PERSISTENT}/hidden/t/maxConsumers", 5)
    assert topics(server, "hidden") == ["t"]
    shown = ask(server, "GET", f"{PERSISTENT}/hidden?includeSystemTopic=true")
    assert "persistent://public/hidden/__change_events" in shown


def test_topics_nobody_uses_go(start_server: Any) -> None:
    server: Server = start_server(
        brokerDeleteInactiveTopicsFrequencySeconds=1,
        brokerDeleteInactiveTopicsMaxInactiveDurationSeconds=1,
        brokerDeleteInactivePartitionedTopicMetadataEnabled="true",
    )
    ask(server, "PUT", f"{NAMESPACES}/kept")
    policy = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 1,
        "deleteWhileInactive": False,
    }
    ask(server, "POST", f"{NAMESPACES}/kept/inactiveTopicPolicies", policy)
    ask(server, "PUT", f"{PERSISTENT}/default/parts/partitions", 2)
    caught_up = policy | {
        "deleteWhileInactive": True,
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    }
    with connected(server) as client:
        used = client.create_producer("used")
        client.create_producer("public/kept/t").close()
        client.create_producer("unused").close()
        for name in ("subscribed", "backlog", "caught-up"):
            client.subscribe(name, "s").close()
        for name in ("backlog", "caught-up"):
            ask(server, "POST", f"{PERSISTENT}/default/{name}/inactiveTopicPolicies", caught_up)
        producer = client.create_producer("backlog")
        producer.send(b"m")
        producer.close()
        left = ["backlog", "subscribed", "used"]
        until(lambda: topics(server) == left, f"only {left} are left of {topics(server)}", seconds=20)
        assert topics(server, "kept") == ["t"]
        assert server.ask("GET", f"{PERSISTENT}/default/parts/partitions")[0] == 404
        used.send(b"m")
        used.close()
        consumer = client.subscribe("backlog", "s")
        consumer.acknowledge(consumer.receive(10_000))
        consumer.close()
        until(lambda: topics(server) == ["subscribed"], "only what has a subscription is left", seconds=20)
        # Whoever comes again has the topic made anew.
        client.create_producer("unused").send(b"m")
