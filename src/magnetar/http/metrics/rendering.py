"""Renders ``/metrics``: Pulsar's names, labels and units, from a :class:`MetricsSnapshot`."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from magnetar.broker.stats.figure_table import figures_of
from magnetar.broker.stats.figures import (
    ConsumerMetrics,
    Histogram,
    MetricsSnapshot,
    SubscriptionMetrics,
    TopicMetrics,
)
from magnetar.http.metrics import exposition, sections
from magnetar.http.metrics.exposition import Number, family, labels_text
from magnetar.lazy_dataclass import dataclass

T = TypeVar("T")

_PARTITION = re.compile(r"-partition-(\d+)$")
_TOPICS_A_PIECE = 100
_LATENCY_SUFFIXES = ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000")
_SIZE_SUFFIXES = ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb")
_HistogramTable = Sequence[tuple[str, tuple[str, ...], Callable[[TopicMetrics], Histogram | None]]]
_HISTOGRAMS: _HistogramTable = (
    ("pulsar_storage_write_latency", _LATENCY_SUFFIXES, lambda t: t.write_latency_ms),
    ("pulsar_storage_ledger_write_latency", _LATENCY_SUFFIXES, lambda t: t.ledger_write_latency_ms),
    (
        "pulsar_compaction_latency",
        _LATENCY_SUFFIXES,
        lambda t: t.compaction.write_latency_ms if t.compaction is not None else None,
    ),
    ("pulsar_entry_size", _SIZE_SUFFIXES, lambda t: t.entry_size_bytes),
)
_MERGED = ("write_latency_ms", "ledger_write_latency_ms", "entry_size_bytes")
_SUMMED = (
    "producer_count",
    "consumer_count",
    "rate_in",
    "rate_out",
    "throughput_in",
    "throughput_out",
    "bytes_in",
    "messages_in",
    "storage_size",
    "storage_logical_size",
    "backlog",
    "backlog_bytes",
    "offloaded_bytes",
    "write_rate",
    "read_rate",
    "read_cache_misses_rate",
    "evictions_by_size",
    "evictions_by_time",
)


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Which levels of metrics, such as topics and consumers, ``/metrics`` contains; most fields are settings
    of Pulsar.
    """

    version: str
    topic_level: bool = True
    consumer_level: bool = False
    producer_level: bool = False
    managed_ledger_level: bool = True
    split_partition: bool = False
    replication: bool = True
    most_series: int = 0
    """Maximum number of topics and subscriptions with series of their own; 0: no limit. If there are more,
    the tenants with the most series lose some first, and a metric counts the topics that have no series.
    """


def render(snapshot: MetricsSnapshot, options: MetricsOptions) -> Iterator[str]:
    """Yields the text of all metrics in pieces of a few kilobytes, so that the caller can pause between
    them.
    """
    cluster = labels_text({"cluster": snapshot.cluster})
    version = labels_text({"cluster": snapshot.cluster, "version": options.version, "commit": "none"})
    yield from family("pulsar_version_info", "gauge", [(version, 1)])
    yield from _broker(snapshot, cluster)
    yield from _connections(snapshot)
    yield from _authentication_counts(snapshot)
    yield from _resource_groups(snapshot)
    yield from _load(snapshot)
    if snapshot.transaction_ends_pending is not None:
        yield from _transactions(snapshot, options)
    yield from _cache(snapshot, cluster)
    yield from sections.metadata_stores(snapshot.metadata, snapshot.cluster, snapshot.started_seconds)
    if options.managed_ledger_level:
        yield from _managed_ledgers(snapshot)
    yield from _topics_count(snapshot)
    if options.topic_level:
        yield from _topic_level(snapshot, options)
    else:
        yield from _namespace_level(snapshot)
        if options.replication:
            yield from sections.replicated_namespaces(snapshot.cluster, snapshot.topics)
    for name, value in snapshot.extra.items():
        yield from family(name, "gauge", [(cluster, value)])


