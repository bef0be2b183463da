"""Standalone brokers that replicate topics to each other, with the official client at both ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pulsar
import pytest
from polling import until
from replicated_sites import Site, connect, make_namespace, nothing_more, received, received_once
from server import Server


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[tuple[Site[Server], Site[Server]]]:
    east, west = (
        Site("east", start_server(clusterName="east")),
        Site("west", start_server(clusterName="west")),
    )
    connect(east, west)
    yield east, west
    east.client.close()
    west.client.close()


def test_what_is_published_in_one_cluster_arrives_in_the_other_and_goes_no_further(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    topic = f"{make_namespace('both', *pair)}/t"
    there, here = west.subscribe(topic), east.subscribe(topic)
    east.publish(topic, [f"e{n}" for n in range(100)], properties={"k": "v"}, partition_key="key")
    found = received(there, 100)
    assert [message.data().decode() for message in found] == [f"e{n}" for n in range(100)]
    assert found[0].partition_key() == "key"
    assert found[0].properties().keys() == {"k", "__MSG_PROP_REPL_SOURCE_POSITION"}
    west.publish(topic, [f"w{n}" for n in range(100)])
    own = received(here, 200)
    assert [message.data().decode() for message in own] == [f"{c}{n}" for c in "ew" for n in range(100)]
    assert [message.data().decode() for message in received(there, 100)] == [f"w{n}" for n in range(100)]
    assert nothing_more(there)
    assert nothing_more(here)


def test_a_cut_loses_nothing(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    topic = f"{make_namespace('cut', *pair)}/t"
    there = west.subscribe(topic)
    east.publish(topic, ["before"])
    received(there, 1)
    west.server.stop()
    east.publish(topic, [str(n) for n in range(5000)])
    west.server.start()
    found: dict[str, None] = {}
    while "4999" not in found:
        # Each is there once at least, first in order: nothing is deduplicated in the west.
        found[received(there, 1)[0].data().decode()] = None
    assert [content for content in found if content != "before"] == [str(n) for n in range(5000)]


def test_a_cluster_that_is_taken_from_the_list_gets_nothing_more(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    namespace = make_namespace("list", *pair)
    topic = f"{namespace}/t"
    there = west.subscribe(topic)
    east.publish(topic, ["1"])
    received(there, 1)
    east.ask("POST", f"/namespaces/{namespace}/replication", ["east"])
    east.publish(topic, ["2"])
    until(lambda: "pulsar.repl.west" not in east.cursors(topic), "the cursor is deleted")
    east.ask("POST", f"/namespaces/{namespace}/replication", ["east", "west"])
    until(lambda: "pulsar.repl.west" in east.cursors(topic), "the cursor is made anew")
    east.publish(topic, ["3"])
    assert [message.data() for message in received(there, 1)] == [b"3"]


def test_a_record_that_changes_counts_without_an_unload(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    there = west.subscribe(topic := away(east, west, make_namespace("record", *pair)), "since")
    received(there, 1)
    east.publish(topic, ["1"])
    assert nothing_more(there)
    back(east, west)
    assert [message.data() for message in received(there, 1)] == [b"1"]


def test_statistics_and_metrics_tell_of_replication(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    topic = f"{make_namespace('figures', *pair)}/t"
    there = west.subscribe(topic)
    east.publish(topic, ["1", "2"])
    received(there, 2)
    until(lambda: not east.replication(topic, "west")["replicationBacklog"], "all is confirmed")
    sent, came = east.replication(topic, "west"), west.replication(topic, "east")
    assert (sent["msgOutCount"], sent["connected"], "magnetarHindrance" in sent) == (2, True, False)
    assert sent["outboundConnection"].endswith(west.server.url.removeprefix("pulsar://") + "]")
    assert (came["msgInCount"], "inboundConnection" in came) == (2, True)
    assert west.stats(topic)["publishers"] == []
    cut(east, topic)
    east.publish(topic, ["3"])
    until(lambda: "Connection refused" in east.replication(topic, "west").get("magnetarHindrance", ""), "why")
    assert east.replication(topic, "west")["replicationBacklog"] == 1
    explain = [sys.executable, "-m", "magnetar", "explain", topic, "--admin-url", east.server.http_url]
    told = subprocess.run(explain, capture_output=True, text=True, check=True).stdout
    assert "replication to west: not_replicated" in told
    assert "Connection refused. 1 entry waits." in " ".join(told.split())
    status, text = east.server.ask("GET", "/metrics")
    assert status == 200
    labels = f'cluster="east",namespace="geo/figures",topic="persistent://{topic}",remote_cluster="west"'
    assert f"pulsar_replication_backlog{{{labels}}} 1\n" in text.decode()
    assert f"pulsar_replication_disconnected_count{{{labels}}} 1\n" in text.decode()
    back(east, west)
    received(there, 1)


def test_each_message_arrives_once_and_in_order_where_the_other_cluster_deduplicates(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    namespace = make_namespace("once", *pair)
    west.ask("POST", f"/namespaces/{namespace}/deduplication", True)
    topic = f"{namespace}/t"
    there = west.subscribe(topic)
    producer = east.client.create_producer(f"persistent://{topic}", block_if_queue_full=True)
    for part, kill in enumerate((west, east, west)):
        for number in range(1000):
            producer.send_async(f"{part}-{number}".encode(), None)
            if number == 500:
                producer.flush()
                kill.server.restart(kill=True)
        producer.flush()
    assert received_once(there, 3000) == [f"{part}-{number}" for part in range(3) for number in range(1000)]
    assert nothing_more(there)
    producer.close()


def refused(site: Site[Server], topic: str, cluster: str, words: str) -> None:
    until(lambda: words in site.replication(topic, cluster).get("magnetarHindrance", ""), words)


def test_a_topic_whose_quota_is_exceeded_there_waits_and_goes_on(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    namespace = make_namespace("quota", *pair)
    topic = f"{namespace}/t"
    there = west.subscribe(topic)
    east.publish(topic, ["0"])
    # Before the quota is set: a producer is refused at once only over a backlog that is already there.
    until(lambda: not east.replication(topic, "west")["replicationBacklog"], "it is confirmed")
    west.ask(
        "POST",
        f"/namespaces/{namespace}/backlogQuota?backlogQuotaType=destination_storage",
        {"limitSize": 1, "policy": "producer_exception"},
    )
    west.ask("PUT", f"/persistent/{topic}/unload")
    east.publish(topic, ["1"])
    refused(east, topic, "west", "backlog quota")
    west.ask("DELETE", f"/namespaces/{namespace}/backlogQuota?backlogQuotaType=destination_storage")
    assert [message.data() for message in received(there, 2)] == [b"0", b"1"]


def test_a_terminated_topic_there_is_told_and_a_new_one_gets_what_follows(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    topic = f"{make_namespace('ended', *pair)}/t"
    west.subscribe(topic).close()
    east.publish(topic, ["1"])
    until(lambda: not east.replication(topic, "west")["replicationBacklog"], "it is confirmed")
    west.ask("POST", f"/persistent/{topic}/terminate")
    east.publish(topic, ["2"])
    refused(east, topic, "west", "terminated")
    west.ask("DELETE", f"/persistent/{topic}?force=true")
    until(lambda: not east.replication(topic, "west")["replicationBacklog"], "it is confirmed")


def test_a_schema_is_declared_there_and_versions_are_translated(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    class First(pulsar.schema.Record):
        a = pulsar.schema.String()

    class Second(pulsar.schema.Record):
        a = pulsar.schema.String()
        b = pulsar.schema.String(default="x", required=True)

    class Other(pulsar.schema.Record):
        c = pulsar.schema.String()

    east, west = pair
    namespace = make_namespace("schema", *pair)
    topic = f"{namespace}/t"
    for site in pair:
        site.ask("PUT", f"/namespaces/{namespace}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    # So the versions differ.
    west.client.create_producer(f"persistent://{topic}", schema=pulsar.schema.AvroSchema(Other)).close()
    for record in (First, Second):
        producer = east.client.create_producer(
            f"persistent://{topic}", schema=pulsar.schema.AvroSchema(record)
        )
        producer.send(record(a="content"))
        producer.close()
    there = west.subscribe(topic)
    versions = [message.schema_version().encode() for message in received(there, 2)]
    assert versions == [number.to_bytes(8, "big") for number in (1, 2)]
    known = json.loads(west.ask("GET", f"/schemas/{topic}/schemas"))["getSchemaResponses"]
    assert [each["data"].count('"name"') for each in known] == [2, 2, 3]


def test_an_incompatible_schema_stops_the_topic_until_it_is_allowed(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    class Here(pulsar.schema.Record):
        a = pulsar.schema.String(required=True)

    class There(pulsar.schema.Record):
        b = pulsar.schema.Integer(required=True)

    east, west = pair
    namespace = make_namespace("strict", *pair)
    topic = f"{namespace}/t"
    west.client.create_producer(f"persistent://{topic}", schema=pulsar.schema.AvroSchema(There)).close()
    until(lambda: f"persistent://{topic}" in topics(east, namespace), "the topic is there, too")
    until(lambda: "west" in east.stats(topic)["replication"], "it is replicated")
    east.ask("PUT", f"/namespaces/{namespace}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    producer = east.client.create_producer(f"persistent://{topic}", schema=pulsar.schema.AvroSchema(Here))
    producer.send(Here(a="1"))
    refused(east, topic, "west", "does not accept the schema")
    west.ask("PUT", f"/namespaces/{namespace}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    there = west.subscribe(topic)
    assert len(received(there, 1)) == 1
    producer.close()


def topics(site: Site[Server], namespace: str) -> list[str]:
    found: list[str] = json.loads(site.ask("GET", f"/persistent/{namespace}"))
    return found


def partitions(site: Site[Server], topic: str) -> int:
    answer: dict[str, int] = json.loads(site.ask("GET", f"/persistent/{topic}/partitions", None, (200, 404)))
    return answer.get("partitions", -1)


def test_partitions_are_made_and_grow_there_too(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    namespace = make_namespace("parts", *pair)
    topic = f"{namespace}/t"
    east.ask("PUT", f"/persistent/{topic}/partitions", 3)
    until(lambda: partitions(west, topic) == 3, "it is made in the west")
    east.ask("POST", f"/persistent/{topic}/partitions", 5)
    until(lambda: partitions(west, topic) == 5, "it grows in the west")
    there = west.subscribe(topic)
    east.publish(topic, [str(n) for n in range(50)])
    assert sorted(int(message.data()) for message in received(there, 50)) == list(range(50))


def test_partitions_made_on_use_are_made_there_too(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    namespace = make_namespace("used", *pair)
    rule = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    east.ask("POST", f"/namespaces/{namespace}/autoTopicCreation", rule)
    topic = f"{namespace}/t"
    east.publish(topic, [str(n) for n in range(20)])
    until(lambda: partitions(west, topic) == 2, "it is made in the west")
    there = west.subscribe(topic)
    assert sorted(int(message.data()) for message in received(there, 20)) == list(range(20))


def away(east: Site[Server], west: Site[Server], namespace: str) -> str:
    """A topic of a namespace whose replicator to the west cannot connect; it has sent what came before."""
    topic = f"{namespace}/t"
    there = west.subscribe(topic)
    east.publish(topic, ["before"])
    received(there, 1)
    there.close()
    until(lambda: not east.replication(topic, "west")["replicationBacklog"], "all is confirmed")
    cut(east, topic)
    return topic


def cut(east: Site[Server], topic: str) -> None:
    """The west cannot be reached any more."""
    east.ask("POST", "/clusters/west", {"brokerServiceUrl": "pulsar://127.0.0.1:1"})
    until(lambda: not east.replication(topic, "west")["connected"], "the record counts")


def back(east: Site[Server], west: Site[Server]) -> None:
    east.ask(
        "POST", "/clusters/west", {"serviceUrl": west.server.http_url, "brokerServiceUrl": west.server.url}
    )


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/persistent/{topic}/subscription/pulsar.repl.west/skip/2", ["2"]),
        ("/persistent/{topic}/subscription/pulsar.repl.west/skip_all", []),
        ("/namespaces/{namespace}/clearBacklog", []),
        ("/namespaces/{namespace}/clearBacklog/pulsar.repl.west", []),
    ],
)
def test_what_an_operator_skips_is_not_sent(
    pair: tuple[Site[Server], Site[Server]], path: str, left: list[str]
) -> None:
    east, west = pair
    namespace = make_namespace(f"skip-{abs(hash(path))}", *pair)
    topic = away(east, west, namespace)
    there = west.subscribe(topic)
    east.publish(topic, ["0", "1", "2"])
    east.ask("POST", path.format(topic=topic, namespace=namespace))
    east.publish(topic, ["end"])
    back(east, west)
    found = [message.data().decode() for message in received(there, 1 + len(left))]
    assert [content for content in found if content != "before"] == [*left, "end"]
    assert nothing_more(there)
    status, text = east.server.ask("GET", "/metrics")
    assert status == 200
    skipped = re.search(
        rf'unreplicated_total{{[^}}]*topic="persistent://{topic}"[^}}]*}} (\d+)', text.decode()
    )
    assert skipped is not None
    assert int(skipped[1]) == 3 - len(left)


def test_what_has_expired_is_not_sent(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    namespace = make_namespace("ttl", *pair)
    topic = away(east, west, namespace)
    there = west.subscribe(topic)
    east.publish(topic, ["old"])
    time.sleep(1.1)
    east.ask("POST", f"/namespaces/{namespace}/messageTTL", 1)
    east.publish(topic, ["new"])
    back(east, west)
    assert [message.data() for message in received(there, 1)] == [b"new"]
    assert nothing_more(there)
    assert east.replication(topic, "west")["msgExpiredCount"] == 1


def test_the_backlog_of_a_replicator_counts_for_quotas(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    namespace = make_namespace("full", *pair)
    topic = away(east, west, namespace)
    east.publish(topic, ["x" * 1000])
    east.ask(
        "POST",
        f"/namespaces/{namespace}/backlogQuota?backlogQuotaType=destination_storage",
        {"limitSize": 100, "policy": "producer_exception"},
    )
    with pytest.raises(pulsar.PulsarException, match="ProducerBlockedQuotaExceeded"):
        east.client.create_producer(f"persistent://{topic}")
    back(east, west)
    until(lambda: not east.replication(topic, "west")["replicationBacklog"], "all is sent")
    east.publish(topic, ["more"])


def test_a_replicated_topic_is_deleted_by_force_only(pair: tuple[Site[Server], Site[Server]]) -> None:
    east = pair[0]
    namespace = make_namespace("delete", *pair)
    east.publish(f"{namespace}/t", ["1"])
    answer = json.loads(east.ask("DELETE", f"/persistent/{namespace}/t", status=(422,)))
    assert answer == {"reason": "Delete forbidden topic is replicated on clusters [west]"}
    answer = json.loads(east.ask("DELETE", f"/namespaces/{namespace}", status=(412,)))
    assert answer["reason"].startswith(f"Cannot delete the global namespace {namespace}. ")
    for site in pair:
        site.ask("POST", f"/namespaces/{namespace}/replication", [site.name])
    for site in pair:
        site.ask("DELETE", f"/persistent/{namespace}/t?force=true")
        site.ask("DELETE", f"/namespaces/{namespace}")


def test_a_topic_that_is_idle_on_both_sides_goes_on_both(start_server: Callable[..., Server]) -> None:
    idle: dict[str, int | str] = {
        "brokerDeleteInactiveTopicsFrequencySeconds": 1,
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": 1,
        "brokerDeleteInactiveTopicsMode": "delete_when_subscriptions_caught_up",
    }
    north, south = (
        Site("north", start_server(clusterName="north", **idle)),
        Site("south", start_server(clusterName="south", **idle)),
    )
    connect(north, south)
    namespace = make_namespace("idle", north, south)
    north.publish(f"{namespace}/t", ["1"])
    for site in (north, south):

        def gone(site: Site[Server] = site) -> bool:
            answer = site.ask("GET", f"/persistent/{namespace}/t/stats", None, (200, 404, 503))
            return b"not found" in answer

        until(gone, f"it is deleted in the {site.name}")
    south.server.stop()
    north.publish(f"{namespace}/u", ["1"])
    time.sleep(3)
    # What has not arrived there keeps it.
    assert north.stats(f"{namespace}/u")["replication"]["south"]["replicationBacklog"] == 1
    south.server.start()
    there = south.subscribe(f"{namespace}/u")
    assert [message.data() for message in received(there, 1)] == [b"1"]
    north.client.close()
    south.client.close()


def test_a_dispatch_rate_bounds_what_is_sent(pair: tuple[Site[Server], Site[Server]]) -> None:
    east, west = pair
    namespace = make_namespace("rate", *pair)
    topic = f"{namespace}/t"
    there = west.subscribe(topic)
    rate = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 3600}
    east.ask("POST", f"/namespaces/{namespace}/replicatorDispatchRate", rate)
    east.publish(topic, [str(n) for n in range(20)])
    found = [message.data() for message in received(there, 5)]
    until(lambda: east.replication(topic, "west")["msgOutCount"] >= 5, "what the rate allows is sent")
    # Messages are counted once for a run of them: the last one may exceed the rate.
    assert 5 <= east.replication(topic, "west")["msgOutCount"] < 20
    east.ask("DELETE", f"/namespaces/{namespace}/replicatorDispatchRate")
    found += [message.data() for message in received(there, 15)]
    assert found == [str(n).encode() for n in range(20)]


def test_an_entry_too_large_for_the_other_cluster_waits_for_an_operator(
    pair: tuple[Site[Server], Site[Server]], start_server: Callable[..., Server]
) -> None:
    east = pair[0]
    small = Site("small", start_server(clusterName="small", maxMessageSize=20_000))
    for site, other in ((east, small), (small, east)):
        record = {"serviceUrl": other.server.http_url, "brokerServiceUrl": other.server.url}
        site.ask("PUT", f"/clusters/{other.name}", record)
    east.ask("PUT", "/tenants/large", {"allowedClusters": ["east", "small"]})
    small.ask("PUT", "/tenants/large", {"allowedClusters": ["east", "small"]})
    east.ask("PUT", "/namespaces/large/n", {"replication_clusters": ["east", "small"]})
    small.ask("PUT", "/namespaces/large/n", {"replication_clusters": ["small"]})
    # The official client goes by the smallest limit that any broker has told it.
    east.publish("large/n/t", ["before", "x" * 40_000, "behind"])
    there = small.subscribe("large/n/t")
    assert [message.data() for message in received(there, 1)] == [b"before"]
    refused(east, "large/n/t", "small", "is larger than cluster small accepts")
    assert east.replication("large/n/t", "small")["replicationBacklog"] == 2
    east.ask("POST", "/persistent/large/n/t/subscription/pulsar.repl.small/skip/1")
    assert [message.data() for message in received(there, 1)] == [b"behind"]
    small.client.close()


def test_a_record_that_is_made_again_ends_the_wait_for_the_next_attempt(
    start_server: Callable[..., Server],
) -> None:
    # A cluster that namespaces list cannot be deleted: here the topic alone lists it.
    east, west = (Site(name, start_server(clusterName=name)) for name in ("east", "west"))
    connect(east, west)
    namespace = "geo/again"
    for site in (east, west):
        site.ask("PUT", f"/namespaces/{namespace}", {"replication_clusters": [site.name]})
    east.ask("PUT", f"/persistent/{namespace}/t")
    east.ask("POST", f"/persistent/{namespace}/t/replication", ["east", "west"])
    topic = away(east, west, namespace)
    there = west.subscribe(topic)
    east.publish(topic, ["1"])
    # By now it waits for seconds between two attempts.
    time.sleep(4)
    east.ask("DELETE", "/clusters/west")
    until(lambda: "does not exist" in east.replication(topic, "west")["magnetarHindrance"], "it is told")
    record = {"serviceUrl": west.server.http_url, "brokerServiceUrl": west.server.url}
    east.ask("PUT", "/clusters/west", record)
    assert [message.data() for message in received(there, 1)] == [b"1"]
    for site in (east, west):
        site.client.close()


def test_the_list_of_a_topic_comes_before_that_of_its_namespace(
    pair: tuple[Site[Server], Site[Server]],
) -> None:
    east, west = pair
    namespace = make_namespace("own", *pair, clusters=None)
    for site in pair:
        site.ask("POST", f"/namespaces/{namespace}/replication", [site.name])
    topic = f"{namespace}/t"
    there = west.subscribe(topic)
    east.publish(topic, ["not sent"])
    path = f"/persistent/{topic}/replication"
    for clusters, status, words in (
        (["east", "nowhere"], 403, "Invalid cluster id: nowhere"),
        (["west"], 412, "Can not remove local cluster"),
    ):
        assert words in json.loads(east.ask("POST", path, clusters, (status,)))["reason"]
    east.ask("POST", path, ["east", "west"])
    until(lambda: "west" in east.stats(topic)["replication"], "it is replicated")
    east.publish(topic, ["sent"])
    assert [message.data() for message in received(there, 1)] == [b"sent"]
    east.ask("DELETE", path)
    until(lambda: "west" not in east.stats(topic)["replication"], "it is not replicated any more")


def test_a_record_that_leads_back_is_refused_by_name(pair: tuple[Site[Server], Site[Server]]) -> None:
    east = pair[0]
    record = {"serviceUrl": east.server.http_url, "brokerServiceUrl": east.server.url}
    east.ask("PUT", "/clusters/mirror", record)
    east.ask("PUT", "/tenants/loop", {"allowedClusters": ["east", "mirror"]})
    east.ask("PUT", "/namespaces/loop/n", {"replication_clusters": ["east", "mirror"]})
    east.publish("loop/n/t", ["1"])
    refused(east, "loop/n/t", "mirror", "correct the service URL in the record of the other cluster")
    assert east.stats("loop/n/t")["msgInCounter"] == 1
