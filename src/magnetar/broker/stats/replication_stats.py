"""Figures of a topic's replication, by the other cluster (``ReplicatorStats`` of Pulsar's)."""

from __future__ import annotations

from typing import Any

from magnetar.broker.publishing.producer import Producer
from magnetar.broker.stats.figures import ReplicationMetrics
from magnetar.broker.topics.entries import iso_time
from magnetar.broker.topics.persistent import Topic

Json = dict[str, Any]


def replication_stats(topic: Topic) -> Json:
    """By the name of the other cluster; empty: the topic is replicated neither here nor elsewhere."""
    inbound = _inbound(topic)
    names = sorted(topic.replicators.keys() | inbound.keys())
    return {name: _of_cluster(topic, name, inbound.get(name)) for name in names}


def replication_metrics(topic: Topic) -> list[ReplicationMetrics]:
    """Of the clusters that the topic is replicated to."""
    found = []
    inbound = _inbound(topic) if topic.replicators else {}
    for name, replicator in topic.replicators.items():
        producer = inbound.get(name)
        found.append(
            ReplicationMetrics(
                name,
                rate_in=producer.rate_in.per_second if producer is not None else 0.0,
                throughput_in=producer.rate_in.bytes_per_second if producer is not None else 0.0,
                rate_out=replicator.sent.per_second,
                throughput_out=replicator.sent.bytes_per_second,
                rate_expired=replicator.expired.per_second,
                backlog=replicator.cursor.backlog(),
                connected=replicator.connected,
                delay_seconds=replicator.delay_seconds(),
                lag_seconds=replicator.lag_seconds(),
                unreplicated=replicator.expired.messages + replicator.skipped,
            )
        )
    return found


def _inbound(topic: Topic) -> dict[str, Producer]:
    """The producers of other clusters' replicators, by the cluster."""
    if not topic.remote_producers:
        return {}
    return {p.remote_cluster: p for p in topic.producers.values() if p.remote_cluster is not None}


def _of_cluster(topic: Topic, name: str, inbound: Producer | None) -> Json:
    replicator = topic.replicators.get(name)
    stats: Json = {
        "msgRateIn": inbound.rate_in.per_second if inbound is not None else 0.0,
        "msgInCount": inbound.rate_in.messages if inbound is not None else 0,
        "msgThroughputIn": inbound.rate_in.bytes_per_second if inbound is not None else 0.0,
        "bytesInCount": inbound.rate_in.bytes if inbound is not None else 0,
        "msgRateOut": replicator.sent.per_second if replicator is not None else 0.0,
        "msgOutCount": replicator.sent.messages if replicator is not None else 0,
        "msgThroughputOut": replicator.sent.bytes_per_second if replicator is not None else 0.0,
        "bytesOutCount": replicator.sent.bytes if replicator is not None else 0,
        "msgRateExpired": replicator.expired.per_second if replicator is not None else 0.0,
        "msgExpiredCount": replicator.expired.messages if replicator is not None else 0,
        "replicationBacklog": replicator.cursor.backlog() if replicator is not None else 0,
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