def _broker(snapshot: MetricsSnapshot, cluster: str) -> Iterator[str]:
    for name, value in _broker_totals(snapshot.topics):
        yield from family(name, "gauge", [(cluster, value)])
    system, own = yield from _by_system(snapshot.topics)
    yield from family(
        "pulsar_broker_in_bytes_total",
        "gauge",
        [
            (f'{cluster},system_topic="false"', sum(t.bytes_in for t in own)),
            (f'{cluster},system_topic="true"', sum(t.bytes_in for t in system)),
        ],
    )
    yield from family(
        "pulsar_broker_out_bytes_total",
        "gauge",
        [
            (f'{cluster},system_subscription="false"', (yield from _bytes_out(own))),
            (f'{cluster},system_subscription="true"', (yield from _bytes_out(system))),
        ],
    )
    yield from sections.quota_checks(snapshot.quotas, cluster, snapshot.started_seconds)
    loads, lookups = snapshot.topic_load, snapshot.lookups
    pending = snapshot.topic_loads_pending
    yield from family("pulsar_broker_topic_load_pending_requests", "gauge", [(cluster, pending)])
    yield from family("pulsar_broker_lookup_pending_requests", "gauge", [(cluster, lookups.pending)])
    started = snapshot.started_seconds
    yield from exposition.counter("pulsar_broker_lookup_answers", cluster, lookups.answers, started)
    yield from exposition.counter("pulsar_broker_lookup_failures", cluster, lookups.failures, started)
    yield from exposition.counter("pulsar_broker_lookup_redirects", cluster, lookups.redirects, started)
    for name, timing in (
        ("pulsar_broker_lookup", lookups.timing),
        ("pulsar_broker_publish_latency", snapshot.publish_latency),
        ("pulsar_topic_load_times", loads),
    ):
        yield from exposition.summary(name, cluster, timing.quantiles, timing.count, timing.total_ms)
    if snapshot.snapshots is not None:
        yield from sections.subscription_snapshots(snapshot.snapshots, cluster, started)


def _by_system(
    topics: Sequence[TopicMetrics],
) -> Generator[str, None, tuple[list[TopicMetrics], list[TopicMetrics]]]:
    """Divides topics into system topics (their local names begin with ``__``) and other topics; yields empty
    pieces meanwhile, so that the caller can pause.
    """
    system: list[TopicMetrics] = []
    own: list[TopicMetrics] = []
    for topic in _with_pauses(topics):
        if topic is None:
            yield ""
        else:
            (system if topic.name.rpartition("/")[2].startswith("__") else own).append(topic)
    return system, own


def _bytes_out(topics: Sequence[TopicMetrics]) -> Generator[str, None, int]:
    total = 0
    for topic in _with_pauses(topics):
        if topic is None:
            yield ""
        else:
            total += sum(sub.bytes_out for sub in topic.subscriptions)
    return total


def _with_pauses(items: Iterable[T]) -> Iterator[T | None]:
    """Yields the items, and None at regular intervals: the caller then yields an empty piece."""
    for number, item in enumerate(items):
        if number % _TOPICS_A_PIECE == 0:
            yield None
        yield item


def _authentication_counts(snapshot: MetricsSnapshot) -> Iterator[str]:
    """Yields the metrics of authentication; nothing if authentication is disabled."""
    succeeded, failed = [], []
    for counts in snapshot.authentication_counts:
        labels = {
            "cluster": snapshot.cluster,
            "provider_name": counts.provider,
            "auth_method": counts.method,
        }
        succeeded.append((labels_text(labels), counts.succeeded))
        failed.append((labels_text({**labels, "reason": "refused"}), counts.failed))
    if snapshot.authentication_counts:
        yield from family("pulsar_authentication_success_total", "counter", succeeded)
        yield from family("pulsar_authentication_failures_total", "counter", failed)


def _resource_groups(snapshot: MetricsSnapshot) -> Iterator[str]:
    """Yields the metrics of resource groups; nothing if there are no resource groups."""
    if not snapshot.resource_groups:
        return
    rows, updates = [], {}
    for group in snapshot.resource_groups:
        labels = {"cluster": snapshot.cluster, "ResourceGroup": group.name}
        rows.append((labels_text({**labels, "MonitoringClass": group.kind}), group))
        updates[labels_text(labels)] = group.updates
    yield from family(
        "pulsar_resource_group_messages_used_total", "counter", ((labels, g.messages) for labels, g in rows)
    )
    yield from family(
        "pulsar_resource_group_bytes_used_total", "counter", ((labels, g.bytes) for labels, g in rows)
    )
    yield from family("pulsar_resource_group_updates_total", "counter", updates.items())


