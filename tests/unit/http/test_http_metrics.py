import re
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.broker.stats.figures import (
    CompactionMetrics,
    ConsumerMetrics,
    GroupMetrics,
    Histogram,
    LoadMetrics,
    LookupMetrics,
    ManagedLedgerMetrics,
    MetricsSnapshot,
    OffloadDeletionMetrics,
    OffloadMetrics,
    ProducerMetrics,
    ReplicationMetrics,
    SubscriptionMetrics,
    TimingMetrics,
    TopicMetrics,
)
from magnetar.http.metrics.exposition import content_type, described, meaning_of
from magnetar.http.metrics.rendering import MetricsOptions, render
from magnetar.security.authentication import AuthenticationCounts

SAMPLE = re.compile(r'([a-zA-Z_]\w*)\{((?:[a-zA-Z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)')
LABEL = re.compile(r'([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"')
OWN = (
    "magnetar_subscription_waiting_seconds",
    "magnetar_topic_refused",
    "magnetar_replication_lag_seconds",
    "magnetar_replication_unreplicated_total",
)
"""Pulsar has nothing like them."""
OPTIONS = MetricsOptions(version="9", consumer_level=True, producer_level=True)


def topic(
    name: str = "persistent://public/default/t-partition-1", namespace: str = "public/default"
) -> TopicMetrics:
    consumer = ConsumerMetrics("c", 3, unacked_messages=4, bytes_out=70)
    subscription = SubscriptionMetrics(
        "s", backlog=5, bytes_out=70, messages_out=7, consumer_count=1, consumers=[consumer]
    )
    return TopicMetrics(
        name=name,
        namespace=namespace,
        subscriptions=[subscription],
        producer_count=1,
        consumer_count=1,
        rate_in=40.77407668903617,
        bytes_in=1000,
        messages_in=10,
        storage_size=1000,
        storage_logical_size=1000,
        backlog=5,
        write_latency_ms=Histogram([0, 1, 2, 0, 0, 0, 0, 0, 0, 0], 4321),
        ledger_write_latency_ms=Histogram([0, 1, 2, 0, 0, 0, 0, 0, 0, 0], 4000),
        entry_size_bytes=Histogram([3, 0, 0, 0, 0, 0, 0, 0, 0], 300),
        producers=[ProducerMetrics("p", 0, rate_in=40.0)],
        replication=[ReplicationMetrics("west", rate_in=1.5, backlog=7, connected=True, lag_seconds=2.5)],
        compaction=CompactionMetrics(
            removed=9, succeeded=1, entries=4, write_latency_ms=Histogram([4, 0, 0, 0, 0, 0, 0, 0, 0, 0], 80)
        ),
    )


def snapshot(*topics: TopicMetrics) -> MetricsSnapshot:
    return MetricsSnapshot(
        cluster="standalone",
        broker="127.0.0.1",
        started_seconds=1795253396.5,
        topics=list(topics),
        managed_ledgers=[ManagedLedgerMetrics("public/default", add_entry_rate=1.5)],
        authentication_counts=[AuthenticationCounts("AuthenticationProviderToken", "token", 3, 1)],
        lookups=LookupMetrics(answers=23, timing=TimingMetrics(23, 12.0, {0.5: 0.115, 1.0: 0.302})),
    )


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], str]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        key = (match.group(1), tuple(LABEL.findall(match.group(2))))
        assert key not in found, f"printed twice: {line}"
        float(match.group(3))
        found[key] = match.group(3)
    return found


def printed(taken: MetricsSnapshot, options: MetricsOptions = OPTIONS) -> str:
    return "".join(render(taken, options))


def of_pulsar() -> dict[tuple[str, str], str]:
    path = Path(__file__).parent / "data" / "pulsar_metrics.tsv"
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return {(name, labels): kind for name, labels, kind in rows}


