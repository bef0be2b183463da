"""The snapshot of a broker's metrics for ``/metrics``, taken on request."""

from __future__ import annotations

from magnetar.broker.flow.rates import Distribution, LookupEnd
from magnetar.broker.service import BrokerService
from magnetar.broker.stats.figures import (
    CacheMetrics,
    ConnectionMetrics,
    CoordinatorMetrics,
    DurationMetrics,
    GroupMetrics,
    LoadMetrics,
    LogBatchMetrics,
    LookupMetrics,
    ManagedLedgerMetrics,
    MetricsSnapshot,
    OffloadDeletionMetrics,
    QuotaMetrics,
    SchemaMetrics,
    SnapshotMetrics,
    SubscriptionMetrics,
    TimingMetrics,
    TopicMetrics,
    TransactionEndMetrics,
)
from magnetar.broker.stats.taken import of_non_persistent_topic, of_subscription, of_topic
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import CHECK_BOUNDS, Evictions
from magnetar.io.slices import each
from magnetar.managed_ledger.measures import Timings
from magnetar.naming.topic_name import TopicName

_MOST_IN_A_SLICE = 50
_QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)


def _timing(timings: Timings) -> TimingMetrics:
    return TimingMetrics(timings.count, timings.total_ms, timings.quantiles(_QUANTILES))


def _with_quotas(figures: TopicMetrics, known: Evictions) -> TopicMetrics:
    figures.backlog_age_seconds = known.age_seconds
    figures.evictions_by_size = known.by_size
    figures.evictions_by_time = known.by_time
    return figures


def _add_managed_ledger(topic: Topic, figures: TopicMetrics, found: dict[str, ManagedLedgerMetrics]) -> None:
    metrics = found.get(figures.namespace)
    if metrics is None:
        metrics = found[figures.namespace] = ManagedLedgerMetrics(figures.namespace)
    ledger = topic.managed_ledger
    metrics.add_entry_rate += figures.write_rate
    metrics.add_entry_bytes_rate += figures.throughput_in
    metrics.add_entry_succeeded += ledger.entries_added
    metrics.add_entry_errors += ledger.append_errors
    metrics.read_entries_rate += figures.read_rate
    metrics.read_entries_bytes_rate += topic.reads.bytes_per_second
    metrics.read_entries_succeeded += ledger.reader.entries_read
    metrics.read_entries_errors += ledger.reader.read_errors
    metrics.read_cache_misses_rate += figures.read_cache_misses_rate
    metrics.mark_delete_rate += topic.mark_deletes.per_second
    metrics.backlog += figures.backlog
    metrics.stored_bytes += figures.storage_size


def _cache(broker: BrokerService) -> CacheMetrics:
    cache = broker.managed_ledgers.cache
    return CacheMetrics(
        used_bytes=cache.used_bytes,
        entries=cache.entries,
        inserted_total=cache.inserted_entries,
        evicted_total=cache.evicted_entries,
        evictions=cache.evictions,
        hits_rate=broker.upkeep.housekeeping.cache_hits.per_second,
        hits_throughput=broker.upkeep.housekeeping.cache_hits.bytes_per_second,
        misses_rate=broker.upkeep.housekeeping.cache_misses.per_second,
        misses_throughput=broker.upkeep.housekeeping.cache_misses.bytes_per_second,
        hits=cache.hits,
        misses=cache.misses,
        hit_bytes=cache.hit_bytes,
        missed_bytes=cache.missed_bytes,
    )


def _lookups(broker: BrokerService) -> LookupMetrics:
    known = broker.lookups.times
    return LookupMetrics(
        answers=known.count(LookupEnd.BROKER),
        failures=known.count(LookupEnd.FAILURE),
        redirects=known.count(LookupEnd.REDIRECT),
        pending=broker.lookups.pending,
        timing=_timing(known.answered),
        durations={end.value: _durations(each) for end, each in known.by_end.items()},
    )


def _schemas(broker: BrokerService) -> list[SchemaMetrics]:
    return [
        SchemaMetrics(
            namespace,
            [(kind.value, good, _durations(each)) for (kind, good), each in known.times.items()],
            known.compatible,
            known.incompatible,
        )
        for namespace, known in broker.schema_operations.known.items()
    ]


def _durations(known: Distribution) -> DurationMetrics:
    return DurationMetrics(known.bounds, tuple(known.counts), known.total)


def _load(broker: BrokerService) -> LoadMetrics | None:
    if broker.load is None:
        return None
    names = {"bandwidthIn": "bandwidth_in", "bandwidthOut": "bandwidth_out"}
    usage = broker.load.reporter.latest.resources.named()
    done = broker.load.manager.done
    return LoadMetrics(
        {names.get(name, name): used.percent for name, used in usage.items()},
        done.relieved_brokers,
        done.moved_bundles,
        done.splits,
    )


def _coordinators(broker: BrokerService) -> list[CoordinatorMetrics]:
    if broker.coordinators is None:
        return []
    return [
        CoordinatorMetrics(
            number,
            len(each.transactions),
            each.counts.begun,
            each.counts.committed,
            each.counts.aborted,
            each.counts.timed_out,
            each.log.records_written,
            tuple(each.counts.latency.counts),
        )
        for number, each in sorted(broker.coordinators.loaded.items())
    ]


def _transaction_ends(broker: BrokerService) -> list[TransactionEndMetrics]:
    if broker.coordinators is None:
        return []
    known = broker.coordinators.participants.figures.topics
    return [
        TransactionEndMetrics(topic, commit, ends.failed, _timing(ends.took))
        for topic, both in known.items()
        for commit, ends in zip((False, True), both, strict=True)
    ]


