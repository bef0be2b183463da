"""What the broker reads out of entries now and then: publish times, batch sizes; and times as text."""

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
    """ISO 8601 with milliseconds, UTC."""
    return (
        datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def batch_size_or_zero(entry: bytes) -> int:
    """How many messages a batch has; 0 for a message that is no batch, or has no sensible metadata."""
    try:
        metadata = parse_entry(entry).metadata
    except EntryError:
        # Its sizes were checked when it was published; what its producer wrote between them was not.
        return 0
    return max(0, metadata.num_messages_in_batch) if metadata.HasField("num_messages_in_batch") else 0


async def last_message(ledger: ManagedLedger) -> tuple[Position, int]:
    """The position of the last message, and how many its batch has: 0 for what is no batch.

    Markers of brokers are no messages. With no message stored, or everything trimmed, the entry id is -1.

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
    """When an entry was published, in ms since 1970, as a broker wrote in front of it, or its producer says.

    :raises LedgerError: it cannot be read
    """
    run = await ledger.reader.read_one(position)
    if has_broker_entry_metadata(run, 0, 0):
        try:
            mark = broker_metadata_of(run.entry(0))
        except EntryError:
            # No broker wrote that; its producer's time counts.
            mark = None
        if mark is not None and mark.HasField("broker_timestamp"):
            return mark.broker_timestamp
    return publish_time(run.buffer, run.starts[0], run.ends[0])


async def last_before(ledger: ManagedLedger, below: Position, time_ms: int) -> Position:
    """The last entry behind ``below`` with a publish time before ``time_ms``, by halving; ``below`` without
    one.

    Publish times are the producers': where they do not ascend, any of the fitting positions may be found.

    :raises LedgerError: an entry cannot be read
    """
    ledgers, last = ledger.ledgers, ledger.max_read_position
    # Counted anew each time: while an entry is read, ledgers before it may be trimmed.
    while (count := ledgers.entries_after(below) - ledgers.entries_after(last)) > 0:
        position = ledgers.nth_after(below, (count + 1) // 2)
        if await published_at(ledger, position) < time_ms:
            below = position
        else:
            last = ledgers.before(position)
    return below


async def first_published_at(ledger: ManagedLedger, time_ms: int) -> Position:
    """The first position with a publish time at or after ``time_ms``, as :func:`last_before` finds it; behind
    the last when there is none."""
    start = ledger.ledgers.before(ledger.ledgers.first_at_or_after((0, 0)))
    return ledger.ledgers.after(await last_before(ledger, start, time_ms))
