"""The use of disk space by device, store and topics, and an estimate of each topic's size one day from
now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.broker.service import BrokerService
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import EVICTION
from magnetar.io.slices import PAUSE_SECONDS, each
from magnetar.ledger.embedded.disk_guard import DiskGuard, DiskState
from magnetar.managed_ledger.orphans import OrphanedLedgers
from magnetar.server.embedded_stores import EmbeddedStores

Json = Mapping[str, object]

_DAY_SECONDS = 86_400


class StorageReport:
    """The storage report of a standalone broker, which has an embedded ledger store."""

    def __init__(
        self, broker: BrokerService, stores: EmbeddedStores, guard: DiskGuard, orphans: OrphanedLedgers
    ) -> None:
        self._broker = broker
        self._store = stores.ledgers
        self._journal = stores.journal
        self._guard = guard
        self._orphans = orphans

    def disk(self) -> dict[str, object]:
        """Returns statistics of the device; ``secondsUntilFull`` is None unless free space decreases."""
        use, gate = self._guard.use, self._broker.upkeep.storage_gate
        return {
            "totalBytes": use.total,
            "freeBytes": use.free,
            "usedShare": use.share,
            "state": self._guard.state.value,
            "secondsUntilFull": self._guard.seconds_until_full(),
            "refusedProducers": gate.refused,
        }

    def store(self) -> dict[str, object]:
        """Returns statistics of the ledger store's files; compaction can free ``reclaimableBytes``."""
        space = self._store.space()
        done = space.compactions
        return {
            "storedBytes": space.stored_bytes,
            "wantedBytes": space.wanted_bytes,
            "aheadBytes": space.ahead_bytes,
            "reclaimableBytes": max(0, space.stored_bytes - space.wanted_bytes - space.ahead_bytes),
            "segments": space.segments,
            "ledgers": space.ledgers,
            "compactions": {
                "minorSegments": done.minor,
                "majorSegments": done.major,
                "sortedSegments": done.sorted,
                "writtenBytes": done.written_bytes,
                "reclaimedBytes": done.reclaimed_bytes,
                "running": done.running,
            },
        }

    def orphaned(self) -> list[dict[str, object]]:
        """Returns the orphaned ledgers in the order of their detection; each is deleted at ``deletedMs``."""
        retention = self._orphans.retention_ms
        return [
            {
                "ledger": orphan.ledger_id,
                "owner": orphan.owner,
                "entries": orphan.entries,
                "bytes": orphan.bytes,
                "madeMs": orphan.made_ms,
                "foundMs": orphan.found_ms,
                "deletedMs": orphan.found_ms + retention,
            }
            for orphan in sorted(self._orphans.known, key=lambda orphan: (orphan.found_ms, orphan.ledger_id))
        ]

    def metrics(self) -> dict[str, float]:
        """Returns gauges by name; ``magnetar_storage_disk_seconds_until_full`` exists only while the free
        space decreases.
        """
        disk, space = self._guard, self._store.space()
        done = space.compactions
        found: dict[str, float] = {
            "disk_total_bytes": disk.use.total,
            "disk_free_bytes": disk.use.free,
            "disk_used_share": disk.use.share,
            "disk_state": list(DiskState).index(disk.state),
            "refused_producers": self._broker.upkeep.storage_gate.refused,
            "stored_bytes": space.stored_bytes,
            "wanted_bytes": space.wanted_bytes,
            "ahead_bytes": space.ahead_bytes,
            "segments": space.segments,
            "ledgers": space.ledgers,
            "minor_compaction_segments": done.minor,
            "major_compaction_segments": done.major,
            "sorted_segments": done.sorted,
            "compaction_written_bytes": done.written_bytes,
            "compaction_reclaimed_bytes": done.reclaimed_bytes,
            "compaction_running": int(done.running),
            "orphaned_ledgers": len(self._orphans.known),
            "snapshots": self._store.images.held,
            "metadata_journal_behind": int(self._journal.behind),
        }
        until_full = disk.seconds_until_full()
        if until_full is not None:
            found["disk_seconds_until_full"] = until_full
        return {f"magnetar_storage_{name}": value for name, value in found.items()}

    async def report(self, namespace: str | None = None) -> Json:
        """Returns the whole report: device, store, loaded topics (largest first), and the number of topics
        that are not loaded.

        :param namespace: the namespace to which the listed topics are limited; None: all topics
        :raises NamespaceNotFound: the namespace does not exist
        """
        rows: list[dict[str, Any]] = []

        def look(topic: AnyTopic) -> None:
            if isinstance(topic, Topic) and namespace in (None, str(topic.name.namespace_name)):
                rows.append(_row(topic))

        topics = list(self._broker.topics.loaded.values())
        await each(self._broker.io, "storage report", topics, look, pause=PAUSE_SECONDS)
        rows.sort(key=lambda row: (-row["storedBytes"], row["topic"]))
        return {
            "disk": self.disk(),
            "store": self.store(),
            "orphanedLedgers": self.orphaned(),
            "namespaces": _sums(rows),
            "topics": rows,
            "notLoaded": max(0, await self._persistent_topics(namespace) - len(rows)),
        }

    async def _persistent_topics(self, namespace: str | None) -> int:
        """Returns the number of persistent topics, loaded or not."""
        names = [namespace] if namespace is not None else await self._broker.policies.all_namespaces()
        return sum([len(await self._broker.topic_names(name, system=True)) for name in names])


