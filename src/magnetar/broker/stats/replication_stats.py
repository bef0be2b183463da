"""Figures of a topic's replication, by remote cluster (Pulsar's ``ReplicatorStats``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from magnetar.broker.publishing.producer import Producer
from magnetar.broker.stats.figures import ReplicationMetrics
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.entries import iso_time
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.replicating import AnyReplicating, Replicating

Json = dict[str, Any]


def replication_stats(topic: AnyTopic) -> Json:
    """Returns figures by the names of remote clusters, and by the full names of shadow topics.

    The result is empty if the topic is replicated neither to nor from other clusters. The figures of a shadow
    topic include its source.

    Replicators of non-persistent topics also have ``msgDropRate`` and ``msgDropCount``.
    """
    inbound = _inbound(topic)
    names = sorted(_replicators(topic).keys() | inbound.keys())
    return {name: _of_cluster(topic, name, inbound.get(name)) for name in names}


def _replicators(topic: AnyTopic) -> Mapping[str, AnyReplicating]:
    if isinstance(topic, NonPersistentTopic):
        return topic.replicators
    return (
        {**topic.replicators, **topic.shadow_replicators} if topic.shadow_replicators else topic.replicators
    )


def replication_metrics(topic: AnyTopic) -> list[ReplicationMetrics]:
    """Returns figures of the clusters that the topic is replicated to."""
    inbound = _inbound(topic) if topic.replicators else {}
    if isinstance(topic, NonPersistentTopic):
        return [
            replace(_sent(name, each, inbound.get(name)), unreplicated=each.dropped.messages)
            for name, each in topic.replicators.items()
        ]
    return [_stored(name, each, inbound.get(name)) for name, each in topic.replicators.items()]


def shadow_metrics(topic: Topic) -> list[ReplicationMetrics]:
    """Returns figures of the topic's shadow topics."""
    return [_stored(name, each, None) for name, each in topic.shadow_replicators.items()]


def _stored(name: str, replicator: Replicating, producer: Producer | None) -> ReplicationMetrics:
    return replace(
        _sent(name, replicator, producer),
        rate_expired=replicator.expired.per_second,
        backlog=replicator.cursor.backlog(),
        lag_seconds=replicator.lag_seconds(),
        unreplicated=replicator.expired.messages + replicator.skipped,
    )


def _sent(name: str, replicator: AnyReplicating, producer: Producer | None) -> ReplicationMetrics:
    return ReplicationMetrics(
        name,
        rate_in=producer.rate_in.per_second if producer is not None else 0.0,
        throughput_in=producer.rate_in.bytes_per_second if producer is not None else 0.0,
        rate_out=replicator.sent.per_second,
        throughput_out=replicator.sent.bytes_per_second,
        connected=replicator.connected,
        delay_seconds=replicator.delay_seconds(),
    )


def _inbound(topic: AnyTopic) -> dict[str, Producer]:
    """Returns the producers of other clusters' replicators, by cluster."""
    if not topic.remote_producers:
        return {}
    return {p.remote_cluster: p for p in topic.producers.values() if p.remote_cluster is not None}


def _of_cluster(topic: AnyTopic, name: str, inbound: Producer | None) -> Json:
    replicator: AnyReplicating | None = _replicators(topic).get(name)
    stats: Json = {
        "msgRateIn": inbound.rate_in.per_second if inbound is not None else 0.0,
        "msgInCount": inbound.rate_in.messages if inbound is not None else 0,
        "msgThroughputIn": inbound.rate_in.bytes_per_second if inbound is not None else 0.0,
        "bytesInCount": inbound.rate_in.bytes if inbound is not None else 0,
        "msgRateOut": replicator.sent.per_second if replicator is not None else 0.0,
        "msgOutCount": replicator.sent.messages if replicator is not None else 0,
        "msgThroughputOut": replicator.sent.bytes_per_second if replicator is not None else 0.0,
        "bytesOutCount": replicator.sent.bytes if replicator is not None else 0,
        **_not_sent(topic, name),
        "connected": replicator is not None and replicator.connected,
        "replicationDelayInSeconds": int(replicator.delay_seconds()) if replicator is not None else 0,
    }
    if inbound is not None:
        stats["inboundConnection"] = f"/{inbound.connection.address}"
        stats["inboundConnectedSince"] = iso_time(inbound.connected_ms)
    link = replicator.link() if replicator is not None else None
    if replicator is not None and link is not None:
        stats["outboundConnection"] = f"[L:/{link[0]} - R:{link[1]}]"
        stats["outboundConnectedSince"] = iso_time(replicator.connected_ms)
    if replicator is not None and replicator.hindrance:
        stats["magnetarHindrance"] = replicator.hindrance
    return stats


def _not_sent(topic: AnyTopic, name: str) -> Json:
    """Returns what was not sent to a cluster and, for non-persistent topics, what was dropped."""
    stats: Json = {"msgRateExpired": 0.0, "msgExpiredCount": 0, "replicationBacklog": 0}
    if isinstance(topic, NonPersistentTopic):
        passing = topic.replicators.get(name)
        stats["msgDropRate"] = passing.dropped.per_second if passing is not None else 0.0
        stats["msgDropCount"] = passing.dropped.messages if passing is not None else 0
    elif (replicator := topic.replicators.get(name) or topic.shadow_replicators.get(name)) is not None:
        stats["msgRateExpired"] = replicator.expired.per_second
        stats["msgExpiredCount"] = replicator.expired.messages
        stats["replicationBacklog"] = replicator.cursor.backlog()
    return stats
