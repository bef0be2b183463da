"""Message ids: ledger, entry, index in the batch, partition."""

from __future__ import annotations

from functools import total_ordering
from typing import ClassVar

from google.protobuf.message import DecodeError

from magnetar.client.exceptions import InvalidMessage
from magnetar.client.hot_messages import PlainId
from magnetar.protocol.frames import signed, unsigned
from magnetar.protocol.hot_client_decode import decode_message_id
from magnetar.protocol.hot_client_encode import encode_message_id
from magnetar.protocol.pulsar_api_pb2 import MessageIdData

_I64_MAX = (1 << 63) - 1


@total_ordering
class MessageId(PlainId):
    """A message id: immutable, hashable, ordered by ledger, entry, batch index and partition.

    Numbers are signed: -1 is 2^64-1 in the protocol. ``MessageId.earliest`` is before the first message of
    any topic, ``MessageId.latest`` after the last.
    """

    __slots__ = ()

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __init__(
        self,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
    ) -> None:
        """:param partition: the index of the partition; -1: the topic is not partitioned

        :param ledger_id: the id of the ledger
        :param entry_id: the id of the entry in the ledger; -1: no entry
        :param batch_index: the index in the batch; -1: the message is not in a batch
        :param batch_size: the number of messages in the batch; 0: unknown
        """
        self._partition = partition
        self._ledger_id = ledger_id
        self._entry_id = entry_id
        self._batch_index = batch_index
        self._batch_size = batch_size

    def __reduce__(self) -> tuple[object, ...]:
        numbers = self._partition, self._ledger_id, self._entry_id, self._batch_index, self._batch_size
        return type(self), numbers

    def serialize(self) -> bytes:
        """Returns the id as serialized ``MessageIdData``, as in official clients."""
        return encode_message_id(
            self._ledger_id, self._entry_id, self._partition, self._batch_index, self._batch_size
        )

    @staticmethod
    def deserialize(message_id_bytes: bytes) -> MessageId:
        """Returns the id from the bytes that :meth:`serialize` returned.

        :param message_id_bytes: the bytes
        :raises InvalidMessage: the bytes are not a serialized message id
        """
        plain = decode_message_id(message_id_bytes)
        if plain is not None:
            ledger_id, entry_id, partition, batch_index, batch_size = plain
            return MessageId(partition, ledger_id, entry_id, batch_index, batch_size)
        data = MessageIdData()
        try:
            data.ParseFromString(message_id_bytes)
        except DecodeError as error:
            raise InvalidMessage(f"invalid message id: {error}") from error
        if not data.IsInitialized():
            raise InvalidMessage("the message id has no ledger or no entry")
        return MessageId.from_wire(data)

    def to_wire(self) -> MessageIdData:
        data = MessageIdData(ledgerId=unsigned(self._ledger_id), entryId=unsigned(self._entry_id))
        if self._partition >= 0:
            data.partition = self._partition
        if self._batch_index >= 0:
            data.batch_index = self._batch_index
        if self._batch_size > 0:
            data.batch_size = self._batch_size
        return data

    @staticmethod
    def from_wire(data: MessageIdData) -> MessageId:
        return MessageId(
            data.partition if data.HasField("partition") else -1,
            signed(data.ledgerId),
            signed(data.entryId),
            data.batch_index if data.HasField("batch_index") else -1,
            data.batch_size,
        )

    def _key(self) -> tuple[int, int, int, int]:
        return self._ledger_id, self._entry_id, self._batch_index, self._partition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageId) and self._key() == other._key()

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, MessageId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return f"({self._ledger_id},{self._entry_id},{self._partition},{self._batch_index})"

    def __repr__(self) -> str:
        return f"MessageId{self}"


MessageId.earliest = MessageId()
MessageId.latest = MessageId(-1, _I64_MAX, _I64_MAX, -1)