def _row(topic: Topic) -> dict[str, object]:
    # Only a report needs it.
    from magnetar.broker.stats.backlog_scan import space_of

    space = space_of(topic)
    return {
        "topic": topic.full_name,
        "namespace": str(topic.name.namespace_name),
        "storedBytes": space.stored,
        "backlogBytes": space.backlog,
        "retainedBytes": space.retained,
        "openLedgerBytes": space.open,
        "reclaimableBytes": space.reclaimable,
        "offloadedBytes": space.offloaded,
        "ledgers": space.ledgers,
        "oldestClosedMs": space.oldest_closed_ms,
        "bytesInRate": topic.rate_in.bytes_per_second,
        "forecastBytes": forecast(topic, space.backlog, space.retained + space.open),
    }


def forecast(topic: Topic, backlog: int, retained: int) -> int:
    """Returns the estimated size of a topic one day from now, in bytes, if publishing and consuming continue
    at the rates of the last minute. The backlog changes by the difference between the publish rate and the
    lowest consume rate of a durable subscription, within the limits of expiry and quotas. Consumed messages
    remain for the retention time.

    :param backlog: the present backlog, in bytes
    :param retained: the bytes of acknowledged messages that are kept at present
    """
    policies, incoming = topic.policies, topic.rate_in.bytes_per_second
    durable = [s for s in topic.subscriptions.values() if s.durable]
    consumed = min((s.rate_out.bytes_per_second for s in durable), default=incoming)
    behind = backlog + (incoming - consumed) * _DAY_SECONDS
    if policies.message_ttl_seconds > 0:
        behind = min(behind, max(incoming * policies.message_ttl_seconds, 0.0))
    quota = policies.storage_quota
    if quota.policy == EVICTION and quota.limit_bytes >= 0:
        behind = min(behind, quota.limit_bytes)
    retention = policies.retention
    kept = 0.0
    if retention.minutes and retention.megabytes:
        kept = retained + min(incoming, consumed) * _DAY_SECONDS
        if retention.minutes > 0:
            kept = min(kept, max(retained, incoming * retention.minutes * 60))
        if retention.megabytes > 0:
            kept = min(kept, retention.megabytes << 20)
    return int(max(0.0, behind) + kept)


_SUMMED = (
    "storedBytes",
    "backlogBytes",
    "retainedBytes",
    "openLedgerBytes",
    "reclaimableBytes",
    "offloadedBytes",
    "ledgers",
    "bytesInRate",
    "forecastBytes",
)


def _sums(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row per namespace with the sums of its topics, largest first."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        total = found.setdefault(
            row["namespace"],
            {"namespace": row["namespace"], "topics": 0, **dict.fromkeys(_SUMMED, 0), "oldestClosedMs": 0},
        )
        total["topics"] += 1
        for name in _SUMMED:
            total[name] += row[name]
        oldest = row["oldestClosedMs"]
        if oldest and (not total["oldestClosedMs"] or oldest < total["oldestClosedMs"]):
            total["oldestClosedMs"] = oldest
    return sorted(found.values(), key=lambda total: (-total["storedBytes"], total["namespace"]))