def _load(snapshot: MetricsSnapshot) -> Iterator[str]:
    """Yields the metrics of the load manager; nothing for a standalone broker."""
    load = snapshot.load
    if load is None:
        return
    own = {"cluster": snapshot.cluster, "broker": snapshot.broker, "metric": "loadBalancing"}
    for name, percent in sorted(load.usage.items()):
        yield from family(f"pulsar_lb_{name}_usage", "gauge", [(labels_text(own), percent)])
    for name, kind, count in (
        ("pulsar_lb_bundles_split_total", "bundlesSplit", load.split_bundles),
        ("pulsar_lb_unload_broker_total", "bundleUnloading", load.relieved_brokers),
        ("pulsar_lb_unload_bundle_total", "bundleUnloading", load.moved_bundles),
    ):
        yield from family(
            name, "gauge", [(labels_text({"cluster": snapshot.cluster, "metric": kind}), count)]
        )


def _transactions(snapshot: MetricsSnapshot, options: MetricsOptions) -> Iterator[str]:
    # Imported here: few brokers have transactions.
    from magnetar.http.metrics import transactions

    labels = {"cluster": snapshot.cluster}
    rows = [
        (labels_text(labels | {"coordinator_id": str(each.number)}), each) for each in snapshot.coordinators
    ]
    if rows:
        yield from _gauges("coordinator", rows)
        yield from transactions.latencies(rows)
    yield from transactions.ends(snapshot, topic_level=options.topic_level)
    yield from transactions.log_batches(snapshot)


def _connections(snapshot: MetricsSnapshot) -> Iterator[str]:
    labels = {"cluster": snapshot.cluster, "broker": snapshot.broker, "metric": "broker_connection"}
    yield from _gauges("connections", [(labels_text(labels), snapshot.connections)])


def _cache(snapshot: MetricsSnapshot, cluster: str) -> Iterator[str]:
    yield from _gauges("broker", [(cluster, snapshot)])
    yield from _gauges("cache", [(cluster, snapshot.cache)])


def _managed_ledgers(snapshot: MetricsSnapshot) -> Iterator[str]:
    rows = [
        (labels_text({"cluster": snapshot.cluster, "namespace": f"{item.namespace}/persistent"}), item)
        for item in snapshot.managed_ledgers
    ]
    yield from _gauges("managed ledger", rows)


def _gauges(kind: str, rows: Sequence[tuple[str, object]], *levels: str) -> Iterator[str]:
    """Yields the gauges of objects of one kind, such as topics.

    :param rows: the labels and the metrics of each object
    :param levels: the levels of topic metrics to include; without this argument, all levels
    """
    for row in figures_of(kind):
        if row.prometheus and (not levels or row.level in levels):
            yield from family(row.prometheus, "gauge", ((labels, row.of(each)) for labels, each in rows))


def _topics_count(snapshot: MetricsSnapshot) -> Iterator[str]:
    counts: dict[str, int] = {}
    for topic in _with_pauses(snapshot.topics):
        if topic is None:
            yield ""
        else:
            counts[topic.namespace] = counts.get(topic.namespace, 0) + 1
    samples = [
        (labels_text({"cluster": snapshot.cluster, "namespace": namespace}), count)
        for namespace, count in counts.items()
    ]
    yield from family("pulsar_topics_count", "gauge", samples)


def _topic_level(snapshot: MetricsSnapshot, options: MetricsOptions) -> Iterator[str]:
    rows: list[tuple[str, TopicMetrics]] = []
    topics, left_out = yield from bounded(snapshot.topics, options.most_series)
    if left_out:
        of = [labels_text({"cluster": snapshot.cluster, "tenant": tenant}) for tenant in left_out]
        counts = zip(of, left_out.values(), strict=True)
        yield from family("magnetar_metrics_topics_left_out", "gauge", counts)
    for topic in _with_pauses(topics):
        if topic is None:
            yield ""
        else:
            rows.append((_topic_labels(snapshot.cluster, topic, options), topic))
    yield from _gauges("topic", rows, "both", "topic")
    yield from _histograms(rows)
    yield from _of_some(rows, "compaction", lambda topic: topic.compaction)
    yield from _of_some(rows, "offload", lambda topic: topic.offload)
    yield from sections.offload_times(rows)
    yield from sections.offload_deletions(snapshot.offload_deletions, snapshot.cluster)
    yield from sections.evictions(rows)
    yield from _subscriptions(rows, options)
    yield from sections.waiting_topics(rows)
    if options.replication:
        yield from sections.replicated_topics(rows)
    if options.producer_level:
        yield from _producers(rows)


