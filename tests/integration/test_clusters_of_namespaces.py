"""Which clusters serve the topics of a namespace: refusals, allowed clusters, and what happens to data."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
from polling import until
from raw_client import Client as RawClient
from raw_client import Refused
from replicated_sites import Site, connect, make_namespace, nothing_more, received
from server import Server

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MetadataError

Pair = tuple[Site[Server], Site[Server]]


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[Pair]:
    east, west = (Site(name, start_server(clusterName=name)) for name in ("east", "west"))
    connect(east, west)
    for site in (east, west):
        site.ask("PUT", "/clusters/north", {"serviceUrl": "http://127.0.0.1:1"})
    yield east, west
    east.client.close()
    west.client.close()


def admin(site: Site[Server], *words: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    """Runs ``pulsar-admin``.

    :param answer: its standard input
    """
    program = [sys.executable, "-c", "from magnetar.cli.pulsar_admin import main; raise SystemExit(main())"]
    return subprocess.run(
        [*program, "--admin-url", site.server.http_url, *words],
        input=answer,
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(namespace: str, local: str, clusters: str) -> str:
    return (
        "Namespace missing local cluster name in clusters list: "
        f"local_cluster={local} ns={namespace} clusters=[{clusters}]"
    )


def check_refused(site: Site[Server], topic: str, text: str) -> None:
    """Clients are refused, whether they ask where the topic is or come without asking."""
    with closing(RawClient(site.server.port)) as client:
        name = f"persistent://{topic}"
        lookup = client.ask(BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=name)
        assert (lookup.response, lookup.error, lookup.message) == (lookup.Failed, MetadataError, text)
        kinds = BaseCommand.PARTITIONED_METADATA, BaseCommand.PARTITIONED_METADATA_RESPONSE
        assert client.ask(*kinds, topic=name).message == text
        with pytest.raises(Refused) as refused:
            client.produce(name)
        assert refused.value.code == MetadataError


def contents(site: Site[Server], topic: str, count: int) -> list[str]:
    consumer = site.subscribe(topic)
    found = [message.data().decode() for message in received(consumer, count)]
    assert nothing_more(consumer)
    consumer.close()
    return found


def test_a_namespace_is_served_by_allowed_clusters_and_replicated_to_the_others(pair: Pair) -> None:
    east, west = pair
    namespace = "geo/allowed"
    created = {"replication_clusters": ["west"], "allowed_clusters": ["east", "west"]}
    east.ask("PUT", f"/namespaces/{namespace}", created)
    west.ask("PUT", f"/namespaces/{namespace}", {"replication_clusters": ["west"]})
    topic = f"{namespace}/t"
    there = west.subscribe(topic)
    east.publish(topic, ["1", "2"])
    assert [message.data() for message in received(there, 2)] == [b"1", b"2"]
    told = admin(east, "namespaces", "get-allowed-clusters", namespace)
    assert told.stdout.split() == ["east", "west"]


def test_topics_are_closed_and_kept_when_a_namespace_no_longer_allows_the_local_cluster(pair: Pair) -> None:
    east, _ = pair
    namespace = "geo/narrowed"
    created = {"replication_clusters": ["west"], "allowed_clusters": ["east", "west"]}
    east.ask("PUT", f"/namespaces/{namespace}", created)
    topic = f"{namespace}/t"
    east.subscribe(topic).close()
    east.publish(topic, ["1", "2"])
    done = admin(east, "namespaces", "set-allowed-clusters", namespace, "--clusters", "west")
    assert done.returncode == 0, done.stderr
    text = refusal(namespace, "east", "west")
    check_refused(east, topic, text)
    for path in (f"/lookup/v2/topic/persistent/{topic}", f"/admin/v2/persistent/{topic}/stats"):
        status, answer = east.server.ask("GET", path)
        assert (status, json.loads(answer)["reason"]) == (412, text)
    assert text in admin(east, "topics", "stats", topic).stderr
    done = admin(east, "namespaces", "set-allowed-clusters", namespace, "--clusters", "west,east")
    assert done.returncode == 0, done.stderr
    assert contents(east, topic, 2) == ["1", "2"]


def test_lists_of_clusters_agree_with_one_another(pair: Pair) -> None:
    east, west = pair
    namespace = make_namespace("lists", east, west, clusters=["east"])
    path = f"/namespaces/{namespace}"
    assert json.loads(east.ask("GET", f"{path}/allowedClusters")) == []
    for body, status, reason in (
        (["west"], 400, "Allowed clusters do not contain the replication cluster [east]"),
        (["east", "nowhere"], 403, "Invalid cluster id: nowhere"),
        (["east", "global"], 403, "Cannot specify global in the list of allowed clusters"),
        (
            ["east", "north"],
            403,
            "Cluster [north] is not in the list of allowed clusters list for tenant [geo]",
        ),
        (["east"], 200, ""),
    ):
        answer = east.ask("POST", f"{path}/allowedClusters", body, (status,))
        assert reason in answer.decode(), answer
    east.ask("POST", "/namespaces/geo/none/allowedClusters", ["east"], (404,))
    reason = "Cluster [west] is not in the list of allowed clusters list for namespace [geo/lists]"
    assert reason in east.ask("POST", f"{path}/replication", ["east", "west"], (400,)).decode()
    topic = f"/persistent/{namespace}/t"
    east.ask("PUT", topic)
    assert reason in east.ask("POST", f"{topic}/replication", ["east", "west"], (400,)).decode()
    east.ask("POST", f"{path}/allowedClusters", [])
    east.ask("POST", f"{path}/replication", ["east", "west"])
    lacking = {"replication_clusters": ["east"], "allowed_clusters": ["west"]}
    east.ask("PUT", "/namespaces/geo/contradicts", lacking, (400,))


def test_a_broker_that_is_started_with_another_cluster_name_refuses_service_and_keeps_data(
    start_server: Callable[..., Server],
) -> None:
    server = start_server(clusterName="east")
    site = Site("east", server)
    topic = "public/default/kept"
    site.subscribe(topic).close()
    site.publish(topic, [str(n) for n in range(1000)])
    assert site.ask("PUT", "/persistent/public/default/unused") == b""
    server.stop()
    server.configure({"clusterName": "renamed", "brokerDeleteInactiveTopicsFrequencySeconds": 1})
    server.start()
    check_refused(site, topic, refusal("public/default", "renamed", "east"))
    server.stop()
    server.configure({"clusterName": "east"})
    server.start()
    assert contents(site, topic, 1000) == [str(n) for n in range(1000)]
    until(
        lambda: "persistent://public/default/unused" in topics_of(site, "public/default"),
        "the other topic is there",
    )
    site.client.close()


def test_a_list_without_the_local_cluster_deletes_its_topics_and_nothing_else_does(pair: Pair) -> None:
    east, west = pair
    namespace = make_namespace("leaves", east, west)
    topic, parted = f"{namespace}/t", f"{namespace}/parted"
    east.ask("PUT", f"/persistent/{parted}/partitions", 2)
    east.ask("PUT", f"/persistent/{topic}/subscription/s")
    kept = west.subscribe(topic, "kept")
    east.publish(topic, ["1", "2"])
    east.publish(parted, ["3", "4"])
    assert len(received(kept, 2)) == 2
    command = ("namespaces", "set-clusters", namespace, "--clusters", "west")
    for answer, words in (
        ("", "no answer on standard input; use --force to skip the confirmation"),
        ("n\n", ""),
    ):
        asked = admin(east, *command, answer=answer)
        assert f"All topics of {namespace} in cluster east will be deleted with all messages" in asked.stdout
        assert words in asked.stderr
        assert json.loads(east.ask("GET", f"/namespaces/{namespace}/replication")) == ["east", "west"]
    done = admin(east, *command, answer="y\n")
    assert done.returncode == 0, done.stderr
    said = "its namespace no longer include the local cluster"
    for deleted in (topic, f"{parted}-partition-0", f"{parted}-partition-1"):
        assert [line for line in east.server.log.splitlines() if said in line and f"{deleted}" in line]
    check_refused(east, topic, refusal(namespace, "east", "west"))
    until(
        lambda: "missing local cluster" in west.replication(topic, "east").get("magnetarHindrance", ""), "why"
    )
    # Else the other cluster makes the topics here again.
    west.ask("POST", f"/namespaces/{namespace}/replication", ["west"])
    for name in topics_of(west, namespace):
        cursors = partial(west.cursors, name.removeprefix("persistent://"))
        until(lambda cursors=cursors: "pulsar.repl.east" not in cursors(), "nothing is replicated any more")
    admin(east, "namespaces", "set-clusters", namespace, "--clusters", "east")
    assert topics_of(east, namespace) == []
    assert contents(west, topic, 2) == ["1", "2"]
    kept.close()


def test_nothing_is_asked_or_deleted_where_the_local_cluster_is_allowed(pair: Pair) -> None:
    east, west = pair
    namespace = make_namespace("stays", east, west)
    topic = f"{namespace}/t"
    east.subscribe(topic).close()
    east.publish(topic, ["1"])
    admin(east, "namespaces", "set-allowed-clusters", namespace, "--clusters", "east,west")
    for clusters in ("west", "east,west", "east"):
        done = admin(east, "namespaces", "set-clusters", namespace, "--clusters", clusters)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert contents(east, topic, 1) == ["1"]


def test_a_global_list_of_a_topic_without_the_local_cluster_deletes_it_here_alone(pair: Pair) -> None:
    east, west = pair
    namespace = make_namespace("global", east, west)
    topic, other = f"{namespace}/t", f"{namespace}/other"
    there = west.subscribe(topic)
    for name in (topic, other):
        east.subscribe(name).close()
        east.publish(name, ["1"])
    received(there, 1)
    path = f"/persistent/{topic}/replication"
    assert "local cluster" in east.ask("POST", path, ["west"], (412,)).decode()
    command = ("topicPolicies", "set-replication-clusters", topic, "--clusters", "west", "--global")
    asked = admin(east, *command)
    assert f"{topic} in cluster east will be deleted with all messages. Continue?" in asked.stdout
    assert asked.returncode == 1
    assert f"persistent://{topic}" in topics_of(east, namespace)
    assert admin(east, *command, "--force").returncode == 0
    left = topics_of(east, namespace)
    assert f"persistent://{other}" in left
    if f"persistent://{topic}" in left:
        # Until it knows of the list, the replicator of the other cluster makes the topic again, empty.
        assert east.internal(topic)["numberOfEntries"] == 0
    until(lambda: west.ask("GET", f"{path}?isGlobal=true") == b'["west"]', "the other cluster knows the list")
    east.ask("PUT", f"/persistent/{topic}", None, (204, 409))
    assert east.ask("GET", f"{path}?isGlobal=true") in (b"", b"[]", b"null")
    assert nothing_more(there)
    # The policies of the topic are gone here, and not in the other cluster.
    assert west.ask("GET", f"{path}?isGlobal=true") == b'["west"]'


def test_a_namespace_is_deleted_in_the_one_cluster_that_it_lists(pair: Pair) -> None:
    east, west = pair
    namespace = make_namespace("deleted", east, west)
    reason = (
        f"Cannot delete the global namespace {namespace}. "
        "There are still more than one replication clusters configured."
    )
    assert reason in east.ask("DELETE", f"/namespaces/{namespace}", None, (412,)).decode()
    for site in (east, west):
        site.ask("POST", f"/namespaces/{namespace}/replication", ["west"])
    status, headers = east.server.head_of("DELETE", f"/admin/v2/namespaces/{namespace}")
    location = f"{west.server.http_url}/admin/v2/namespaces/{namespace}?authoritative=false"
    assert (status, headers["location"]) == (307, location)
    assert admin(east, "namespaces", "delete", namespace).returncode == 0
    west.ask("GET", f"/namespaces/{namespace}", None, (404,))
    east.ask("POST", f"/namespaces/{namespace}/replication", ["east"])
    east.ask("DELETE", f"/namespaces/{namespace}")


def test_a_cluster_that_is_in_use_is_not_deleted(pair: Pair) -> None:
    east, _ = pair
    assert (
        "Cluster east is the cluster of this broker"
        in east.ask("DELETE", "/clusters/east", None, (412,)).decode()
    )
    south = {"serviceUrl": "http://127.0.0.1:1"}
    east.ask("PUT", "/clusters/south", south)
    east.ask("PUT", "/tenants/users", {"allowedClusters": ["east", "south"]})
    lists = {"replication_clusters": ["east"], "allowed_clusters": ["east", "south"]}
    east.ask("PUT", "/namespaces/users/of-south", lists)
    done = admin(east, "clusters", "delete", "south")
    assert done.returncode == 1
    assert (
        "Cluster south is in use: remove it from the clusters of namespace users/of-south first"
        in done.stderr
    )
    admin(east, "namespaces", "set-allowed-clusters", "users/of-south", "--clusters", "east")
    assert admin(east, "clusters", "delete", "south").returncode == 0
    assert "south" not in json.loads(east.ask("GET", "/clusters"))


def topics_of(site: Site[Server], namespace: str) -> list[str]:
    return list(json.loads(site.ask("GET", f"/persistent/{namespace}")))
