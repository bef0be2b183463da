"""Reads stored entries of a topic through a broker, with a non-durable subscription.

Ranges only contain entries that existed when they were planned. If an entry of a range does not arrive, it is
a marker, which brokers do not deliver, or its ledger was deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from time import monotonic

from magnetar.admin_client import NotFound
from magnetar.client.blocking import Reader
from magnetar.client.exceptions import NotConnected, Timeout
from magnetar.client.message import RawEntry
from magnetar.client.message_id import MessageId
from magnetar.naming.topic_name import TopicName
from magnetar.spark.codec.rows import EntryPart
from magnetar.spark.connection import Connection
from magnetar.spark.errors import DataLoss, SparkSourceError
from magnetar.spark.ledgers import Range, layout_of

__all__ = ["entries_of", "partition_of"]

log = logging.getLogger(__name__)

_AT_ONCE = 500
_PATIENCE_MS = 2000
"""If no entry arrives for this time, in milliseconds, the reader checks whether any entry is left."""
_QUEUE = 50
"""Size of the receiver queue, in messages, as long as the size of messages is unknown."""
_QUEUE_BYTES = 4 << 20
_QUEUE_MESSAGES = 100_000


def partition_of(topic: str) -> int:
    """Returns the index of a partition; -1: the topic is not a partition."""
    return TopicName.parse(topic).partition_index


def entries_of(
    connection: Connection, topic: str, ranges: Sequence[Range], ahead: int = 0
) -> Generator[EntryPart]:
    """Yields the entries of consecutive ranges.

    :param ahead: number of messages requested ahead; 0: as many as fit into a few MiB
    :raises DataLoss: entries no longer exist, and ``failOnDataLoss`` is set; the error text names them
    :raises SparkSourceError: no entry arrived within ``pollTimeoutMs``
    :raises PulsarException: the broker refused the request
    """
    if not ranges:
        return
    options = dict(connection.options.reader)
    if ahead:
        options["receiver_queue_size"] = ahead
    fixed = "receiver_queue_size" in options
    options.setdefault("receiver_queue_size", _QUEUE)
    before = MessageId(partition_of(topic), ranges[0].ledger, ranges[0].first - 1)
    reader = connection.client.create_reader(topic, before, **options)
    try:
        yield from _Ranges(connection, topic, ranges).taken_from(_received(connection, reader, topic, fixed))
    finally:
        reader.close()


def _received(connection: Connection, reader: Reader, topic: str, fixed: bool) -> Iterator[RawEntry | None]:
    """Yields entries as they arrive, and None whenever the reader has read all entries so far and waits for
    more.

    :param fixed: whether the size of the receiver queue is fixed
    """
    messages = size = 0
    while True:
        end = monotonic() + connection.options.poll_timeout_ms / 1000
        entries: list[RawEntry] = []
        while not entries:
            try:
                entries = reader.read_entries(_AT_ONCE, _PATIENCE_MS)
            except Timeout:
                if monotonic() >= end:
                    waited = connection.options.poll_timeout_ms
                    raise SparkSourceError(
                        f"{topic}: no message arrived within {waited} ms (pollTimeoutMs)"
                    ) from None
                if _nothing_left(reader):
                    yield None
        yield from entries
        if not fixed:
            # Size the queue in bytes: as many messages as fit into a few MiB, by their average size so far.
            messages += sum(each.num_messages for each in entries)
            size += sum(len(each.data) for each in entries)
            reader.widen_queue(min(_QUEUE_MESSAGES, _QUEUE_BYTES * messages // max(1, size)))


def _nothing_left(reader: Reader) -> bool:
    try:
        return not reader.has_message_available()
    except (NotConnected, Timeout):
        # The reader is reconnecting, and continues.
        return False


class _Ranges:
    """Selects the entries that belong to the ranges, and detects missing entries."""

    def __init__(self, connection: Connection, topic: str, ranges: Sequence[Range]) -> None:
        self._connection = connection
        self._topic = topic
        self._ranges = ranges

    def taken_from(self, entries: Iterator[RawEntry | None]) -> Iterator[EntryPart]:
        waiting: RawEntry | None = None
        ended = False
        for each in self._ranges:
            expected, last = each.first, each.first + each.entries
            while expected < last and not ended:
                if waiting is None:
                    waiting = next(entries)
                    if waiting is None:
                        ended = True
                        break
                if (waiting.ledger_id, waiting.entry_id) >= (each.ledger, last):
                    break
                entry, waiting = waiting, None
                if (entry.ledger_id, entry.entry_id) < (each.ledger, expected):
                    continue
                if entry.entry_id > expected:
                    self._missing(each, expected, entry.entry_id)
                yield EntryPart(
                    entry.ledger_id,
                    entry.entry_id,
                    entry.data,
                    each.first_index if entry.entry_id == each.first else 0,
                    each.end_index if entry.entry_id == each.end else -1,
                    entry.num_messages,
                )
                expected = entry.entry_id + 1
            if expected < last:
                self._missing(each, expected, last)

    def _missing(self, where: Range, first: int, end: int) -> None:
        """Handles entries that did not arrive: if their ledger exists, they are markers; otherwise messages
        are lost.

        :param first: id of the first missing entry
        :param end: id after the last missing entry
        """
        try:
            if layout_of(self._connection.admin, self._topic).has(where.ledger):
                return
        except NotFound:
            log.warning("%s was deleted while it was read", self._topic)
        text = (
            f"{self._topic}: the messages {where.ledger}:{first} to {where.ledger}:{end - 1} were deleted "
            "before they were read"
        )
        if self._connection.options.fail_on_data_loss:
            raise DataLoss(f"{text}; to skip them, set failOnDataLoss=false")
        log.warning("%s; continuing after them", text)