def bounded(
    topics: Sequence[TopicMetrics], most: int
) -> Generator[str, None, tuple[Sequence[TopicMetrics], dict[str, int]]]:
    """Returns the topics that get series of their own, and the number of the other topics by tenant; yields
    empty pieces meanwhile, so that the caller can pause.

    Each tenant has an equal share of the series. A tenant that needs less keeps all its series, and the rest
    of its share goes to other tenants.

    :param most: maximum number of topics and subscriptions together; 0: no limit
    """
    by_tenant: dict[str, list[TopicMetrics]] = {}
    sizes: dict[str, int] = {}
    for topic in _with_pauses(topics if most else ()):
        if topic is None:
            yield ""
        else:
            tenant = topic.namespace.partition("/")[0]
            by_tenant.setdefault(tenant, []).append(topic)
            sizes[tenant] = sizes.get(tenant, 0) + 1 + len(topic.subscriptions)
    if sum(sizes.values()) <= most:
        return topics, {}
    kept: list[TopicMetrics] = []
    left_out: dict[str, int] = {}
    room = most
    for number, tenant in enumerate(sorted(by_tenant, key=lambda tenant: (sizes[tenant], tenant))):
        share = room // (len(by_tenant) - number)
        used = count = 0
        for topic in _with_pauses(by_tenant[tenant]):
            if topic is None:
                yield ""
            elif used + 1 + len(topic.subscriptions) <= share:
                kept.append(topic)
                used += 1 + len(topic.subscriptions)
                count += 1
        room -= used
        if count < len(by_tenant[tenant]):
            left_out[tenant] = len(by_tenant[tenant]) - count
    return kept, left_out


def given_up(snapshot: MetricsSnapshot) -> Iterator[str]:
    """Frees the metrics of topics in small steps, because freeing many objects at once takes long; yields an
    empty piece after each step, so that the caller can pause.
    """
    while snapshot.topics:
        del snapshot.topics[-_TOPICS_A_PIECE:]
        yield ""


def _topic_labels(cluster: str, topic: TopicMetrics, options: MetricsOptions) -> str:
    labels = {"cluster": cluster, "namespace": topic.namespace, "topic": topic.name}
    if options.split_partition:
        found = _PARTITION.search(topic.name)
        if found:
            labels["topic"] = topic.name[: found.start()]
        labels["partition"] = found.group(1) if found else "-1"
    return labels_text(labels)


TopicRows = Sequence[tuple[str, TopicMetrics]]


def _histograms(rows: TopicRows) -> Iterator[str]:
    for name, suffixes, figure in _HISTOGRAMS:
        known: list[tuple[str, Histogram]] = []
        for row in _with_pauses(rows):
            if row is None:
                yield ""
            elif (found := figure(row[1])) is not None:
                known.append((row[0], found))
        if not known:
            continue
        overflow = "le_overflow" if name == "pulsar_entry_size" else "overflow"
        for index, suffix in enumerate((*(f"le_{text}" for text in suffixes), overflow)):
            samples = ((labels, found.counts[index]) for labels, found in known)
            yield from family(f"{name}_{suffix}", "gauge", samples)
        yield from family(f"{name}_count", "gauge", ((labels, sum(h.counts)) for labels, h in known))
        yield from family(f"{name}_sum", "gauge", ((labels, h.total) for labels, h in known))


def _of_some(rows: TopicRows, kind: str, of: Callable[[TopicMetrics], object | None]) -> Iterator[str]:
    """Yields metrics that only some topics have, such as the metrics of compaction and of tiered storage.

    :param of: returns the object with these metrics of a topic; None: the topic has no such metrics
    """
    known: list[tuple[str, object]] = []
    for row in _with_pauses(rows):
        if row is None:
            yield ""
        elif (found := of(row[1])) is not None:
            known.append((row[0], found))
    if known:
        yield from _gauges(kind, known)