@pytest.mark.parametrize("topic_level", [True, False])
def test_names_labels_and_types_are_those_of_pulsar(topic_level: bool) -> None:
    text = printed(snapshot(topic()), replace(OPTIONS, topic_level=topic_level))
    known = of_pulsar()
    strange = {
        (name, ",".join(key for key, _ in labels))
        for name, labels in samples(text)
        if name not in OWN and (name, ",".join(key for key, _ in labels)) not in known
    }
    assert strange == set()
    kinds = {name: kind for (name, _), kind in known.items()}
    for name, kind in re.findall(r"# TYPE (\S+) (\S+)", text):
        if name in OWN:
            assert name not in kinds
        elif kind == "gauge":
            assert kinds[name] == "gauge"
        else:
            assert any(kinds.get(name + end) == kind for end in ("", "_total", "_count"))


@pytest.mark.parametrize("topic_level", [True, False])
def test_one_type_line_for_each_metric_and_its_samples_behind_it(topic_level: bool) -> None:
    text = printed(snapshot(topic(), topic("b", "n/b")), replace(OPTIONS, topic_level=topic_level))
    names = re.findall(r"# TYPE (\S+)", text)
    assert len(names) == len(set(names))
    current = ""
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            current = line.split(" ")[2]
        else:
            assert re.match(rf"{current}(_total|_created|_count|_sum|_bucket)?{{", line), line


def test_what_resource_groups_used() -> None:
    groups = [GroupMetrics("g", "Publish", 5, 60, 2), GroupMetrics("g", "Dispatch", 7, 80, 2)]
    text = printed(replace(snapshot(), resource_groups=groups))
    found = samples(text)
    group = (("cluster", "standalone"), ("ResourceGroup", "g"))
    assert (
        found["pulsar_resource_group_messages_used_total", (*group, ("MonitoringClass", "Dispatch"))] == "7"
    )
    assert found["pulsar_resource_group_bytes_used_total", (*group, ("MonitoringClass", "Publish"))] == "60"
    assert found["pulsar_resource_group_updates_total", group] == "2"


def test_load_of_a_broker_among_others() -> None:
    usage = {"cpu": 12.5, "memory": 1.0, "directMemory": 0.0, "bandwidth_in": 2.0, "bandwidth_out": 3.0}
    found = samples(printed(replace(snapshot(), load=LoadMetrics(usage, 1, 2, 3))))
    own = "loadBalancing"
    of_load = {key: value for key, value in found.items() if key[0].startswith("pulsar_lb")}
    values = {(name, dict(labels)["metric"]): value for (name, labels), value in of_load.items()}
    assert values["pulsar_lb_cpu_usage", own] == "12.5"
    assert values["pulsar_lb_directMemory_usage", own] == "0.0"
    assert values["pulsar_lb_unload_broker_total", "bundleUnloading"] == "1"
    assert values["pulsar_lb_unload_bundle_total", "bundleUnloading"] == "2"
    assert values["pulsar_lb_bundles_split_total", "bundlesSplit"] == "3"
    assert len(values) == 8
    assert "pulsar_lb" not in printed(snapshot())


def test_how_often_rates_held_a_subscription_back() -> None:
    held = topic()
    held.subscriptions[0].held_back = {("Topic", True): 3, ("Broker", False): 4}
    found = {
        (name.split("_")[4], dict(labels)["reason"]): value
        for (name, labels), value in samples(printed(snapshot(held))).items()
        if name.startswith("pulsar_subscription_dispatch_throttled")
    }
    assert {key: value for key, value in found.items() if value != "0"} == {
        ("msg", "topic"): "3",
        ("bytes", "broker"): "4",
    }
    assert len(found) == 6


def test_tiered_storage_has_the_names_labels_and_units_of_pulsar() -> None:
    """Those of LedgerOffloaderStatsImpl; the broker adds the cluster."""
    one = topic()
    one.offload = OffloadMetrics(data_reads=TimingMetrics(2, 3.5, {0.5: 1.25, 0.95: 2.25, 0.99: 2.25}))
    other = topic("persistent://public/default/other")
    other.offload = OffloadMetrics(data_reads=TimingMetrics(1, 1.0, {0.5: 1.0}))
    gone = OffloadDeletionMetrics("public/default", "persistent://public/default/gone", 3, 1)
    text = printed(replace(snapshot(one, other), offload_deletions=[gone]))
    name = "brk_ledgeroffloader_read_offload_data_latency"
    labels = 'cluster="standalone",namespace="public/default",topic="persistent://public/default/'
    for line in (
        f"# TYPE {name} summary",
        f'{name}{{{labels}t-partition-1",quantile="0.5"}} 1250.0',
        f'{name}{{{labels}t-partition-1",quantile="0.95"}} 2250.0',
        f'{name}{{{labels}t-partition-1",quantile="0.99"}} 2250.0',
        f'{name}_count{{{labels}t-partition-1"}} 2.0',
        f'{name}_sum{{{labels}t-partition-1"}} 3500.0',
        f'{name}_count{{{labels}other"}} 1.0',
        f'brk_ledgeroffloader_delete_offload_ops_total{{{labels}gone",status="succeed"}} 3',
        f'brk_ledgeroffloader_delete_offload_ops_total{{{labels}gone",status="failed"}} 1',
    ):
        assert text.splitlines().count(line) == 1, line
    assert "read_ledger_latency" not in text


