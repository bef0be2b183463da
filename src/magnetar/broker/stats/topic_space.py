"""The bytes of a topic, by the reason for which they are kept."""

from __future__ import annotations

from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import backlog_bytes
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TopicSpace:
    """Bytes of entries, one copy; estimates inside a ledger. The four parts make up the stored bytes."""

    stored: int
    backlog: int
    """Behind the mark-delete position of the durable subscription that is farthest behind."""
    retained: int
    """Acknowledged by all subscriptions, and kept: by retention, or because they share a ledger with needed
    entries."""
    open: int
    """Acknowledged by all subscriptions, in the ledger that is being written: kept until it is closed."""
    reclaimable: int
    """In ledgers that the next trimming deletes."""
    ledgers: int
    oldest_closed_ms: int
    """When the oldest ledger was closed, in milliseconds since 1970; 0 if there is only the open one."""


def space_of(topic: Topic) -> TopicSpace:
    """Returns what a topic takes now; reads nothing from disk."""
    ledgers = topic.managed_ledger.ledgers
    stored = ledgers.total_size()
    reclaimable = sum(summary.size for summary in topic.managed_ledger.trimmer.reclaimable())
    backlog = min(backlog_bytes(topic), stored - reclaimable)
    oldest = next(iter(ledgers), None)
    consumed = stored - reclaimable - backlog
    current = topic.managed_ledger.current_ledger
    writing = 0 if current is None else min(consumed, current.size)
    return TopicSpace(
        stored,
        backlog,
        consumed - writing,
        writing,
        reclaimable,
        len(ledgers),
        oldest.closed_ms if oldest is not None else 0,
    )