def _subscriptions(rows: TopicRows, options: MetricsOptions) -> Iterator[str]:
    subs: list[tuple[str, SubscriptionMetrics]] = []
    for labels, topic in rows:
        yield ""
        subs += [(f"{labels},{labels_text({'subscription': sub.name})}", sub) for sub in topic.subscriptions]
    consumers = [
        (f"{labels},{_consumer_labels(consumer)}", consumer)
        for labels, sub in subs
        for consumer in sub.consumers
        if options.consumer_level
    ]
    # Consumers have metrics in common with their subscriptions.
    totals = {row.prometheus: row for row in figures_of("consumer") if row.level == "subscription"}
    for row in figures_of("subscription"):
        of_subs = ((labels, row.of(sub)) for labels, sub in subs)
        total = totals.get(row.prometheus)
        of_all = () if total is None else ((labels, total.of(each)) for labels, each in consumers)
        yield from family(row.prometheus, "gauge", chain(of_subs, of_all))
    for name in ("msg", "bytes"):
        throttled = (
            (f'{labels},reason="{whose.lower()}"', sub.held_back.get((whose, name == "msg"), 0))
            for labels, sub in subs
            for whose in ("Subscription", "Topic", "Broker")
        )
        yield from family(f"pulsar_subscription_dispatch_throttled_{name}_events", "gauge", throttled)
    ended = [(labels, sub.transactions) for labels, sub in subs if sub.transactions is not None]
    if ended:
        from magnetar.http.metrics import transactions

        yield from transactions.of_subscriptions(ended)
    if options.consumer_level:
        yield from _gauges("consumer", consumers, "")


def _consumer_labels(consumer: ConsumerMetrics) -> str:
    return labels_text({"consumer_name": consumer.name, "consumer_id": str(consumer.consumer_id)})


def _producers(rows: TopicRows) -> Iterator[str]:
    producers = [
        (
            f"{labels}," + labels_text({"producer_name": item.name, "producer_id": str(item.producer_id)}),
            item,
        )
        for labels, topic in rows
        for item in topic.producers
    ]
    yield from _gauges("producer", producers)


def _namespace_level(snapshot: MetricsSnapshot) -> Iterator[str]:
    rows = [
        (labels_text({"cluster": snapshot.cluster, "namespace": total.namespace}), total)
        for total in _namespace_totals(snapshot.topics)
    ]
    yield from _gauges("topic", rows, "both", "namespace")
    backlog = ((f'{labels},remote_cluster="local"', total.backlog) for labels, total in rows)
    yield from family("pulsar_msg_backlog", "gauge", backlog)
    yield from _histograms(rows)
    yield from sections.evictions(rows)


def _namespace_totals(topics: Sequence[TopicMetrics]) -> list[TopicMetrics]:
    """Returns the sums over the topics of each namespace, with the subscriptions of all these topics;
    namespaces are in the order of their first topics.
    """
    members: dict[str, list[TopicMetrics]] = {}
    for topic in topics:
        members.setdefault(topic.namespace, []).append(topic)
    return [_sum(namespace, of_one) for namespace, of_one in members.items()]


def _sum(namespace: str, topics: Sequence[TopicMetrics]) -> TopicMetrics:
    total = TopicMetrics(
        name=namespace,
        namespace=namespace,
        subscriptions=[sub for topic in topics for sub in topic.subscriptions],
    )
    for attribute in _SUMMED:
        setattr(total, attribute, sum(getattr(topic, attribute) for topic in topics))
    for attribute in _MERGED:
        setattr(total, attribute, _merge([getattr(topic, attribute) for topic in topics]))
    return total


def _merge(histograms: Sequence[Histogram | None]) -> Histogram | None:
    known = [histogram for histogram in histograms if histogram is not None]
    if not known:
        return None
    counts = [sum(column) for column in zip(*(histogram.counts for histogram in known), strict=True)]
    return Histogram(counts, sum(histogram.total for histogram in known))


def _broker_totals(topics: Sequence[TopicMetrics]) -> Iterator[tuple[str, Number]]:
    """Yields the metrics ``pulsar_broker_...``, which are sums over all topics."""
    yield "pulsar_broker_topics_count", len(topics)
    for row in figures_of("topic"):
        if row.sum:
            yield row.sum, sum(row.of(topic) for topic in topics)