def test_figures_of_a_topic() -> None:
    found = samples(printed(snapshot(topic())))
    of_topic = (
        ("cluster", "standalone"),
        ("namespace", "public/default"),
        ("topic", "persistent://public/default/t-partition-1"),
    )
    of_subscription = (*of_topic, ("subscription", "s"))
    of_consumer = (*of_subscription, ("consumer_name", "c"), ("consumer_id", "3"))
    assert found["pulsar_rate_in", of_topic] == "40.774"
    assert found["pulsar_in_messages_total", of_topic] == "10"
    assert found["pulsar_storage_write_latency_le_5", of_topic] == "2"
    assert found["pulsar_storage_write_latency_count", of_topic] == "3"
    assert found["pulsar_storage_write_latency_sum", of_topic] == "4321"
    assert found["pulsar_entry_size_le_overflow", of_topic] == "0"
    assert found["pulsar_compaction_removed_event_count", of_topic] == "9"
    assert found["pulsar_compaction_latency_le_0_5", of_topic] == "4"
    assert found["pulsar_subscription_back_log", of_subscription] == "5"
    assert found["pulsar_out_bytes_total", of_subscription] == "70"
    assert found["pulsar_out_bytes_total", of_consumer] == "70"
    assert found["pulsar_consumer_unacked_messages", of_consumer] == "4"
    cluster = (("cluster", "standalone"),)
    assert found["pulsar_broker_topics_count", cluster] == "1"
    assert found["pulsar_broker_lookup_answers_total", cluster] == "23.0"
    assert found["pulsar_broker_lookup", (*cluster, ("quantile", "0.5"))] == "0.115"
    assert found["pulsar_broker_in_bytes_total", (*cluster, ("system_topic", "false"))] == "1000"


def test_why_subscriptions_wait_and_what_was_refused() -> None:
    found = replace(topic(), replication=[])
    of_topic = f'cluster="standalone",namespace="public/default",topic="{found.name}"'
    waits = replace(found.subscriptions[0], waits_for="no_permits", waits_seconds=1.5)
    text = "".join(
        render(snapshot(replace(found, subscriptions=[waits], refused={"max_producers": 3})), OPTIONS)
    )
    name = "magnetar_subscription_waiting_seconds"
    assert f'# TYPE {name} gauge\n{name}{{{of_topic},subscription="s",reason="no_permits"}} 1.5\n' in text
    assert f'magnetar_topic_refused{{{of_topic},reason="max_producers"}} 3\n' in text
    text = "".join(render(snapshot(found), OPTIONS))
    assert f"{name}{{" not in text, "all was delivered"
    options = replace(OPTIONS, topic_level=False)
    assert "magnetar_" not in "".join(render(snapshot(replace(found, subscriptions=[waits])), options))


def test_figures_of_a_namespace() -> None:
    taken = snapshot(topic(), topic("persistent://public/default/u"), topic("x", "n/b"))
    found = samples(printed(taken, replace(OPTIONS, topic_level=False)))
    labels = (("cluster", "standalone"), ("namespace", "public/default"))
    assert found["pulsar_in_messages_total", labels] == "20"
    assert found["pulsar_subscriptions_count", labels] == "2"
    assert found["pulsar_out_messages_total", labels] == "14"
    assert found["pulsar_entry_size_le_128", labels] == "6"
    assert found["pulsar_msg_backlog", (*labels, ("remote_cluster", "local"))] == "10"
    assert not any("topic" in dict(keys) for _, keys in found)


