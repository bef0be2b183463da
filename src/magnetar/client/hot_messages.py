"""The objects that the client creates for each arriving message, reduced to the parts that most programs use.
A message contains the numbers of its id; the id object is created when a program asks for the id.

This module is plain Python that is also compiled, with the C types in ``hot_messages.pxd``. Compiled code
takes a fifth of the time per message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from magnetar.client.message import Acknowledged, RawEntry
    from magnetar.protocol.hot_client_decode import MessageRun
    from magnetar.protocol.metadata import Entry
    from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


class PlainId:
    """The fields of a message id."""

    __slots__ = ("_batch_index", "_batch_size", "_entry_id", "_ledger_id", "_partition")

    _partition: int
    _ledger_id: int
    _entry_id: int
    _batch_index: int
    _batch_size: int

    def ledger_id(self) -> int:
        """The ledger id."""
        return self._ledger_id

    def entry_id(self) -> int:
        """The entry id; -1: no entry."""
        return self._entry_id

    def batch_index(self) -> int:
        """The index in the batch; -1: the message is not in a batch."""
        return self._batch_index

    def batch_size(self) -> int:
        """The number of messages in the batch; 0: unknown."""
        return self._batch_size

    def partition(self) -> int:
        """The index of the partition; -1: the topic is not partitioned."""
        return self._partition

    @property
    def position(self) -> tuple[int, int]:
        """(ledger id, entry id)."""
        return self._ledger_id, self._entry_id


Id = TypeVar("Id", bound=PlainId)


class PlainEntry:
    """An entry as it arrived, with its position in the topic."""

    __slots__ = (
        "_parsed",
        "ack_set",
        "batch_size",
        "data",
        "entry_id",
        "ledger_id",
        "partition",
        "redeliveries",
    )

    ledger_id: int
    entry_id: int
    partition: int
    redeliveries: int
    batch_size: int
    """Number of messages in the batch; 0: the entry is not a batch."""
    data: bytes
    """The stored bytes: magic number, checksum, metadata size, metadata, payload."""
    ack_set: tuple[int, ...]
    """Bit set in 64-bit words: a bit is set for each message of the batch to deliver; empty: all messages."""
    _parsed: Entry | None


AnyEntry = TypeVar("AnyEntry", bound=PlainEntry)


def entries_of(kind: type[AnyEntry], buffer: bytes, run: MessageRun, partition: int) -> list[AnyEntry]:
    """Returns the entries of consecutive MESSAGE frames in a buffer.

    :param kind: the class of the entries: a subclass of :class:`PlainEntry` without further fields
    """
    found = []
    ledger_ids, entry_ids, redeliveries = run.ledger_ids, run.entry_ids, run.redeliveries
    batch_sizes, starts, ends = run.batch_sizes, run.starts, run.ends
    for index in range(run.count):
        start, end = starts[index], ends[index]
        entry = kind.__new__(kind)
        entry.ledger_id = ledger_ids[index]
        entry.entry_id = entry_ids[index]
        entry.partition = partition
        entry.redeliveries = redeliveries[index]
        entry.batch_size = batch_sizes[index]
        entry.data = buffer[start:end]
        entry.ack_set = ()
        entry._parsed = None
        found.append(entry)
    return found


class PlainMessage:
    """A received message: its payload, metadata and position."""

    __slots__ = (
        "_batch_index",
        "_batch_size",
        "_content",
        "_entry",
        "_entry_id",
        "_id",
        "_ledger_id",
        "_own_metadata",
        "_partition",
        "_redeliveries",
        "_single_raw",
        "_topic",
    )

    _topic: str
    _partition: int
    _ledger_id: int
    _entry_id: int
    _batch_index: int
    _batch_size: int
    _id: PlainId | None
    """The message id; None until it is first used."""
    _entry: Entry | RawEntry
    _single_raw: bytes
    _own_metadata: MessageMetadata | SingleMessageMetadata | None
    _content: bytes
    _redeliveries: int

    def data(self) -> bytes:
        """The payload, decrypted and decompressed."""
        return self._content

    def topic_name(self) -> str:
        """The full name of the topic, with the partition."""
        return self._topic

    def redelivery_count(self) -> int:
        """Number of earlier deliveries, if the broker counts them; otherwise 0."""
        return self._redeliveries


AnyMessage = TypeVar("AnyMessage", bound=PlainMessage)


def plain_messages_of(
    kind: type[AnyMessage],
    topic: str,
    entries: deque[RawEntry],
    limit: int,
    content_at: Callable[[bytes], int],
) -> tuple[list[AnyMessage], int]:
    """Takes entries from the front of a queue, until an entry is not a single message or its metadata must be
    parsed; returns the messages, and the total size of the entries in bytes.

    :param kind: see :func:`messages_of`
    :param limit: maximum number of messages
    :param content_at: returns the offset of the payload in an entry; -1 if the metadata must be parsed or the
        entry is not a single message
    """
    found: list[AnyMessage] = []
    size = 0
    while len(found) < limit and entries:
        entry = entries[0]
        data = entry.data
        start = content_at(data) if entry.batch_size == 0 and entry._parsed is None else -1
        if start < 0:
            break
        entries.popleft()
        message = kind.__new__(kind)
        message._topic = topic
        message._partition = entry.partition
        message._ledger_id = entry.ledger_id
        message._entry_id = entry.entry_id
        message._batch_index = -1
        message._batch_size = 0
        message._id = None
        message._entry = entry
        message._single_raw = b""
        message._own_metadata = None
        message._content = data[start:]
        message._redeliveries = entry.redeliveries
        found.append(message)
        size += len(data)
    return found, size


def runs_of(
    taken: deque[Acknowledged], meant_by: Callable[[Acknowledged], PlainId]
) -> list[tuple[int, int, int, int, int]]:
    """Takes all acknowledged messages from a queue, to which other threads may append, and groups them into
    runs.

    :param meant_by: returns the message id of an element that is not a message
    :returns: for consecutive messages of a batch: ledger, entry, first and last index in the batch, and batch
        size; for consecutive whole entries of a ledger: ledger, first entry, -1, last entry, and a number
        without meaning
    """
    found: list[tuple[int, int, int, int, int]] = []
    ledger_id = entry_id = first = last = size = -1
    pop = taken.popleft
    for _ in range(len(taken)):
        each = pop()
        if isinstance(each, PlainMessage):
            message: PlainMessage = each
            index, batch_size = message._batch_index, message._batch_size
            ledger, entry = message._ledger_id, message._entry_id
        else:
            message_id = meant_by(each)
            index, batch_size = message_id._batch_index, message_id._batch_size
            ledger, entry = message_id._ledger_id, message_id._entry_id
        if size >= 0 and ledger == ledger_id:
            if index < 0:
                if first < 0 and entry == last + 1:
                    last += 1
                    continue
            elif first >= 0 and index == last + 1 and entry == entry_id:
                last = index
                continue
        if size >= 0:
            found.append((ledger_id, entry_id, first, last, size))
        ledger_id, entry_id, size = ledger, entry, batch_size
        first, last = index, entry_id if index < 0 else index
    if size >= 0:
        found.append((ledger_id, entry_id, first, last, size))
    return found


def messages_of(
    kind: type[AnyMessage],
    topic: str,
    entry: Entry,
    payload: bytes,
    places: Sequence[tuple[int, int, int]],
    ids: tuple[int, int, int],
    redeliveries: int,
    ack_set: tuple[int, ...],
) -> list[AnyMessage]:
    """Returns the messages of a batch that must be delivered.

    :param kind: the class of the messages: a subclass of :class:`PlainMessage` without further fields
    :param places: where each message is in the payload, as
        :func:`magnetar.protocol.hot_client_decode.split_places` returns it
    :param ids: partition, ledger and entry
    :param ack_set: bit set in 64-bit words of the messages to deliver; empty: all messages
    """
    partition, ledger_id, entry_id = ids
    found = []
    size = len(places)
    words = len(ack_set)
    for index in range(size):
        if words and (index >> 6 >= words or not ack_set[index >> 6] >> (index & 63) & 1):
            continue
        start, middle, end = places[index]
        message = kind.__new__(kind)
        message._topic = topic
        message._partition = partition
        message._ledger_id = ledger_id
        message._entry_id = entry_id
        message._batch_index = index
        message._batch_size = size
        message._id = None
        message._entry = entry
        message._single_raw = payload[start:middle]
        message._own_metadata = None
        message._content = payload[middle:end]
        message._redeliveries = redeliveries
        found.append(message)
    return found
