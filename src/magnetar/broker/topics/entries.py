"""What the broker occasionally reads in entries: publish times and batch sizes; and times as text."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

from magnetar.broker.consumers.consumer import has_broker_entry_metadata
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_codec import MARKED, batch_sizes, publish_time
from magnetar.protocol.metadata import broker_metadata_of, parse_entry


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


async def last_message(ledger: ManagedLedger) -> tuple[Position, int]:
    """Returns the position of the last message, and the number of messages in its batch: 0 if it is not a
    batch.

    Markers of brokers do not count. If no message is stored, or all are trimmed, the entry id is -1.

    :raises LedgerError: an entry cannot be read
    """
    position, sizes = ledger.max_read_position, array("i", (0,))
    while ledger.ledgers.exists(position):
        run = await ledger.reader.read_one(position)
        if not batch_sizes(run.buffer, run.starts, run.ends, 0, 1, sizes) & MARKED:
            return position, batch_size_or_zero(run.entry(0))
        position = ledger.ledgers.before(position)
    return (position[0], -1), 0


async def published_at(ledger: ManagedLedger, position: Position) -> int:
    """Returns when an entry was published, in milliseconds since 1970: the broker's time if there is one,
    else the producer's.

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


async def last_before(ledger: ManagedLedger, below: Position, time_ms: int) -> Position:
    """Finds the last entry behind ``below`` with a publish time before ``time_ms``, by binary search;
    ``below`` if there is none.

    Publish times are set by producers. If they do not ascend, the result may be any position that fits.

    :raises LedgerError: an entry cannot be read
    """
    ledgers, last = ledger.ledgers, ledger.max_read_position
    # Counted in every step: ledgers may be trimmed while an entry is read.
    while (count := ledgers.entries_after(below) - ledgers.entries_after(last)) > 0:
        position = ledgers.nth_after(below, (count + 1) // 2)
        if await published_at(ledger, position) < time_ms:
            below = position
        else:
            last = ledgers.before(position)
    return below


async def first_published_at(ledger: ManagedLedger, time_ms: int) -> Position:
    """Finds the first position with a publish time at or after ``time_ms``, like :func:`last_before`; the
    position behind the last entry if there is none."""
    start = ledger.ledgers.before(ledger.ledgers.first_at_or_after((0, 0)))
    return ledger.ledgers.after(await last_before(ledger, start, time_ms))
