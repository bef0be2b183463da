"""Reading single entries for the broker itself: publish times, batch sizes, and markers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import has_broker_entry_metadata
from magnetar.broker.publishing.producer import Publish
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_codec import MARKED, batch_sizes, publish_time
from magnetar.protocol.metadata import broker_metadata_of, parse_entry

if TYPE_CHECKING:
    from magnetar.broker.replication.subscriptions.topic import ReplicatedSubscriptions
    from magnetar.broker.transactions.buffer import TransactionBuffer


_NOWHERE = (-1, -1)


def iso_time(wall_ms: int) -> str:
    """Returns a time in ISO 8601 with milliseconds, UTC."""
    return (
        datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def batch_size_or_zero(entry: bytes) -> int:
    """Returns the number of messages in a batch; 0 for a single message, or for unreadable metadata."""
    try:
        metadata = parse_entry(entry).metadata
    except EntryError:
        # The sizes were checked when the entry was published, but not what the producer wrote between them.
        return 0
    return max(0, metadata.num_messages_in_batch) if metadata.HasField("num_messages_in_batch") else 0


async def last_message(
    ledger: ManagedLedger, transactions: TransactionBuffer | None = None
) -> tuple[Position, int]:
    """Returns the position of the last message and the number of messages in its batch; 0 if the message is
    not in a batch.

    Markers, and messages of open or aborted transactions, are skipped. If no message is stored, or all are
    trimmed, the entry id is -1.

    :raises LedgerError: an entry cannot be read
    """
    position, sizes = ledger.max_read_position, array("i", (0,))
    while ledger.ledgers.exists(position):
        run = await ledger.reader.read_one(position)
        if not batch_sizes(run.buffer, run.starts, run.ends, 0, 1, sizes) & MARKED and not (
            transactions is not None and transactions.hides(run.entry(0))
        ):
            return position, batch_size_or_zero(run.entry(0))
        position = ledger.ledgers.before(position)
    return (position[0], -1), 0


async def published_at(ledger: ManagedLedger, position: Position) -> int:
    """Returns the publish time of an entry, in milliseconds since 1970: the broker's time if the entry has
    it, otherwise the producer's time.

    :raises LedgerError: the entry cannot be read
    """
    run = await ledger.reader.read_one(position)
    if has_broker_entry_metadata(run, 0, 0):
        try:
            mark = broker_metadata_of(run.entry(0))
        except EntryError:
            # There is no broker entry metadata; the producer's time applies.
            mark = None
        if mark is not None and mark.HasField("broker_timestamp"):
            return mark.broker_timestamp
    return publish_time(run.buffer, run.starts[0], run.ends[0])


async def last_before(ledger: ManagedLedger, below: Position, last: Position, time_ms: int) -> Position:
    """Returns the last position in (below, last] with a publish time before ``time_ms``; ``below`` if no
    entry in this range is that old.

    Producers set publish times. If the times do not ascend, the binary search may return any position whose
    time is before ``time_ms`` and whose successor's time is not.

    :raises LedgerError: an entry cannot be read
    """
    ledgers = ledger.ledgers
    # Counted in every step: ledgers may be trimmed while an entry is read.
    while (count := ledgers.entries_after(below) - ledgers.entries_after(last)) > 0:
        position = ledgers.nth_after(below, (count + 1) // 2)
        if await published_at(ledger, position) < time_ms:
            below = position
        else:
            last = ledgers.before(position)
    return below


async def first_published_at(ledger: ManagedLedger, time_ms: int) -> Position:
    """Returns the first position with a publish time at or after ``time_ms``, like :func:`last_before`; the
    position after the last entry if all entries are older."""
    start = ledger.ledgers.before(ledger.ledgers.first_at_or_after((0, 0)))
    return ledger.ledgers.after(await last_before(ledger, start, ledger.last_confirmed, time_ms))


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker: an entry that brokers write for each other, and that consumers never get."""

    kind: int
    """The field ``marker_type`` of the entry's metadata."""
    payload: bytes
    origin: str | None
    """The cluster that the marker came from; None: this broker wrote it."""


class TopicMarkers:
    """The markers of one topic.

    When a marker is durable, it is consumed for each subscription that has consumed everything before it, and
    the replication of subscriptions (in a higher layer) is notified.
    """

    def __init__(self, ledgers: LedgerList) -> None:
        self._ledgers = ledgers
        self._first = self._last = _NOWHERE
        """The first of the consecutive markers with which the topic ends; ``_last``: the last of them."""
        self.on_their_way: dict[Publish, Marker] = {}
        """Markers that were passed to the ledger and are not durable yet."""
        self.reader: ReplicatedSubscriptions | None = None
        """The receiver of markers; None: the topic is in one cluster only."""

    def durable(self, appends: Sequence[Append], subscriptions: Iterable[Subscription]) -> None:
        """Handles the markers among the entries that became durable."""
        for append in appends:
            marker = self.on_their_way.pop(append.context, None)
            if marker is None:
                continue
            position = (append.ledger_id, append.first_entry_id)
            if self._ledgers.before(position) != self._last:
                self._first = position
            self._last = position
            for subscription in subscriptions:
                self.pass_over(subscription)
            if self.reader is not None:
                self.reader.stored(marker, position)

    def pass_over(self, subscription: Subscription) -> None:
        """Consumes the markers at the end of the topic for a subscription that has consumed everything before
        them."""
        subscription.pass_markers(self._first, self._last)

    def failed(self, appends: Sequence[Append]) -> None:
        """Forgets markers that will not be stored."""
        for append in appends:
            self.on_their_way.pop(append.context, None)

    def subscriptions_changed(self) -> None:
        if self.reader is not None:
            self.reader.subscriptions_changed()
