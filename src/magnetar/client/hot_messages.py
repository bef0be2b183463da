"""What the client makes for each message that arrives: the message and its id, without what few programs use.

A hot module: plain Python that is also compiled, with the C types in ``hot_messages.pxd``. Compiled, the two
objects of a message take a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from magnetar.client.message import RawEntry
    from magnetar.protocol.metadata import Entry
    from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


class PlainId:
    """The numbers of a message id."""

    __slots__ = ("_batch_index", "_batch_size", "_entry_id", "_ledger_id", "_partition")

    _partition: int
    _ledger_id: int
    _entry_id: int
    _batch_index: int
    _batch_size: int

    def ledger_id(self) -> int:
        """The ledger."""
        return self._ledger_id

    def entry_id(self) -> int:
        """The entry in its ledger; -1: no entry."""
        return self._entry_id

    def batch_index(self) -> int:
        """The index in the batch; -1: not in a batch."""
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


class PlainMessage:
    """The content of a message, and what belongs to it."""

    __slots__ = ("_content", "_entry", "_id", "_own_metadata", "_redeliveries", "_single_raw", "_topic")

    _topic: str
    _id: PlainId
    _entry: Entry | RawEntry
    _single_raw: bytes
    _own_metadata: MessageMetadata | SingleMessageMetadata | None
    _content: bytes
    _redeliveries: int

    def data(self) -> bytes:
        """The content, decrypted and uncompressed."""
        return self._content

    def topic_name(self) -> str:
        """The full name of the topic, with the partition."""
        return self._topic

    def redelivery_count(self) -> int:
        """Number of earlier deliveries, if the broker counts them."""
        return self._redeliveries


AnyMessage = TypeVar("AnyMessage", bound=PlainMessage)


def messages_of(
    kind: type[AnyMessage],
    id_kind: type[PlainId],
    topic: str,
    entry: Entry,
    payload: bytes,
    places: Sequence[tuple[int, int, int]],
    ids: tuple[int, int, int],
    redeliveries: int,
    ack_set: tuple[int, ...],
) -> list[AnyMessage]:
    """Returns the messages of a batch that must be delivered.

    :param kind: the class of messages, without fields of its own; that of ids alike
    :param places: as :func:`magnetar.protocol.hot_client_decode.split_places` returns them
    :param ids: partition, ledger and entry
    :param ack_set: 64-bit words with a bit for each message that must be delivered; empty: all
    """
    partition, ledger_id, entry_id = ids
    found = []
    size = len(places)
    words = len(ack_set)
    for index in range(size):
        if words and (index >> 6 >= words or not ack_set[index >> 6] >> (index & 63) & 1):
            continue
        start, middle, end = places[index]
        message_id = id_kind.__new__(id_kind)
        message_id._partition = partition
        message_id._ledger_id = ledger_id
        message_id._entry_id = entry_id
        message_id._batch_index = index
        message_id._batch_size = size
        message = kind.__new__(kind)
        message._topic = topic
        message._id = message_id
        message._entry = entry
        message._single_raw = payload[start:middle]
        message._own_metadata = None
        message._content = payload[middle:end]
        message._redeliveries = redeliveries
        found.append(message)
    return found
