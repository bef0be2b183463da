"""Reading a backlog to report its contents, and the reasons why a topic's bytes are kept."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import field

from magnetar.broker.dispatch.filters import FilterContext, FilterResult
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import backlog_bytes
from magnetar.io.interfaces import Io
from magnetar.io.slices import let_others
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import EntryRun, NoSuchLedger
from magnetar.managed_ledger.entry_reader import is_in_tiered_storage_only
from magnetar.managed_ledger.position import Position, format_position
from magnetar.protocol.hot_codec import batch_sizes

_ENTRIES = 100
"""The maximum number of entries in one read."""
_BYTES = 1 << 20


@dataclass(slots=True)
class BacklogScan:
    entries: int = 0
    messages: int = 0
    filtered_entries: dict[FilterResult, int] = field(default_factory=lambda: dict.fromkeys(FilterResult, 0))
    """The number of entries by the decision of the filters."""
    filtered_messages: dict[FilterResult, int] = field(default_factory=lambda: dict.fromkeys(FilterResult, 0))
    first: Position | None = None
    last: Position | None = None
    aborted: bool = False
    """Whether the scan ended at a limit, before the end of the topic."""

    def json(self) -> Mapping[str, object]:
        """Returns the scan as Pulsar's ``AnalyzeSubscriptionBacklogResult``."""
        entries, messages = self.filtered_entries, self.filtered_messages
        return {
            "entries": self.entries,
            "messages": self.messages,
            "filterRejectedEntries": entries[FilterResult.REJECT],
            "filterAcceptedEntries": entries[FilterResult.ACCEPT],
            "filterRescheduledEntries": entries[FilterResult.RESCHEDULE],
            "filterRejectedMessages": messages[FilterResult.REJECT],
            "filterAcceptedMessages": messages[FilterResult.ACCEPT],
            "filterRescheduledMessages": messages[FilterResult.RESCHEDULE],
            "aborted": self.aborted,
            **({"firstMessageId": format_position(self.first)} if self.first is not None else {}),
            **({"lastMessageId": format_position(self.last)} if self.last is not None else {}),
        }


async def scan(
    io: Io, subscription: Subscription, start: Position | None, *, max_entries: int, max_seconds: float
) -> BacklogScan:
    """Counts the unconsumed entries of a subscription, from the mark-delete position or from ``start`` on.

    With ``start``, entries before the mark-delete position count, too; individually acknowledged entries
    never count.

    :param max_entries: the number of entries after which the scan ends
    :param max_seconds: the time after which the scan ends, in seconds

    :raises LedgerError: an entry cannot be read
    """
    cursor, ledger = subscription.cursor, subscription.topic.managed_ledger
    found = BacklogScan()
    ends = io.clock.monotonic() + max_seconds
    position = cursor.first_unconsumed() if start is None else ledger.ledgers.first_at_or_after(start)
    last = ledger.last_confirmed
    while position <= last:
        if found.entries >= max_entries or io.clock.monotonic() >= ends:
            found.aborted = True
            break
        try:
            run = await ledger.reader.read(position, last, min(_ENTRIES, max_entries - found.entries), _BYTES)
        except NoSuchLedger:
            if position[0] in ledger.ledgers:
                raise
            # The ledger was trimmed meanwhile.
            position = ledger.ledgers.first_at_or_after(position)
            continue
        _count(found, subscription, run)
        position = ledger.ledgers.after((run.ledger_id, run.last_entry_id))
        await let_others(io.loop)
    return found


def _count(found: BacklogScan, subscription: Subscription, run: EntryRun) -> None:
    sizes = array("i", bytes(4 * run.count))
    batch_sizes(run.buffer, run.starts, run.ends, 0, run.count, sizes)
    state = subscription.cursor.state
    deleted = state.ranges.get(run.ledger_id)
    filters = subscription.filters
    topic = subscription.topic.full_name
    context = FilterContext(topic, subscription.name, subscription.properties, "", {})
    for index in range(run.count):
        position = (run.ledger_id, run.first_entry_id + index)
        if deleted is not None and deleted.contains(position[1]):
            continue
        left = state.batches.get(position)
        messages = sizes[index] if left is None else left.bit_count()
        result = FilterResult.ACCEPT
        if filters is not None:
            result = filters.ask(position, run.entry(index), context)
        found.entries += 1
        found.messages += messages
        found.filtered_entries[result] += 1
        found.filtered_messages[result] += messages
        found.first = found.first or position
        found.last = position


@dataclass(frozen=True, slots=True)
class TopicSpace:
    """The stored bytes of a topic, divided by the reason for which they are kept. The sizes are those of one
    copy of the entries. The size of a part of a ledger is an estimate. ``backlog``, ``retained``, ``open``
    and ``reclaimable`` together are the stored bytes.
    """

    stored: int
    backlog: int
    """The bytes after the mark-delete position of the durable subscription that is farthest behind."""
    retained: int
    """Bytes that all subscriptions have acknowledged but that are kept because of retention, or because their
    ledger also has entries that are needed."""
    open: int
    """Bytes that all subscriptions have acknowledged in the ledger that is being written; they are kept until
    this ledger is closed."""
    reclaimable: int
    """The bytes in ledgers that the next trimming deletes."""
    offloaded: int
    """The part of the stored bytes that only tiered storage has."""
    ledgers: int
    oldest_closed_ms: int
    """The time when the oldest ledger was closed, in milliseconds since 1970; 0 if no ledger is closed."""


def space_of(topic: Topic) -> TopicSpace:
    """Returns the present :class:`TopicSpace` of a topic, without reading from disk."""
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
        sum(summary.size for summary in ledgers if is_in_tiered_storage_only(summary)),
        len(ledgers),
        oldest.closed_ms if oldest is not None else 0,
    )