def test_levels_can_be_left_out() -> None:
    text = printed(snapshot(topic()), MetricsOptions(version="9", managed_ledger_level=False))
    for absent in ("pulsar_consumer_", "pulsar_producer_", "pulsar_ml_AddEntry", "consumer_name"):
        assert absent not in text


def test_the_partition_can_have_a_label_of_its_own() -> None:
    taken = snapshot(topic(), topic("persistent://public/default/t"))
    found = samples(printed(taken, replace(OPTIONS, split_partition=True)))
    labels = [dict(keys) for name, keys in found if name == "pulsar_rate_in"]
    assert [(item["topic"], item["partition"]) for item in labels] == [
        ("persistent://public/default/t", "1"),
        ("persistent://public/default/t", "-1"),
    ]


def test_names_with_odd_characters_are_escaped() -> None:
    name = 'persistent://public/default/"a\\b\nc"'
    found = samples(printed(snapshot(topic(name))))
    assert any('\\"a\\\\b\\nc\\"' in dict(keys).get("topic", "") for _, keys in found)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
@pytest.mark.parametrize("end", ["\r", "\x0b", "\x1e", "\x85", "\u2028"])
def test_no_name_of_a_client_makes_a_line_of_its_own(accept: str, end: str) -> None:
    name = f"s{end}# TYPE pulsar_rate_in gauge and more"
    taken = snapshot(topic())
    taken.topics[0].subscriptions[0].name = name
    kind = content_type(accept)
    told = [line for piece in described(render(taken, OPTIONS), kind) for line in piece.split("\n")]
    printed_lines = printed(taken).split("\n")
    assert name in "".join(printed_lines)
    assert [line for line in told if line and line[0] != "#"] == [
        line for line in printed_lines if line and line[0] != "#"
    ]


def test_what_is_told_only_while_a_disk_fills_has_a_meaning() -> None:
    assert meaning_of("magnetar_storage_disk_seconds_until_full") is not None
    assert meaning_of("magnetar_storage_disk_of_nobody") is None


def test_own_gauges_are_printed() -> None:
    taken = snapshot()
    taken.extra = {"magnetar_longest_slice_seconds": 0.001}
    assert 'magnetar_longest_slice_seconds{cluster="standalone"} 0.001\n' in printed(taken)


def test_pieces_stay_small_with_many_topics() -> None:
    taken = snapshot(*(topic(f"persistent://public/default/t{index}") for index in range(500)))
    assert max(len(piece) for piece in render(taken, OPTIONS)) < 64 * 1024


@pytest.mark.parametrize("topic_level", [True, False])
def test_replication_is_left_out_where_the_settings_say_so(topic_level: bool) -> None:
    options = replace(OPTIONS, topic_level=topic_level)
    assert "pulsar_replication_backlog{" in printed(snapshot(topic()), options)
    assert "_replication_" not in printed(snapshot(topic()), replace(options, replication=False))


def test_shadow_topics_have_metrics_of_their_own() -> None:
    shadows = [
        ReplicationMetrics("persistent://public/default/a", backlog=3, lag_seconds=1.5, connected=True),
        ReplicationMetrics("persistent://public/default/b", backlog=4, lag_seconds=0.5),
    ]
    taken = snapshot(replace(topic(), replication=[], shadows=shadows))
    text = printed(taken)
    assert "_replication_" not in text
    of_topic = f'cluster="standalone",namespace="public/default",topic="{topic().name}"'
    of_a = f'{of_topic},shadow_topic="persistent://public/default/a"'
    assert f"magnetar_shadow_backlog{{{of_a}}} 3\n" in text
    assert f"magnetar_shadow_connected_count{{{of_a}}} 1\n" in text
    assert "magnetar_shadow_" not in printed(taken, replace(OPTIONS, replication=False))
    of_namespace = 'cluster="standalone",namespace="public/default"'
    text = printed(taken, replace(OPTIONS, topic_level=False))
    assert f"magnetar_shadow_backlog{{{of_namespace}}} 7\n" in text
    assert f"magnetar_shadow_lag_seconds{{{of_namespace}}} 1.5\n" in text
    assert f"magnetar_shadow_disconnected_count{{{of_namespace}}} 1\n" in text
