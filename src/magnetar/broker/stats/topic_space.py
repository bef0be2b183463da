"""The bytes that a topic takes, by what they are there for."""

from __future__ import annotations

from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import backlog_bytes
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TopicSpace:
    """Bytes of entries, one copy; estimates inside a ledger. The four parts make up what is stored."""

    stored: int
    backlog: int
    """Behind the durable subscription that is farthest behind."""
    retained: int
    """Acknowledged by all, and kept: by retention, or because it shares a ledger with what is needed."""
    open: int
    """Acknowledged by all, in the ledger that is written: it stays until that one is closed."""
    reclaimable: int
    """In ledgers that go when they are looked at next."""
    ledgers: int
    oldest_closed_ms: int
    """When the oldest ledger was closed, ms since 1970; 0 while there is only the open one."""


def space_of(topic: Topic) -> TopicSpace:
    """What a topic takes now; reads nothing."""
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