def _log_batches(broker: BrokerService) -> list[LogBatchMetrics]:
    if broker.coordinators is None:
        return []
    kinds = {"tc": broker.coordinators.batches, "pending_ack_store": broker.topics.pending_ack_batches}
    return [
        LogBatchMetrics(
            kind,
            {why.value: count for why, count in known.flushes.items()},
            [
                (name, each.bounds, tuple(each.counts), each.total)
                for name, each in (
                    ("batch_records", known.records),
                    ("batch_size_bytes", known.size),
                    ("batch_oldest_record_delay_seconds", known.delay),
                )
            ],
        )
        for kind, known in kinds.items()
        if known is not None
    ]


def _snapshots(broker: BrokerService) -> SnapshotMetrics | None:
    if broker.replication is None:
        return None
    known = broker.replication.snapshots
    return SnapshotMetrics(known.pending, known.timed_out, _timing(known.taken))


def _slice_name(kind: str) -> str:
    return f"magnetar_longest_slice_{kind.replace(' ', '_')}_seconds"


async def _many_subscriptions(broker: BrokerService) -> dict[AnyTopic, list[SubscriptionMetrics]]:
    """Returns, for each topic with too many subscriptions for one slice of background work, the metrics of
    its subscriptions, taken in several slices."""
    found: dict[AnyTopic, list[SubscriptionMetrics]] = {}
    for topic in list(broker.topics.loaded.values()):
        if isinstance(topic, NonPersistentTopic) or len(topic.subscriptions) <= _MOST_IN_A_SLICE:
            continue
        figures = found[topic] = []

        def take(subscription: Subscription, figures: list[SubscriptionMetrics] = figures) -> None:
            figures.append(of_subscription(subscription))

        await each(broker.io, "metrics", list(topic.subscriptions.values()), take)
    return found


def _offload_deletions(broker: BrokerService) -> list[OffloadDeletionMetrics]:
    found = []
    for name, counts in broker.managed_ledgers.offload_deletions().items():
        topic = TopicName.from_path(name)
        metrics = OffloadDeletionMetrics(
            str(topic.namespace_name), str(topic), counts.succeeded, counts.failed
        )
        found.append(metrics)
    return found


async def take_snapshot(broker: BrokerService) -> MetricsSnapshot:
    """Takes all metrics of a broker. If the topics do not fit into one slice of background work, the metrics
    of different topics are of different moments."""
    topics: list[TopicMetrics] = []
    ledgers: dict[str, ManagedLedgerMetrics] = {}

    taken = await _many_subscriptions(broker)

    def take(topic: AnyTopic) -> None:
        if isinstance(topic, NonPersistentTopic):
            topics.append(of_non_persistent_topic(topic))
        else:
            figures = _with_quotas(of_topic(topic, taken.pop(topic, None)), broker.upkeep.quotas.of(topic))
            topics.append(figures)
            _add_managed_ledger(topic, figures, ledgers)

    await each(broker.io, "metrics", list(broker.topics.loaded.values()), take)
    connections = broker.connections
    slices = broker.upkeep.housekeeping.longest_slices()
    delay = slices.pop("loop", 0.0)
    return MetricsSnapshot(
        cluster=broker.settings.cluster,
        broker=broker.settings.broker_id.rsplit(":", 1)[0],
        started_seconds=broker.started_ms / 1000,
        topics=topics,
        managed_ledgers=list(ledgers.values()),
        managed_ledger_count=len(broker.managed_ledgers.opened),
        cache=_cache(broker),
        connections=ConnectionMetrics(
            active=len(connections.all),
            created=connections.created,
            closed=connections.closed_count,
            handshakes_succeeded=connections.handshakes,
            handshakes_failed=connections.refused + connections.unauthenticated,
        ),
        lookups=_lookups(broker),
        schemas=_schemas(broker),
        publish_latency=_timing(broker.topics.publish_latency),
        topic_load=_timing(broker.topics.topic_loads),
        topic_loads_pending=broker.topics.loading_count,
        quotas=QuotaMetrics(
            broker.upkeep.quotas.all.by_size,
            broker.upkeep.quotas.all.by_time,
            CHECK_BOUNDS,
            tuple(broker.upkeep.quotas.checks.counts),
            broker.upkeep.quotas.checks.total,
        ),
        resource_groups=[
            GroupMetrics(group.name, kind, used.messages_used, used.bytes_used, group.updates)
            for group in broker.topics.shared_limits.groups.known.values()
            for kind, used in (("Publish", group.publish), ("Dispatch", group.dispatch))
        ],
        load=_load(broker),
        coordinators=_coordinators(broker),
        transaction_ends=_transaction_ends(broker),
        transaction_ends_pending=(
            None if broker.coordinators is None else broker.coordinators.participants.figures.pending
        ),
        log_batches=_log_batches(broker),
        snapshots=_snapshots(broker),
        offload_deletions=_offload_deletions(broker),
        authentication_counts=tuple(broker.authenticator.authentication_counts),
        extra={
            "magnetar_publish_buffer_bytes": broker.limits.publish_buffer.used,
            "magnetar_partial_frame_bytes": broker.limits.partial_frames.used,
            "magnetar_pending_publishes": sum(c.pending_publishes for c in connections.all),
            "magnetar_refused_partitions": broker.topics.creation.refused_partitions,
            "magnetar_refused_topics": broker.topics.creation.refused_topics,
            "magnetar_refused_subscriptions": broker.topics.shared_limits.refused.subscriptions,
            "magnetar_unsent_bytes": broker.limits.unsent.used,
            "magnetar_loop_delay_seconds": delay,
            "magnetar_longest_slice_seconds": max((0.0, *slices.values())),
            "magnetar_longest_slice_processor_seconds": broker.io.slices.longest_processor(),
            **{_slice_name(kind): seconds for kind, seconds in slices.items()},
        },
    )
